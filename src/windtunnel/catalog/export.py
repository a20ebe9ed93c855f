"""A project's records as files: JSON, JSON lines, SARIF rules, or pages that need no server."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

import windtunnel
from windtunnel.catalog.record import SCHEMA, Claim, Record, Severity
from windtunnel.catalog.store import Hit, Project
from windtunnel.catalog.template import Part
from windtunnel.errors import ConfigurationError

_MARK = ".windtunnel-export"
"""Its presence says that a folder was exported here before, and may be replaced."""
_PAGE = 200
_LEVELS: dict[Severity, str] = {"fatal": "error", "error": "error", "warning": "warning", "none": "note"}
_SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def record_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a record; every export, answer and page's JSON keeps to it."""
    (root,), definitions = msgspec.json.schema_components((Record,), ref_template="#/$defs/{name}")
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A record of windtunnel's catalog, {SCHEMA}",
    }
    return {**head, **root, "$defs": dict(sorted(definitions.items()))}


def json_lines(records: Iterable[Record]) -> Iterator[bytes]:
    """A record in each line."""
    for record in records:
        yield msgspec.json.encode(record) + b"\n"


def json_document(project: Project, records: Iterable[Record]) -> Iterator[bytes]:
    """One document, `{"schema": "records/1", "project": …, "records": […]}`, a record in each line."""
    yield b'{"schema":"records/1","project":' + msgspec.json.encode(project) + b',"records":['
    between = b"\n"
    for record in records:
        yield between + msgspec.json.encode(record)
        between = b",\n"
    yield b"\n]}\n"


def sarif(project: Project, records: Iterable[Record]) -> dict[str, Any]:
    """SARIF 2.1.0: each record is a rule, each place that raises it an informational result."""
    rules: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for index, record in enumerate(records):
        rules.append(_rule(record))
        results += _results(record, index)
    driver = {
        "name": "windtunnel catalog", "version": windtunnel.__version__, "semanticVersion": windtunnel.__version__,
        "rules": rules,
    }  # fmt: skip
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"SOURCE": {"description": {"text": f"{project.name} {project.version}"}}},
        "results": results,
        "properties": {"project": project.name, "version": project.version},
    }
    if project.commit is not None:
        run["properties"]["commit"] = project.commit
    return {"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(record: Record) -> dict[str, Any]:
    said = {
        "What it means": record.prose.meaning, "What sets it off": record.prose.trigger,
        "What to do": record.prose.solutions,
    }  # fmt: skip
    meaning = _sentences(record.prose.meaning)
    rule: dict[str, Any] = {
        "id": record.id,
        "name": record.type,
        "shortDescription": {"text": f"{record.type}: {record.text}"},
        "fullDescription": {"text": meaning or record.text},
        "messageStrings": {"default": {"text": _placeholders(record.template)}},
        "help": {
            "text": "\n\n".join(f"{title}: {_sentences(claims)}" for title, claims in said.items() if claims)
            or record.text,
            "markdown": "\n\n".join(f"**{title}.** {_sentences(claims)}" for title, claims in said.items() if claims)
            or record.text,
        },
        "properties": {"kind": record.kind, "language": record.language, "severity": record.severity},
    }
    if record.severity != "not analysed":
        rule["defaultConfiguration"] = {"level": _LEVELS[record.severity]}
    if record.aliases:
        rule["deprecatedIds"] = list(record.aliases)
    return rule


def _sentences(claims: Sequence[Claim]) -> str:
    return " ".join(claim.text for claim in claims)


def _placeholders(template: Iterable[Part]) -> str:
    """Holes as `{0}`, `{1}` …; braces of the words doubled."""
    text, number = "", 0
    for part in template:
        if isinstance(part, str):
            text += part.replace("{", "{{").replace("}", "}}")
        else:
            text += f"{{{number}}}"
            number += 1
    return text


def _results(record: Record, index: int) -> Iterator[dict[str, Any]]:
    values = [f"{{{part.expression}}}" for part in record.template if not isinstance(part, str)]
    for site in record.sites:
        region = {"startLine": site.start, "endLine": site.end}
        place: dict[str, Any] = {
            "physicalLocation": {
                "artifactLocation": {"uri": _uri(site.path), "uriBaseId": "SOURCE"}, "region": region,
            }
        }  # fmt: skip
        if site.function:
            place["logicalLocations"] = [{"fullyQualifiedName": site.function, "kind": "function"}]
        yield {
            "ruleId": record.id, "ruleIndex": index, "kind": "informational", "level": "none",
            "message": {"id": "default", "arguments": values}, "locations": [place],
            "partialFingerprints": {"windtunnelRecord/v1": record.id},
        }  # fmt: skip


def _uri(path: str) -> str:
    from urllib.parse import quote

    return quote(path)


def pages(project: Project, records: Iterable[Record], hits: Sequence[Hit], folder: Path) -> int:
    """Write `index.html`, `page-N.html`, `errors/ID.html`, `errors/ID.json` and `static/`; how many records.

    A folder that was exported before is replaced once all is written. Raises ConfigurationError for another one that is
    not empty.
    """
    refuse_foreign(folder)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        (temporary / "errors").mkdir(parents=True)
        (temporary / "static").mkdir()
        (temporary / _MARK).write_text(f"{project.name} {project.version}\n", "utf-8")
        _write_static(temporary / "static")
        ids = {hit.id for hit in hits}
        _write_lists(project, hits, ids, temporary)
        num_records = 0
        for num_records, record in enumerate(records, 1):  # noqa: B007
            _write_record(record, ids, temporary / "errors")
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return num_records


def refuse_foreign(folder: Path) -> None:
    """Raise ConfigurationError where something else is in the way."""
    if folder.exists() and not folder.is_dir():
        raise ConfigurationError("OUT", f"{folder} is a file", "Name a folder for the pages.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / _MARK).exists():
        raise ConfigurationError("OUT", f"{folder} is not empty", "Name a new folder, or one that was exported before.")


def _write_static(folder: Path) -> None:
    from windtunnel.catalog.web.render import STATIC, static_file

    for name in STATIC:
        (folder / name).write_bytes(static_file(name))


def _write_lists(project: Project, hits: Sequence[Hit], ids: set[str], folder: Path) -> None:
    from windtunnel.catalog.web.browse import Filters, counts
    from windtunnel.catalog.web.links import Exported
    from windtunnel.catalog.web.render import render

    links = Exported(ids, depth=0)
    num_pages = max(1, -(-len(hits) // _PAGE))
    for number in range(1, num_pages + 1):
        text = render(
            "project.html", links, q="", project=project.name, found=project, version=None, versions=[project],
            filters=Filters(), counts=counts((), Filters()), num_hits=len(hits),
            hits=hits[(number - 1) * _PAGE : number * _PAGE], number=number, num_pages=num_pages,
            address=lambda page: links.project(project.name, page=page),
        )  # fmt: skip
        _write(folder / links.project(project.name, page=number), text)


def _write_record(record: Record, ids: set[str], folder: Path) -> None:
    from windtunnel.catalog.web.links import Exported
    from windtunnel.catalog.web.render import render
    from windtunnel.catalog.web.sheet import Sheet

    links = Exported(ids, depth=1)
    version = record.provenance.version
    text = render(
        "record.html", links, q="", project=record.project, record=record, sheet=Sheet(record, every_site=True),
        versions=[version], version=None, current=version,
    )  # fmt: skip
    _write(folder / f"{record.id}.html", text)
    (folder / f"{record.id}.json").write_bytes(msgspec.json.encode(record))


def _write(path: Path, text: str) -> None:
    path.write_text(text, "utf-8", errors="replace")
