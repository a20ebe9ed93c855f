"""Records, hits and projects as plain text for a terminal, without colours, which a pager or pipe would not like."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from windtunnel.catalog.record import NOT_ANALYSED, Claim, Guard, Link, Record, Site
from windtunnel.catalog.store import Hit, Project
from windtunnel.catalog.template import Hole

_LEAST_WIDTH = 60
_MOST_WIDTH = 100
SITES = 6
"""So many places of a record are shown where not all are asked for."""
_PROBLEMS = 10


def record_text(record: Record, width: int = 80, *, every_site: bool = False) -> str:
    """Everything that is known of a record; `every_site`: however many they are."""
    width = max(_LEAST_WIDTH, min(width, _MOST_WIDTH))
    lines = [f"{record.type}: {record.text}" if record.message_source == "message" else f"{record.type}  {record.text}"]
    lines = _wrapped(lines[0], width)
    lines.append(f"{record.id}  {record.project} {record.provenance.version}  {record.language} {record.kind}")
    if record.severity != NOT_ANALYSED:
        lines.append(f"severity {record.severity}, handled {record.handled}")
    lines += [line for claim in record.severity_evidence for line in _claim_lines(claim, width)]
    for title, claims in (
        ("what it means", record.prose.meaning), ("what sets it off", record.prose.trigger),
        ("when it comes", record.prose.situations), ("what to do", record.prose.solutions),
    ):  # fmt: skip
        if claims:
            lines += ["", title, *_claims(claims, width, numbered=title == "what to do")]
    values = [part for part in record.template if isinstance(part, Hole) and part.values]
    if values:
        lines += ["", "values", *(f"  {hole.expression}: {', '.join(hole.values or ())}" for hole in values)]
    shown = record.sites if every_site else record.sites[:SITES]
    lines += ["", "where it is raised", *(line for site in shown for line in _site_lines(site))]
    if len(shown) < len(record.sites):
        lines.append(f"  … and at {len(record.sites) - len(shown)} more places (--every-site shows them)")
    for title, links in (("made from", record.wraps), ("made into", record.wrapped_by), ("near", record.related)):
        if links:
            lines += ["", title, *_links(links, width)]
    lines += ["", *_provenance_lines(record, width)]
    return "\n".join(lines) + "\n"


def _wrapped(text: str, width: int, indent: str = "", first: str | None = None) -> list[str]:
    found = textwrap.wrap(
        " ".join(text.split()), width, initial_indent=indent if first is None else first, subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return found or [indent]


def _claims(claims: Sequence[Claim], width: int, *, numbered: bool) -> Iterator[str]:
    for number, claim in enumerate(claims, 1):
        yield from _claim_lines(claim, width, f"{number}. " if numbered and len(claims) > 1 else "")


def _claim_lines(claim: Claim, width: int, mark: str = "") -> Iterator[str]:
    places = ", ".join(f"{c.path}:{c.start}" + (f"-{c.end}" if c.end > c.start else "") for c in claim.citations[:3])
    more = f", … {len(claim.citations) - 3} more" if len(claim.citations) > 3 else ""
    origin = "" if claim.origin == "code" else f"{claim.origin}: "
    stale = "stale; " if claim.stale else ""
    indent = "  " + " " * len(mark)
    yield from _wrapped(claim.text, width, indent, f"  {mark}")
    if claim.code:
        yield from (f"{indent}    {line}" for line in claim.code.splitlines())
    yield from _wrapped(f"[{stale}{origin}{places}{more}]", width, f"{indent}  ")


def _site_lines(site: Site) -> Iterator[str]:
    function = f" in {site.function}" if site.function else ""
    yield f"  {site.path}:{site.start}{function}"
    if site.permalink:
        yield f"    {site.permalink}"
    if site.since:
        yield f"    since {site.since}"
    guards: dict[int, list[Guard]] = {}
    for guard in site.guards:
        guards.setdefault(guard.start, []).append(guard)
    last = None
    for line in site.excerpt:
        if last is not None and line.number > last + 1:
            yield "         ⋮"
        last = line.number
        here = guards.get(line.number, ())
        mark = "" if not here else "  ← " + ", ".join("holds" if guard.holds else "does not hold" for guard in here)
        yield f"    {line.number:5} {line.text}{mark}"


def _links(links: Sequence[Link], width: int) -> Iterator[str]:
    for link in links:
        where = link.id or "not in this catalog"
        said = f": {link.text}" if link.text else ""
        yield from _wrapped(f"{link.type}{said}", width, "    ", "  ")
        yield f"    {where}, {link.reason}"


def _provenance_lines(record: Record, width: int) -> Iterator[str]:
    made = record.provenance
    commit = f", commit {made.commit[:12]}" if made.commit else ""
    yield from _wrapped(f"indexed {made.indexed_at} by windtunnel {made.tool} from {made.version}{commit}", width)
    if made.model:
        kept, dropped = made.checked.get("kept", 0), sum(n for rule, n in made.checked.items() if rule != "kept")
        yield from _wrapped(f"explained by {made.model}; the gate kept {kept} claims and dropped {dropped}", width)
    if record.aliases:
        yield from _wrapped(f"earlier ids: {', '.join(record.aliases)}", width)


def hits_text(hits: Iterable[Hit], width: int = 80) -> str:
    """What a search found, the best first."""
    lines: list[str] = []
    for hit in hits:
        said = hit.text if len(hit.text) <= 2 * width else f"{hit.text[: 2 * width]}…"
        lines += _wrapped(f"{hit.type}: {said}", max(width, _LEAST_WIDTH), "  ", "")
        lines.append(f"  {hit.id}  {hit.project}  {hit.path}:{hit.line}")
    return "\n".join(lines) + "\n" if lines else ""


def projects_text(projects: Sequence[Project]) -> str:
    """Projects as a table."""
    rows = [("project", "version", "records", "files", "lines", "languages", "indexed")]
    for each in projects:
        languages = ", ".join(sorted(each.languages, key=lambda name: -each.languages[name]))
        mark = "" if each.current else " (earlier)"
        rows.append(
            (each.name, each.version + mark, f"{each.num_records:,}", f"{each.num_files:,}", f"{each.num_lines:,}",
             languages, each.indexed_at)
        )  # fmt: skip
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "".join(
        "  ".join(cell.rjust(width) if 2 <= column <= 4 else cell.ljust(width)
                  for column, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip() + "\n"
        for row in rows
    )  # fmt: skip


def problems_text(project: Project) -> str:
    """Files that could not be read wholly."""
    lines = [f"  {path}: {problem}" for path, problem in project.problems[:_PROBLEMS]]
    if len(project.problems) > _PROBLEMS:
        lines.append(f"  … and {len(project.problems) - _PROBLEMS} more (--json lists them)")
    return "\n".join(lines)
