"""What is to be sent and who counts its tokens, as the command line leaves it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class DatasetConfig(Struct, kw_only=True, frozen=True):
    """What is sent."""

    name: str = "random"
    """`random`, `custom` or `sharegpt`."""
    path: str | None = None
    num_prompts: int = 1000
    seed: int = 0
    input_len: int = 1024
    output_len: int | None = None
    """None: what the dataset says."""
    prefix_len: int = 0
    input_range_ratio: float = 0.0
    output_range_ratio: float = 0.0
    prompt_token_ids: bool = False
    shuffle: bool = True
    oversample: bool = True
    skip_chat_template: bool = False
    chat_template_kwargs: dict[str, Any] | None = None
    max_model_len: int | None = None


class TokenizerConfig(Struct, kw_only=True, frozen=True):
    """Who counts tokens."""

    name: str | None = None
    """A folder, a tokenizer.json, a .tiktoken file, an encoding's or a hub's name, or `server`. None: the model's."""
    mode: str = "auto"
    trust_remote_code: bool = False
    skip: bool = False
