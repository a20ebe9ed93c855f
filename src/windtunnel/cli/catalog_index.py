"""`windtunnel catalog index`: reads the errors of a source tree."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from windtunnel.cli.catalog_flags import GROUP, GROUPS, JSON, STORE, print_json, require_reader, store_path
from windtunnel.cli.flags import OURS, Flag
from windtunnel.cli.parser import CommandParser, Positional
from windtunnel.cli.values import NAME, PATH
from windtunnel.errors import EXIT_OK

if TYPE_CHECKING:
    from windtunnel.catalog.indexing import Indexed, Progress

_SUMMARY = """\
Read every error that a source tree can raise into the catalog.

  windtunnel catalog index .                       a folder
  windtunnel catalog index ~/src/engine@v1.2.0     a git repository at a tag or commit; nothing is checked out
  windtunnel catalog index engine-1.2.0.whl        a wheel, sdist, zip or npm package; nothing is unpacked
  windtunnel catalog index pip:vllm --python /opt/vllm/bin/python      an installed package; nothing is downloaded

Python, Rust, C++, Go, TypeScript, JavaScript and Java are read. A second run reads what has changed."""

_FLAGS = (
    Flag(
        "--project", GROUP, NAME, None, "Its name in the catalog, if not the repository's, package's or folder's.", OURS
    ),
    Flag(
        "--python", GROUP, PATH, None, "The interpreter that has the package of pip:NAME, if not windtunnel's.", OURS
    ),
    STORE,
    JSON,
)  # fmt: skip


def parser() -> CommandParser:
    """Of this command's flags."""
    positional = Positional("SOURCE", "", "A folder, REPOSITORY@REF, an archive, or pip:NAME.")
    return CommandParser("catalog index", _SUMMARY, _FLAGS, GROUPS, positional)


def run(arguments: Sequence[str]) -> int:
    """Index and tell; the exit code. Raises errors of `windtunnel.errors`."""
    values = parser().parse(arguments).values
    require_reader()
    from windtunnel.catalog.indexing import index
    from windtunnel.catalog.source import open_source
    from windtunnel.catalog.store import Store

    source = open_source(values.source, python=values.python)
    with Store.open(store_path(values), write=True) as store, _progress() as on_progress:
        indexed = index(source, store, project=values.project, on_progress=on_progress)
    if values.json:
        print_json(_document(indexed))
    else:
        sys.stdout.write(_text(indexed, str(store.path)))
    return EXIT_OK


def _progress() -> AbstractContextManager[Progress]:
    """A bar on a terminal; else nothing."""
    if not sys.stderr.isatty():
        return nullcontext(lambda done, total: None)
    from windtunnel.cli.progress import bar

    return bar("files")


def _document(indexed: Indexed) -> dict[str, object]:
    import msgspec

    counts = {
        "read": indexed.num_read, "added": indexed.num_added, "changed": indexed.num_changed,
        "removed": indexed.num_removed, "aliases": indexed.num_aliases, "kinds": dict(indexed.kinds),
    }  # fmt: skip
    return {"schema": "indexed/1", "project": msgspec.to_builtins(indexed.project), **counts}


def _text(indexed: Indexed, path: str) -> str:
    from windtunnel.catalog.text import problems_text

    project = indexed.project
    languages = ", ".join(f"{count:,} {name}" for name, count in sorted(project.languages.items(), key=lambda p: -p[1]))
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in indexed.kinds.most_common())
    lines = [
        f"{project.name} {project.version}: {project.num_records:,} errors in {project.num_files:,} files, "
        f"{project.num_lines:,} lines",
        f"  {languages or 'none'}",
        f"  {kinds}" if kinds else "",
        f"  {indexed.num_added:,} new, {indexed.num_changed:,} changed, {indexed.num_removed:,} gone, "
        f"{indexed.num_aliases:,} reworded; {indexed.num_read:,} files were parsed",
        f"  in {path}",
    ]
    if project.problems:
        lines += [f"{len(project.problems):,} files could be read in part only:", problems_text(project)]
    return "\n".join(line for line in lines if line) + "\n"
