"""Faults in how a project tells its errors: what a user could not look up, and what nobody could tell apart."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

import msgspec

from windtunnel.catalog.record import Record, Site
from windtunnel.catalog.template import Hole, identity_of, num_literal_characters

_LEAST_CHARACTERS = 8

RULES = {
    "no-message": "an error that is raised without a message",
    "assert-without-message": "an assert that says nothing but its condition",
    "short-message": f"a message of fewer than {_LEAST_CHARACTERS} letters and digits",
    "only-values": "a message that is nothing but a value",
    "duplicate-message": "one message for errors of different types, or in different functions",
    "too-broad-type": "an error of no particular type: Exception, BaseException, Error",
}
"""What each rule finds."""

_TYPES_WITHOUT_WORDS = re.compile(
    r"(?:^|\.)(?:NotImplementedError|StopIteration|StopAsyncIteration|KeyboardInterrupt|SystemExit|GeneratorExit)$"
)
_BROAD = frozenset(("Exception", "BaseException", "Error"))
_CHECKED = frozenset(("raise", "throw", "construct", "bail", "reject", "error value", "assert", "check"))


class Finding(msgspec.Struct, frozen=True):
    """A fault at a place."""

    rule: str
    path: str
    line: int
    message: str

    @property
    def key(self) -> str:
        """What it is known by in a baseline: without its line, which other changes move."""
        return f"{self.rule} {self.path} {self.message}"


def findings(records: Iterable[Record], ignored: Collection[str] = ()) -> list[Finding]:
    """All faults by path and line; those of `ignored` rules are left out."""
    every = list(records)
    found = [finding for record in every if record.kind in _CHECKED for finding in _of_record(record)]
    found += _duplicates([record for record in every if record.kind in _CHECKED])
    kept = {finding for finding in found if finding.rule not in ignored}
    return sorted(kept, key=lambda finding: (finding.path, finding.line, finding.rule, finding.message))


def _of_record(record: Record) -> Iterator[Finding]:
    rule, words = _fault(record)
    for site in record.sites if rule else ():
        yield Finding(rule, site.path, site.start, words)
    if record.type in _BROAD and record.kind in ("raise", "throw", "reject"):
        for site in record.sites:
            yield Finding("too-broad-type", site.path, site.start, f"{record.type} can't be caught for what it is")


def _fault(record: Record) -> tuple[str, str]:
    if record.message_source == "condition":
        return "assert-without-message", f"says only {_short(record.text)}"
    if record.message_source == "statement":
        if re.search(r"\(\s*[^\s)]", record.text):  # what it is given may be a message
            return "", ""
        made_elsewhere = not record.type.rpartition(".")[2][:1].isupper()  # by a function, which has the message
        if _TYPES_WITHOUT_WORDS.search(record.type) or record.kind != "raise" or made_elsewhere:
            return "", ""
        return "no-message", f"{record.type} has no message"
    if all(isinstance(part, Hole) for part in record.template):
        return "only-values", f"says only {_short(record.text)}"
    has_holes = any(isinstance(part, Hole) for part in record.template)
    if not has_holes and num_literal_characters(record.template) < _LEAST_CHARACTERS:
        return "short-message", f"says only {_short(record.text)}"
    return "", ""


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return f"`{flat if len(flat) <= 80 else flat[:79] + '…'}`"


def _duplicates(records: list[Record]) -> Iterator[Finding]:
    """A text that several types or functions share: a reader of a log can't tell which it was."""
    by_text: dict[str, list[tuple[Record, Site]]] = defaultdict(list)
    for record in records:
        if record.message_source == "message" and num_literal_characters(record.template) >= _LEAST_CHARACTERS:
            by_text[identity_of(record.template)] += [(record, site) for site in record.sites]
    for places in by_text.values():
        if len({(record.type, site.path, site.function) for record, site in places}) > 1:
            for record, site in places:
                others = len(places) - 1
                words = f"{_short(record.text)} is said at {others} other place{'s' if others > 1 else ''} too"
                yield Finding("duplicate-message", site.path, site.start, words)


def text(found: Iterable[Finding]) -> str:
    """A line for each, as editors and people read them."""
    return "".join(f"{f.path}:{f.line}: {f.rule}: {f.message}\n" for f in found)


def github_annotations(found: Iterable[Finding]) -> str:
    """As a workflow of GitHub's shows them beside the code."""
    return "".join(f"::warning file={f.path},line={f.line},title={f.rule}::{_escaped(f.message)}\n" for f in found)


def _escaped(message: str) -> str:
    return message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
