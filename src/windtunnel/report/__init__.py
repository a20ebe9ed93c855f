"""Shows results: console, JSON. Text in, text out."""
