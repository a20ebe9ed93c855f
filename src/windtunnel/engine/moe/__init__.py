"""The reference engine: a small, real mixture-of-experts server whose experts live in rank processes."""
