"""One request of a dataset, before it is put into a server's dialect."""

from __future__ import annotations

from msgspec import Struct

from windtunnel.wire.openai import Prompt


class Sample(Struct, frozen=True):
    """What is asked."""

    prompt: Prompt
    """Text, token ids, or chat messages."""
    prompt_tokens: int
    """How many tokens the server is to count; 1 when there is no tokenizer to tell (as vLLM has it)."""
    output_tokens: int | None
    """How many tokens are asked for; None leaves it to the server."""
