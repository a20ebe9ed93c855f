"""How alike a text and a template are by their words, where it does not fit: cut off, or worded differently."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from windtunnel.catalog.match.words import words_of

if TYPE_CHECKING:
    from windtunnel.catalog.store import Matchable

_COMMON = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "but",
        "by",
        "can",
        "cannot",
        "for",
        "from",
        "got",
        "has",
        "have",
        "if",
        "in",
        "is",
        "it",
        "must",
        "no",
        "not",
        "of",
        "on",
        "or",
        "should",
        "that",
        "the",
        "this",
        "to",
        "was",
        "with",
        "expected",
        "invalid",
        "error",
        "failed",
    ]
)


def similarity(matchable: Matchable, words: list[str]) -> float:
    """The share of a template's words that are among `words`, rare words counting more."""
    there = set(words)
    own = [word for part in matchable.template if isinstance(part, str) for word in words_of(part)]
    total = sum(map(weight, own))
    if total < 3 * weight("seldom"):
        return 0.0
    return sum(weight(word) for word in own if word in there) / total


def share_of_text(matchable: Matchable, words: list[str]) -> float:
    """The share of `words` that are among a template's, rare words counting more."""
    own = {word for part in matchable.template if isinstance(part, str) for word in words_of(part)}
    return sum(weight(word) for word in words if word in own) / max(sum(map(weight, words)), 1e-9)


def weight(word: str) -> float:
    """How much a word tells: little when it is short, a number, or in many messages."""
    if word in _COMMON or len(word) < 3 or word.isdigit():
        return 0.2
    return math.log2(len(word))
