"""Source text → facts, one file at a time. Pure: bytes in, `FileFacts` out; each language is a module of its own."""

from __future__ import annotations

import hashlib
from importlib import import_module
from pathlib import PurePosixPath
from typing import Any

import msgspec

from windtunnel.catalog.facts import FileFacts
from windtunnel.catalog.record import Language

SUFFIXES: dict[str, Language] = {
    ".py": "python",
    ".rs": "rust",
    ".cc": "cpp", ".cpp": "cpp", ".cxx": "cpp", ".cu": "cpp", ".cuh": "cpp", ".h": "cpp", ".hh": "cpp", ".hpp": "cpp",
    ".go": "go",
    ".ts": "typescript", ".tsx": "typescript", ".mts": "typescript", ".cts": "typescript",
    ".js": "javascript", ".jsx": "javascript", ".mjs": "javascript", ".cjs": "javascript",
    ".java": "java",
}  # fmt: skip

_MODULES: dict[Language, str] = {
    "python": "python", "rust": "rust", "cpp": "cpp", "go": "go", "typescript": "typescript",
    "javascript": "typescript", "java": "java",
}  # fmt: skip
"""Each has a function `facts_of(path, data, language)`."""


def language_of(path: str) -> Language | None:
    """By the file's name; None: not a language that is read."""
    return SUFFIXES.get(PurePosixPath(path).suffix)


def digest_of(data: bytes) -> str:
    """Of a file's bytes."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


LANGUAGES = tuple(_MODULES)

_BUNDLE_BYTES = 50_000
_BUNDLE_LINE_BYTES = 300


def extract(path: str, data: bytes) -> FileFacts:
    """Find what a file raises. One that can't be parsed gives facts with a `problem`; it never raises for bad code."""
    language = language_of(path)
    assert language is not None, path
    num_lines = data.count(b"\n") + 1
    if len(data) > _BUNDLE_BYTES and len(data) / num_lines > _BUNDLE_LINE_BYTES:
        problem = f"it is made by a machine, with {len(data) // num_lines:,} bytes a line; it was not read"
        return FileFacts(path, language, digest_of(data), num_lines, problem=problem)
    module = import_module(f"{__name__}.{_MODULES[language]}")
    facts: FileFacts
    try:
        facts = module.facts_of(path, data, language)
    except Exception as error:  # a fault of ours with one file is no reason to lose all others
        problem = f"a fault in windtunnel, please report it: {type(error).__name__}: {error}"
        return FileFacts(path, language, digest_of(data), num_lines, problem=problem)
    try:
        _encode(facts)
    except UnicodeEncodeError:  # a lone surrogate, which an escape in a literal makes
        return msgspec.convert(_readable(msgspec.to_builtins(facts)), FileFacts)
    return facts


_encode = msgspec.msgpack.Encoder().encode


def _readable(value: Any) -> Any:
    """The same with lone surrogates as their escapes: what is kept and shown has to be UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list | tuple):
        return [_readable(item) for item in value]
    return {_readable(key): _readable(item) for key, item in value.items()} if isinstance(value, dict) else value
