"""Templates → HTML. All that comes from a source tree is escaped; only what is made here is marked as safe."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from windtunnel.catalog.template import Part
from windtunnel.catalog.web.links import Links

STATIC = {"style.css": "text/css", "copy.js": "text/javascript", "icon.svg": "image/svg+xml"}
_CODE = re.compile(r"(`+)(.+?)\1", re.DOTALL)
_SHORT_CHARACTERS = 240
_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]"
)
"""Characters that nobody sees. Some of them turn the order of their neighbours, so that code looks like other code."""


@cache
def static_file(name: str) -> bytes:
    """A file of `static/`."""
    return files(__package__).joinpath("static", name).read_bytes()


@cache
def static_digests() -> dict[str, str]:
    """The beginnings of their hashes, which their addresses carry."""
    return {name: hashlib.blake2b(static_file(name), digest_size=6).hexdigest() for name in STATIC}


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__package__), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    environment.filters |= {
        "prose": prose, "breaks": breaks, "message": message, "short": short, "number": "{:,}".format, "when": when,
        "plural": plural, "typed": typed, "outside": outside,
    }  # fmt: skip
    return environment


def compile_templates() -> None:
    """All of them, once."""
    for name in _environment().list_templates():
        _environment().get_template(name)


def render(template: str, links: Links, **facts: Any) -> str:
    """A page. What a template names and is not given is an error."""
    text = _environment().get_template(template).render(links=links, **facts)
    return _HIDDEN.sub(lambda match: f"‹U+{ord(match[0]):04X}›", text)


def typed(text: str) -> Markup:
    """What a reader wrote, for a field to edit: a character that is told by its number on a page is itself here."""
    return Markup(_HIDDEN.sub(lambda match: f"&#{ord(match[0])};", str(escape(text))))


def outside(link: str | None) -> str | None:
    """A link that leads to another site; None where it is none, or would run something."""
    return link if link and link.startswith(("https://", "http://")) else None


def prose(text: str) -> Markup:
    """A sentence, with what stands in backticks as code."""
    parts, end = [], 0
    for match in _CODE.finditer(text):
        parts += [escape(text[end : match.start()]), Markup("<code>{}</code>").format(match[2])]
        end = match.end()
    return Markup("").join([*parts, escape(text[end:])])


@lru_cache(8192)
def breaks(path: str) -> Markup:
    """A path or name that may be broken after its separators, where a line is too short for it."""
    return Markup(re.sub(r"(::|[/._])(?=.)", r"\1<wbr>", str(escape(path))))


def message(parts: Iterable[Part]) -> Markup:
    """A template, its holes told from its words."""
    shown = [
        escape(part) if isinstance(part, str) else Markup('<span class="hole">{{{}}}</span>').format(part.expression)
        for part in parts
    ]
    return Markup("").join(shown)


def short(text: str) -> str:
    """One line of it, for a list."""
    flat = " ".join(text.split())
    return flat if len(flat) <= _SHORT_CHARACTERS else f"{flat[:_SHORT_CHARACTERS]}…"


def when(instant: str) -> str:
    """An ISO 8601 instant for people."""
    return re.sub(r"T(\d\d:\d\d)(?::\d\d(?:\.\d+)?)?(?:Z|\+00:00)$", r" \1 UTC", instant)


def plural(number: int, word: str) -> str:
    """`1 place`, `1,200 places`."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"
