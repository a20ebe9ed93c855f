"""Faults in how a project tells its errors: what a user could not look up, and what nobody could tell apart."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec

from windtunnel.catalog.record import Record, Site
from windtunnel.catalog.template import Hole, identity_of, literals_of, num_literal_characters

_LEAST_CHARACTERS = 8
_LEAST_SHARED_CHARACTERS = 12
"""Shorter texts (`{path} not found`) are anybody's."""

Level = Literal["finding", "hint"]


class Rule(NamedTuple):
    """What a rule finds."""

    words: str
    level: Level = "finding"
    """A hint is worth a look, and fails nothing."""


RULES = {
    "no-message": Rule("an error that is raised without a message, and from no other error"),
    "assert-without-message": Rule(
        "an assert that says nothing when it fails; `is not None` and isinstance, which tell a type, are let be"
    ),
    "short-message": Rule(f"a message of fewer than {_LEAST_CHARACTERS} letters and digits"),
    "only-values": Rule("a message that is nothing but a value"),
    "same-text-other-type": Rule("one message for errors of different types: what catches the one misses the other"),
    "cause-not-told": Rule("any error is caught, and what is logged instead has no word of it"),
    "too-broad-type": Rule("an error of no particular type: Exception, BaseException"),
    "duplicate-message": Rule("one message that is written at several places of a project", "hint"),
}

_CHECKED = frozenset(("raise", "throw", "construct", "bail", "reject", "error value", "assert"))
_ERRORS = re.compile(r"(?:Error|Exception|Failure|Failed|Fault|Invalid\w*)$")
"""Types without such a name are raised to be caught (`StopIteration`, `PreventUpdate`), and need no words."""
_NEED_NO_WORDS = frozenset(("NotImplementedError", "CancelledError"))
_NARROWING = re.compile(r"(?:[\w.\[\]'\"]+(?:\(\))? is not None(?: and )?)+|isinstance\(.*\)")
_BROAD = frozenset(("Exception", "BaseException"))
_TELLS_ALL = re.compile(r"exc_info|exception=|traceback|format_exc")
_SILENCED = re.compile(r"windtunnel: ignore\[([\w\s,-]+)\]")
_MOST_PLACES = 5
"""That are named in a finding about several."""


class Finding(msgspec.Struct, frozen=True):
    """A fault at a place."""

    rule: str
    level: Level
    path: str
    line: int
    message: str
    known_by: str
    """What it is known by in a baseline: nothing that a change elsewhere in the project would change."""


def findings(records: Iterable[Record], ignored: Collection[str] = ()) -> list[Finding]:
    """All faults by path and line, without those of `ignored` rules.

    A comment `windtunnel: ignore[RULE]` in the lines of a statement silences the rule there.
    """
    every = list(records)
    checked = [record for record in every if record.kind in _CHECKED]
    found = [finding for record in every for finding in _of_record(record)]
    found += _shared_texts(checked, ignored)
    kept = (finding for finding in found if finding.rule not in ignored)
    return sorted(kept, key=lambda finding: (finding.path, finding.line, finding.rule, finding.message))


def _of_record(record: Record) -> Iterator[Finding]:
    for site in record.sites:
        if record.kind in _CHECKED:
            rule, words = _fault(record, site)
            yield from _at(site, rule, words)
            if record.kind == "raise" and record.type in _BROAD:
                yield from _at(site, "too-broad-type", f"{record.type} can't be caught for what it is")
        elif record.kind == "log" and _loses_the_cause(record, site):
            yield from _at(site, "cause-not-told", f"{_short(record.text)} says nothing of the error that was caught")


def _at(site: Site, rule: str, words: str) -> Iterator[Finding]:
    if rule and rule not in _silenced_at(site):
        yield Finding(rule, RULES[rule].level, site.path, site.start, words, f"{rule} {site.path} {words}")


def _fault(record: Record, site: Site) -> tuple[str, str]:
    if record.message_source == "condition":
        silent = record.language == "python" and not _NARROWING.fullmatch(record.text)  # elsewhere it shows itself
        return ("assert-without-message", f"says only {_short(record.text)}") if silent else ("", "")
    if record.message_source == "statement":
        return ("no-message", f"{record.type} has no message") if _needs_words(record, site) else ("", "")
    if all(isinstance(part, Hole) for part in record.template):
        return "only-values", f"says only {_short(record.text)}"
    has_holes = any(isinstance(part, Hole) for part in record.template)
    if not has_holes and num_literal_characters(record.template) < _LEAST_CHARACTERS:
        return "short-message", f"says only {_short(record.text)}"
    return "", ""


def _needs_words(record: Record, site: Site) -> bool:
    if record.kind != "raise" or re.search(r"\(\s*[^\s)]", record.text):  # what it is given may be a message
        return False
    name = record.type.rpartition(".")[2]
    if not name[:1].isupper() or not _ERRORS.search(name) or name in _NEED_NO_WORDS:
        return False  # a function makes it, with its message; or it is no error
    return site.cause is None or not site.cause.how.startswith("from")


def _loses_the_cause(record: Record, site: Site) -> bool:
    """An error is logged instead of one that could be anything, whose text and traceback nobody sees."""
    caught = site.guards[-1] if site.guards else None
    if caught is None or caught.kind != "except" or record.type.rpartition(".")[2] not in ("error", "critical"):
        return False
    has_values = any(isinstance(part, Hole) or "{" in part for part in record.template)  # loguru fills braces
    tells = has_values or record.message_source != "message" or _TELLS_ALL.search(" ".join(_lines(site)))
    return caught.condition.partition(" as ")[0].strip() in (*_BROAD, "") and not tells


def _lines(site: Site) -> list[str]:
    """Of the statement."""
    return [line.text for line in site.excerpt if site.start <= line.number <= site.end]


def _silenced_at(site: Site) -> set[str]:
    comments = map(_SILENCED.search, _lines(site))
    return {rule.strip() for comment in comments if comment for rule in comment[1].split(",")}


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return f"`{flat if len(flat) <= 80 else flat[:79] + '…'}`"


# --- texts that several places share ----------------------------------------------------------------------------------

_OTHER_TYPE, _DUPLICATE = "same-text-other-type", "duplicate-message"


class _Written(NamedTuple):
    record: Record
    site: Site

    @property
    def place(self) -> tuple[str, int]:
        return self.site.path, self.site.start


def _shared_texts(records: Sequence[Record], ignored: Collection[str]) -> Iterator[Finding]:
    """One finding for each text, at its first place."""
    by_text: dict[tuple[str, str], list[_Written]] = defaultdict(list)
    for record in records:
        if record.message_source == "message" and num_literal_characters(record.template) >= _LEAST_SHARED_CHARACTERS:
            found = (_Written(record, site) for site in record.sites if _is_written_at(record, site))
            by_text[record.language, identity_of(record.template)] += found
    for written in by_text.values():
        loud = sorted((each for each in written if _has_a_say(each)), key=lambda w: w.place)
        if len({each.record.type for each in loud}) > 1 and _OTHER_TYPE not in ignored:
            yield _other_types(loud)
            continue
        loud = sorted((each for each in written if _DUPLICATE not in _silenced_at(each.site)), key=lambda w: w.place)
        if len({(each.site.path, each.site.function) for each in loud}) > 1:  # branches of one function may share it
            yield _duplicate(loud)


def _has_a_say(each: _Written) -> bool:
    """Whether its type counts: one that ends a task is another on purpose."""
    return each.record.type.rpartition(".")[2] != "CancelledError" and _OTHER_TYPE not in _silenced_at(each.site)


def _other_types(places: Sequence[_Written]) -> Finding:
    first = places[0]
    others = sorted(places[1:], key=lambda each: each.record.type == first.record.type)  # the other types first
    named = [f"{each.record.type} in {_where(each, first)}" for each in others]
    return _of_several(_OTHER_TYPE, first, f"{first.record.type} says {_short(first.record.text)}, as ", named)


def _duplicate(places: Sequence[_Written]) -> Finding:
    first = places[0]
    named = [_where(each, first) for each in places[1:]]
    return _of_several(_DUPLICATE, first, f"{_short(first.record.text)} is also said in ", named)


def _of_several(rule: str, first: _Written, words: str, named: Sequence[str]) -> Finding:
    more = f" and {len(named) - _MOST_PLACES} more" if len(named) > _MOST_PLACES else ""
    told = f"{words}{', '.join(named[:_MOST_PLACES])}{more}"
    key = f"{rule} {identity_of(first.record.template)}"
    return Finding(rule, RULES[rule].level, first.site.path, first.site.start, told, key)


def _where(each: _Written, first: _Written) -> str:
    same_file = each.site.path == first.site.path
    return f"line {each.site.start}" if same_file else f"{each.site.path}:{each.site.start}"


def _is_written_at(record: Record, site: Site) -> bool:
    """Not in an error class, which has its message once: words of it stand in the statement."""
    longest = max(literals_of(record.template), key=len, default="")
    words = max(re.split(r"""["'\\{}%\n]""", longest), key=len).split(" ")  # the rest may be written otherwise
    pairs = [" ".join(pair) for pair in pairwise(words)] or words
    return any(pair.strip() and pair in line for pair in pairs for line in _lines(site))


# --- output -----------------------------------------------------------------------------------------------------------


def text(found: Iterable[Finding]) -> str:
    """A line for each, as editors and people read them."""
    return "".join(f"{f.path}:{f.line}: {f.rule}{' (hint)' if f.level == 'hint' else ''}: {f.message}\n" for f in found)


def github_annotations(found: Iterable[Finding]) -> str:
    """As a workflow of GitHub's shows them beside the code."""
    return "".join(
        f"::{'notice' if f.level == 'hint' else 'warning'} file={_property(f.path)},line={f.line},"
        f"title={f.rule}::{_escaped(f.message)}\n"
        for f in found
    )


def _escaped(message: str) -> str:
    return message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _escaped(value).replace(":", "%3A").replace(",", "%2C")
