"""The reference engine's front: OpenAI's API, metrics, and what hurts ranks on purpose."""
