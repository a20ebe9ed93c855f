"""What to send and when: datasets, tokenizers, arrival schedules. Seeded; no I/O but reading files."""
