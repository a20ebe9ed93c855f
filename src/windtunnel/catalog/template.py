"""Message templates: literal text with holes, as the code builds messages."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Hole(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a message takes from where it is raised."""

    expression: str
    """As the code writes it; empty where it has none (`%s` with an unknown argument)."""
    format: str = ""
    """The conversion or format specification (`!r`, `.1f`, `%d`, `:?`), as the code writes it."""
    values: tuple[str, ...] | None = None
    """All texts that it can have, where the code shows them; else None."""


Part = str | Hole


def merged(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The same template, with neighbouring literals as one and empty ones left out."""
    result: list[Part] = []
    for part in parts:
        if isinstance(part, str) and result and isinstance(result[-1], str):
            result[-1] += part
        elif part != "":
            result.append(part)
    return tuple(result)


def text_of(parts: Iterable[Part]) -> str:
    """For people: each hole as `{expression}`."""
    return "".join(part if isinstance(part, str) else f"{{{part.expression}}}" for part in parts)


def identity_of(parts: Iterable[Part]) -> str:
    """For identity and comparison: each hole as `{}`, so that a variable that is renamed changes nothing."""
    return "".join(part if isinstance(part, str) else "{}" for part in parts)


def literals_of(parts: Iterable[Part]) -> tuple[str, ...]:
    """Its literal fragments, in order."""
    return tuple(part for part in parts if isinstance(part, str))


def num_literal_characters(parts: Iterable[Part]) -> int:
    """Letters and digits of its literals: how specific it is. `{}: {}` has 0."""
    return sum(character.isalnum() for literal in literals_of(parts) for character in literal)


def says_something(parts: Iterable[Part] | None) -> bool:
    """Whether there is a literal that is more than white space."""
    return parts is not None and any(literal.strip() for literal in literals_of(parts))
