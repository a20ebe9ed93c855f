"""Source text → facts, one file at a time. Pure: bytes in, `FileFacts` out; each language is a module of its own."""

from __future__ import annotations

import hashlib
from importlib import import_module
from pathlib import PurePosixPath

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


def extract(path: str, data: bytes) -> FileFacts:
    """Find what a file raises. One that can't be parsed gives facts with a `problem`; it never raises for bad code."""
    language = language_of(path)
    assert language is not None, path
    module = import_module(f"{__name__}.{_MODULES[language]}")
    facts: FileFacts = module.facts_of(path, data, language)
    return facts
