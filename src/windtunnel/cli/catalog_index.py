"""`windtunnel catalog index`: reads the errors of a source tree."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from windtunnel.cli.catalog_flags import GROUP, GROUPS, JSON, STORE, require_reader, store_path
from windtunnel.cli.console import tell_note
from windtunnel.cli.flags import OURS, Flag
from windtunnel.cli.json_output import print_json
from windtunnel.cli.parser import CommandParser, Positional
from windtunnel.cli.values import LIST, NAME, PATH, POSITIVE, URL
from windtunnel.errors import EXIT_OK, ConfigurationError

if TYPE_CHECKING:
    import argparse

    from windtunnel.catalog.gate.explaining import Explained
    from windtunnel.catalog.indexing import Indexed, Progress
    from windtunnel.catalog.source import Source
    from windtunnel.catalog.store import Store

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
    Flag(
        "--explain-with", GROUP, URL, None, "Ask this OpenAI-compatible endpoint to explain records; what it says is "
        "kept only where the lines that it cites bear it out. Its key is OPENAI_API_KEY of the environment.", OURS,
    ),
    Flag("--model", GROUP, NAME, None, "The endpoint's model.", OURS),
    Flag("--explain", GROUP, LIST, None, "Explain these records. Without it: those that nobody has explained.", OURS),
    Flag("--explain-limit", GROUP, POSITIVE, 10, "Explain at most so many.", OURS),
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

    if values.explain_with and not values.model:
        raise ConfigurationError("--explain-with", "no model is named", "Name one of the endpoint's by --model.")
    source = open_source(values.source, python=values.python)
    with Store.open(store_path(values), write=True) as store, _progress() as on_progress:
        indexed = index(source, store, project=values.project, on_progress=on_progress)
        explained = _explain(store, source, indexed.project.name, values) if values.explain_with else None
    if values.json:
        print_json({**_document(indexed), "explained": None if explained is None else vars(explained)})
    else:
        sys.stdout.write(_text(indexed, str(store.path)))
        if explained is not None:
            counts = ", ".join(f"{count} {rule}" for rule, count in sorted(explained.counts.items()))
            told = f"{explained.num_explained} of {explained.num_records} records were explained"
            tell_note(f"{told}; claims: {counts or 'none'}")
            for failure in explained.failures:
                tell_note(failure)
    return EXIT_OK


def _explain(store: Store, source: Source, project: str, values: argparse.Namespace) -> Explained:
    from windtunnel.catalog.gate.explaining import explain_records

    wanted = [each.strip() for each in (values.explain or "").split(",") if each.strip()]
    if not wanted:
        known = set(store.explained_ids(project))
        wanted = [hit.id for hit in store.hits(project) if hit.id not in known]
    return explain_records(store, source, project, wanted[: values.explain_limit], values.explain_with, values.model)


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
