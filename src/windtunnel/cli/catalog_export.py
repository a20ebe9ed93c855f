"""`windtunnel catalog export`: a project's records as JSON, SARIF, or pages that need no server."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.cli.catalog_flags import GROUP, GROUPS, STORE, open_store, versioned
from windtunnel.cli.console import tell_note
from windtunnel.cli.flags import OURS, Flag
from windtunnel.cli.parser import CommandParser, Positional
from windtunnel.cli.values import NAME
from windtunnel.errors import EXIT_OK, ConfigurationError, MissingExtra

if TYPE_CHECKING:
    from windtunnel.catalog.store import Store

_SUMMARY = """\
Write all records of a project.

  windtunnel catalog export vllm --format html vllm-errors/
  windtunnel catalog export vllm@0.33.0 --format jsonl - | jq .type

json: one document. jsonl: a record in each line. sarif: SARIF 2.1.0, each record a rule. html: a folder of pages that
need no server; begin at its index.html. OUT is a file (- for stdout), of html a folder."""

_FORMATS = ("json", "jsonl", "html", "sarif")
_FLAGS = (Flag("--format", GROUP, NAME, "json", "What is written.", OURS, choices=_FORMATS), STORE)


def parser() -> CommandParser:
    """Of this command's flags."""
    positional = Positional("PROJECT OUT", "+", "PROJECT or PROJECT@VERSION, and where to write.")
    return CommandParser("catalog export", _SUMMARY, _FLAGS, GROUPS, positional)


def run(arguments: Sequence[str]) -> int:
    """Write the file or folder; the exit code."""
    values = parser().parse(arguments).values
    given = getattr(values, "project out")
    if len(given) != 2:
        raise ConfigurationError("catalog export", f"{len(given)} arguments", "Name a project, then where to write.")
    with open_store(values) as store:
        name, version = _snapshot(store, given[0])
        if values.format == "html":
            _write_pages(store, name, version, given[1])
        elif given[1] == "-":
            for chunk in _chunks(store, name, version, values.format):
                sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
        else:
            _write_file(Path(given[1]), _chunks(store, name, version, values.format))
    return EXIT_OK


def _snapshot(store: Store, text: str) -> tuple[str, str | None]:
    """A project may have an at sign in its name."""
    known = {project.name for project in store.projects()}
    name, version = (text, None) if text in known else versioned(text)
    store.project(name, version)  # refuses what it does not have
    return name, version


def _chunks(store: Store, name: str, version: str | None, kind: str) -> Iterable[bytes]:
    from windtunnel.catalog.export import json_document, json_lines, sarif

    records = store.records(name, version)
    if kind == "jsonl":
        return json_lines(records)
    project = store.project(name, version)
    if kind == "json":
        return json_document(project, records)
    import msgspec

    return (msgspec.json.format(msgspec.json.encode(sarif(project, records)), indent=1), b"\n")


def _write_file(path: Path, chunks: Iterable[bytes]) -> None:
    """All of it, or what was there before."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as stream:
            stream.writelines(chunks)
        os.replace(temporary, path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def _write_pages(store: Store, name: str, version: str | None, out: str) -> None:
    try:
        import jinja2  # noqa: F401
    except ImportError as error:
        raise MissingExtra("writing pages", "jinja2", "catalog") from error
    from windtunnel.catalog.export import pages

    folder = Path(os.path.abspath(out))
    if out == "-":
        raise ConfigurationError("OUT", "pages can't be written to stdout", "Name a folder.")
    try:
        num_records = pages(
            store.project(name, version), store.records(name, version), store.hits(name, version), folder
        )
    except OSError as error:
        raise _unwritable(folder, error) from error
    tell_note(f"{num_records:,} errors: {folder / 'index.html'}")


def _unwritable(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError("OUT", f"{path} can't be written: {error.strerror or error}", "Name another place.")
