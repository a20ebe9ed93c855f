"""An explanation as plain text, for somebody who was woken up by the error: the root first, then what to do."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from windtunnel.catalog.match.answer import Explanation, Match, SeenError
from windtunnel.catalog.record import NOT_ANALYSED

_LEAST_WIDTH, _MOST_WIDTH = 60, 100
_MOST_SITES = 4
_MOST_SENTENCES = 4
_MOST_SITUATIONS = 6
_MOST_SHOWN = 12
"""Errors of a log that are told one by one."""
_MOST_IN_FULL = 3
_MOST_CHARACTERS = 300

_HOW = {
    "": "the root cause",
    "direct cause": "raised from it",
    "during handling": "raised while it was handled",
    "caused by": "which caused",
    "member": "in the group",
    "validator": "reported by the validation",
    "logged": "logged with it",
}


def explanation_text(explanation: Explanation, width: int = 80) -> str:
    """What was found, root causes first; or that it is not in this catalog, and how it gets there."""
    width = max(_LEAST_WIDTH, min(width, _MOST_WIDTH))
    lines: list[str] = []
    records = {record.id: record for record in explanation.records}
    told: set[str] = set()
    for error in explanation.errors[:_MOST_SHOWN]:
        lines += ["", *_error(error, records, told, width, len(explanation.errors))]
    if len(explanation.errors) > _MOST_SHOWN:
        lines += ["", f"… and {len(explanation.errors) - _MOST_SHOWN} more errors; --json has them all"]
    if not explanation.errors:
        lines += ["nothing in it reads like an error"]
    if not explanation.found:
        lines += ["", *_not_found(explanation, width)]
    else:
        lines += _others(explanation, told, width)
    if explanation.to_index:
        lines += ["", "To have the packages of this traceback in the catalog, where they are installed:"]
        lines += [f"  {command}" for command in explanation.to_index]
    return "\n".join(lines).lstrip("\n") + "\n"


def _error(error: SeenError, records: dict[str, Match], told: set[str], width: int, num_errors: int) -> Iterator[str]:
    how = "" if num_errors == 1 else f"{_HOW.get(error.how, error.how)}: "
    said = f"{error.type}: {error.message}" if error.type and error.message else error.type or error.message
    yield from _wrapped(how + _shortened(said), width)
    if error.count > 1:
        yield f"  {error.count:,} times, first in line {error.first_line:,}, last in line {error.last_line:,}"
    record = records.get(error.records[0]) if error.records else None
    if record is None:
        yield from _wrapped(f"not in this catalog: {error.why_not}", width, "  ")
        return
    is_first = not told
    told.add(record.id)
    yield from _wrapped(
        f"{error.answer}, confidence {record.confidence:.0%}: {'; '.join(record.evidence)}", width, "  "
    )
    yield from _wrapped(f"{record.id}  {record.type} of {record.project} {record.version}", width, "  ")
    if is_first or (error.how == "" and num_errors <= _MOST_IN_FULL):
        yield from _sections(record, width)
    else:
        yield from _short(record, width)


def _sections(record: Match, width: int) -> Iterator[str]:
    if record.severity not in (NOT_ANALYSED, "error"):
        yield f"  severity {record.severity}"
    for title, sentences in (("what it means", record.meaning), ("what sets it off", record.trigger)):
        if sentences:
            yield from ("", f"  {title}")
            for sentence in sentences[:_MOST_SENTENCES]:
                yield from _sentence(sentence, width, "    ")
    if record.values:
        if not record.trigger:
            yield from ("", "  what sets it off")
        for value in record.values:
            yield from _wrapped(
                f"here {value.expression} is {_shortened(value.value) or 'empty'}", width, "      ", "    "
            )
    if record.situations:
        yield from ("", "  when it comes")
        for sentence in record.situations[:_MOST_SITUATIONS]:
            yield from _sentence(sentence, width, "    ")
    if record.solutions:
        yield from ("", "  what to do")
        for number, sentence in enumerate(record.solutions[:_MOST_SENTENCES], 1):
            yield from _sentence(sentence, width, "       ", f"    {number}. ")
    yield from ("", "  where")
    for site in record.sites[:_MOST_SITES]:
        function = f" in {site.function}" if site.function else ""
        here = "  ← here" if site.is_here and len(record.sites) > 1 else ""
        yield f"    {site.path}:{site.start}{function}{here}"
        if site.permalink and (site.is_here or len(record.sites) == 1):
            yield f"      {site.permalink}"
    if len(record.sites) > _MOST_SITES:
        yield f"    … and {len(record.sites) - _MOST_SITES} more places"
    yield from ("", f"  `windtunnel catalog show {record.id}` shows all of it, with the lines that bear it out.")


def _short(record: Match, width: int) -> Iterator[str]:
    for sentence in (*record.meaning[:1], *record.solutions[:1]):
        yield from _sentence(sentence, width, "    ")
    site = record.sites[0]
    yield f"    {site.path}:{site.start}" + (f" in {site.function}" if site.function else "")


def _others(explanation: Explanation, told: set[str], width: int) -> Iterator[str]:
    others = [record for record in explanation.records if record.id not in told][:_MOST_SHOWN]
    if not others:
        return
    yield from ("", "other candidates")
    for record in others:
        yield from _wrapped(f"{record.confidence:4.0%}  {record.type}: {record.template}", width, "        ", "  ")
        site = record.sites[0]
        yield f"        {record.id}  {record.project}  {site.path}:{site.start}"


def _not_found(explanation: Explanation, width: int) -> Iterator[str]:
    if explanation.projects:
        yield from _wrapped(f"This catalog has {', '.join(explanation.projects)}.", width)
    else:
        yield "This catalog is empty; `windtunnel catalog index SOURCE` adds a project."
    if explanation.similar:
        yield from ("", "Records that have some of its words:")
        for record in explanation.similar:
            yield from _wrapped(f"{record.type}: {record.template}", width, "    ", "  ")
            yield f"    {record.id}  {record.project}  {record.sites[0].path}:{record.sites[0].start}"


def _sentence(text: str, width: int, indent: str, first: str | None = None) -> Iterator[str]:
    words, _, code = text.partition("\n")
    yield from _wrapped(words, width, indent, first)
    for line in code.splitlines():
        yield f"{indent}  {line}"


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"


def _wrapped(text: str, width: int, indent: str = "", first: str | None = None) -> list[str]:
    printable = "".join(c if c.isprintable() else " " for c in text)
    return textwrap.wrap(
        " ".join(printable.split()), width, initial_indent=indent if first is None else first,
        subsequent_indent=indent or "  ", break_long_words=False, break_on_hyphens=False,
    ) or [indent]  # fmt: skip
