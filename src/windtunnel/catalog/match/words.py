"""Words of messages and templates: what records are looked up by when there is no frame."""

from __future__ import annotations

import re
from collections.abc import Sequence

from windtunnel.catalog.template import Part

_WORD = re.compile(r"\w+")
_MOST_CHARACTERS = 64
"""A longer run is a dump or a key, and no word."""


def words_of(text: str) -> list[str]:
    """Its words in order, in lower case: letters, digits and `_`."""
    return [word.lower() for word in _WORD.findall(text) if len(word) <= _MOST_CHARACTERS]


def whole_words_of(template: Sequence[Part]) -> list[str]:
    """The words of its literals that every message made from it has: those that no hole goes on from."""
    words = []
    for i, part in enumerate(template):
        if not isinstance(part, str):
            continue
        for match in _WORD.finditer(part):
            is_joined = (match.start() == 0 and i > 0) or (match.end() == len(part) and i + 1 < len(template))
            if not is_joined and len(match[0]) <= _MOST_CHARACTERS:
                words.append(match[0].lower())
    return words
