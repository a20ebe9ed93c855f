"""A wind tunnel for LLM serving: a benchmark client, and an embedded target to measure it by."""

__version__ = "0.1.0"
