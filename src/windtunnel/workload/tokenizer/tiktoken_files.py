"""OpenAI's tiktoken: a .tiktoken file of ranks, or a named encoding from tiktoken's cache. Never the network."""

from __future__ import annotations

import base64
import binascii
import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.errors import MissingExtra, TokenizerError
from windtunnel.workload.tokenizer.chat_template import no_template

if TYPE_CHECKING:
    import tiktoken

    from windtunnel.workload.tokenizer.base import Messages

DEFAULT_PATTERN = "cl100k_base"
"""Whose pattern splits text for a file that doesn't bear an encoding's name: most later ones descend from it."""

_PUBLIC = "tiktoken_ext.openai_public"
_BYTES = [bytes([b]) for b in range(256)]


class TiktokenTokenizer:
    """An encoding of tiktoken's."""

    num_special = 0

    def __init__(self, name: str, encoding: tiktoken.Encoding) -> None:
        self.name = name
        self._encoding = encoding

    @cached_property
    def vocab_size(self) -> int:
        """The ranks; special tokens lie above them, with gaps."""
        return min([self._encoding.n_vocab, *self.special_ids])

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Such as `<|endoftext|>`."""
        return frozenset(self._encoding.encode_single_token(t) for t in self._encoding.special_tokens_set)

    def encode(self, text: str, special: bool = False) -> list[int]:
        """The text's token ids; special tokens' names are text like any other, and none are added."""
        return list(self._encoding.encode_ordinary(text))

    def encode_batch(self, texts: Sequence[str], special: bool = False) -> list[list[int]]:
        """The token ids of each text, on several cores."""
        return self._encoding.encode_ordinary_batch(list(texts))

    def count(self, text: str, special: bool = False) -> int:
        """How many tokens the text is."""
        return len(self._encoding.encode_ordinary(text))

    def decode(self, ids: Sequence[int]) -> str:
        """The ids' text."""
        return self._encoding.decode(ids)

    def decode_batch(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """The text of each sequence."""
        return self._encoding.decode_batch(sequences)

    def apply_chat_template(self, messages: Messages, kwargs: dict[str, Any] | None = None) -> str:
        """Not possible: tiktoken has no templates."""
        raise no_template(self.name)


def encoding_names() -> list[str]:
    """The encodings that tiktoken knows by name; none when it is not installed."""
    try:
        import tiktoken
    except ImportError:
        return []
    return tiktoken.list_encoding_names()


def load_encoding(name: str) -> TiktokenTokenizer:
    """A named encoding from tiktoken's cache. Raises TokenizerError when it is not there."""
    import tiktoken

    try:
        with _no_network():
            return TiktokenTokenizer(name, tiktoken.get_encoding(name))
    except _NotCached as error:
        raise TokenizerError(
            name,
            f"is an encoding of tiktoken's, which doesn't have {error} in its cache, and windtunnel doesn't fetch it",
            "Set TIKTOKEN_CACHE_DIR to a folder that tiktoken filled elsewhere, or give a .tiktoken file.",
        ) from error


def load_ranks_file(name: str, path: Path) -> TiktokenTokenizer:
    """A .tiktoken file. The pattern that splits text is the encoding's of the file's name, else `DEFAULT_PATTERN`'s.

    Raises TokenizerError when the file can't be read or is broken, MissingExtra without tiktoken.
    """
    try:
        import tiktoken
    except ImportError as error:
        raise MissingExtra(f"the tokenizer {name}", "tiktoken", "hub") from error
    ranks = _read_ranks(name, path)
    pattern, special = _pattern_and_special(path.stem, ranks)
    encoding = tiktoken.Encoding(path.stem, pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)
    return TiktokenTokenizer(name, encoding)


def _read_ranks(name: str, path: Path) -> dict[bytes, int]:
    """Each line: a token's bytes in base64, a space, its rank."""
    remedy = "Is it a whole .tiktoken file?"
    ranks: dict[bytes, int] = {}
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise TokenizerError(name, f"can't read {path}: {error.strerror}", "Check the file's permissions.") from error
    for number, line in enumerate(lines, 1):
        try:
            if line:
                token, rank = line.split()
                ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error) as error:
            raise TokenizerError(
                name, f"{path}, line {number}, is not base64 and a rank: {line[:40]!r}", remedy
            ) from error
    if missing := [b for b in _BYTES if b not in ranks]:
        raise TokenizerError(name, f"{path} has no token for {len(missing)} of the 256 bytes", remedy)
    if len(set(ranks.values())) != len(ranks):
        raise TokenizerError(name, f"{path} gives one rank to several tokens", remedy)
    return ranks


def _pattern_and_special(stem: str, ranks: dict[bytes, int]) -> tuple[str, dict[str, int]]:
    """tiktoken keeps patterns and special tokens in functions that load the ranks: these are given to it instead."""
    public: Any = importlib.import_module(_PUBLIC)
    known = stem in public.ENCODING_CONSTRUCTORS and stem != "gpt2"  # made of two files of another kind
    load = public.load_tiktoken_bpe
    public.load_tiktoken_bpe = lambda *_, **__: ranks
    try:
        recipe = public.ENCODING_CONSTRUCTORS[stem if known else DEFAULT_PATTERN]()
    finally:
        public.load_tiktoken_bpe = load
    fits = known and min(recipe["special_tokens"].values()) > max(ranks.values())
    return recipe["pat_str"], recipe["special_tokens"] if fits else {}


class _NotCached(Exception):
    """tiktoken wants to fetch this address."""


@contextmanager
def _no_network() -> Iterator[None]:
    """tiktoken reads its cache itself; `read_file` is what it calls for everything else."""
    load: Any = importlib.import_module("tiktoken.load")
    read_file = load.read_file

    def refuse(address: str) -> bytes:
        raise _NotCached(address.rsplit("/", 1)[-1])

    load.read_file = refuse
    try:
        yield
    finally:
        load.read_file = read_file
