"""Hugging Face's fast tokenizers: a tokenizer.json, and beside it what tells the chat template."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from windtunnel.errors import TokenizerError
from windtunnel.workload.tokenizer.chat_template import ChatTemplate, no_template

if TYPE_CHECKING:
    import tokenizers

    from windtunnel.workload.tokenizer.base import Messages

TOKENIZER = "tokenizer.json"
CONFIG = "tokenizer_config.json"
TEMPLATE = "chat_template.jinja"
FILES = (TOKENIZER, CONFIG, TEMPLATE)
"""What is read of a folder or of a hub's repository; only the first must be there."""

_OTHERS = {
    "tokenizer.model": "a SentencePiece model",
    "tekken.json": "Mistral's own format",
    "vocab.json": "the parts of a slow tokenizer",
    "vocab.txt": "the parts of a slow tokenizer",
    "spiece.model": "a SentencePiece model",
}
CONVERT = (
    "`transformers.AutoTokenizer.from_pretrained(…).save_pretrained(FOLDER)` writes a tokenizer.json from most others; "
    "--tokenizer server lets the server count."
)


class _Config(Struct):
    """Of tokenizer_config.json, what a chat template needs. A token is a text or `{"content": text, …}`."""

    chat_template: str | list[dict[str, str]] | None = None
    bos_token: str | dict[str, Any] | None = None
    eos_token: str | dict[str, Any] | None = None
    pad_token: str | dict[str, Any] | None = None
    unk_token: str | dict[str, Any] | None = None


class HuggingFaceTokenizer:
    """A tokenizer.json."""

    def __init__(self, name: str, core: tokenizers.Tokenizer, config: _Config, template: str | None) -> None:
        # a file may ask for truncation and padding, which servers don't do
        core.no_truncation()
        core.no_padding()
        self.name = name
        self._core = core
        self._config = config
        self._template_source = template

    @cached_property
    def vocab_size(self) -> int:
        """Without tokens that were added to the vocabulary later."""
        return self._core.get_vocab_size(with_added_tokens=False)

    @cached_property
    def num_special(self) -> int:
        """Tokens that the post-processor adds to one text."""
        return self._core.num_special_tokens_to_add(False)

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Added tokens that are marked as special."""
        return frozenset(i for i, token in self._core.get_added_tokens_decoder().items() if token.special)

    def encode(self, text: str, special: bool = False) -> list[int]:
        """The text's token ids."""
        return list(self._core.encode(text, add_special_tokens=special).ids)

    def encode_batch(self, texts: Sequence[str], special: bool = False) -> list[list[int]]:
        """The token ids of each text, on all cores."""
        return [e.ids for e in self._core.encode_batch_fast(list(texts), add_special_tokens=special)]

    def count(self, text: str, special: bool = False) -> int:
        """How many tokens the text is."""
        return len(self._core.encode(text, add_special_tokens=special))

    def decode(self, ids: Sequence[int]) -> str:
        """The ids' text, special tokens included."""
        return self._core.decode(ids, skip_special_tokens=False)

    def decode_batch(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """The text of each sequence."""
        return self._core.decode_batch(sequences, skip_special_tokens=False)

    def apply_chat_template(self, messages: Messages, kwargs: dict[str, Any] | None = None) -> str:
        """The conversation as the model reads it."""
        return self._template.render(messages, kwargs)

    @cached_property
    def _template(self) -> ChatTemplate:
        source = self._template_source or _default_template(self._config.chat_template)
        if source is None:
            raise no_template(self.name)
        tokens = {key: getattr(self._config, key) for key in ("bos_token", "eos_token", "pad_token", "unk_token")}
        constants = {k: v["content"] if isinstance(v, dict) else v for k, v in tokens.items() if v is not None}
        return ChatTemplate(self.name, source, constants)


def load_files(
    name: str, tokenizer: Path, config: Path | None = None, template: Path | None = None
) -> HuggingFaceTokenizer:
    """A tokenizer from its files. Raises TokenizerError when one can't be read or understood."""
    import tokenizers

    try:
        core = tokenizers.Tokenizer.from_file(str(tokenizer))
    except Exception as error:  # the library raises nothing narrower
        raise TokenizerError(
            name, f"{tokenizer} can't be loaded: {error}", "Is the file whole, and of Hugging Face's format? " + CONVERT
        ) from error
    text = None if template is None else _read(name, template).decode("utf-8", "replace")
    return HuggingFaceTokenizer(name, core, _Config() if config is None else _read_config(name, config), text)


def load_folder(name: str, folder: Path) -> HuggingFaceTokenizer:
    """A tokenizer from a folder. Raises TokenizerError, with what is there, when it holds no tokenizer.json."""
    path, config, template = (folder / file for file in FILES)
    if not path.is_file():
        raise TokenizerError(name, f"the folder {folder} has no {TOKENIZER}{_what_is_there(folder)}", CONVERT)
    return load_files(name, path, config if config.is_file() else None, template if template.is_file() else None)


def _what_is_there(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.iterdir())
    if not names:
        return ": it is empty"
    known = "".join(f"; {name} is {kind}, which is not read" for name, kind in _OTHERS.items() if name in names)
    listed = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    return f"; it has {listed}{known}"


def _read(name: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TokenizerError(name, f"can't read {path}: {error.strerror}", "Check the file's permissions.") from error


def _read_config(name: str, path: Path) -> _Config:
    try:
        return msgspec.json.decode(_read(name, path), type=_Config)
    except msgspec.DecodeError as error:
        raise TokenizerError(
            name, f"{path} is broken: {error}", f"Mend the file, or give {TOKENIZER} alone."
        ) from error


def _default_template(given: str | list[dict[str, str]] | None) -> str | None:
    """Of several named templates, `default`."""
    if isinstance(given, list):
        return next((t.get("template") for t in given if t.get("name") == "default"), None)
    return given
