"""Go: error values, sentinels, error types, panics, what is logged at error and above, exits."""

from __future__ import annotations

import re

from windtunnel.catalog.extract import digest_of
from windtunnel.catalog.extract.go.errors import find_error_types
from windtunnel.catalog.extract.go.reader import GoReader
from windtunnel.catalog.extract.go.sites import find_sites
from windtunnel.catalog.extract.paths import is_test_path
from windtunnel.catalog.extract.syntax import ordered_captures, text
from windtunnel.catalog.facts import FileFacts
from windtunnel.catalog.record import Language


def facts_of(path: str, data: bytes, language: Language) -> FileFacts:
    """Find the errors of a Go file."""
    if is_test_path(path, language):  # what a test provokes is not looked for in Go
        return FileFacts(path, language, digest_of(data), data.count(b"\n") + 1, is_test=True)
    reader = GoReader(path, data, language, is_test=False)
    find_error_types(reader)
    find_sites(reader)
    facts = reader.facts()
    return FileFacts(
        facts.path, facts.language, facts.digest, facts.num_lines, facts.is_test, facts.problem, facts.functions,
        facts.classes, facts.raises, imports=_imports(reader),
    )  # fmt: skip


def _imports(reader: GoReader) -> tuple[tuple[str, str], ...]:
    """Local name and path of every import."""
    found = []
    for spec in ordered_captures("go", "(import_spec) @i", reader.root).get("i", ()):
        path = text(spec.child_by_field_name("path")).strip('"`')
        name = text(spec.child_by_field_name("name")) or re.sub(r"/v\d+$", "", path).rpartition("/")[2]
        found.append((name, path))
    return tuple(found)
