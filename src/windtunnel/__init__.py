"""A wind tunnel for LLM serving: bench, eplb, catalog, engine and drill."""

__version__ = "0.1.0"
