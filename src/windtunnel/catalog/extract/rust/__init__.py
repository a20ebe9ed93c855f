"""Rust: error types, where they are made, panics, logs, `?`, calls, and who catches."""

from __future__ import annotations

from windtunnel.catalog.extract.braces import FileReader
from windtunnel.catalog.extract.paths import is_test_path
from windtunnel.catalog.extract.rust.errors import classes_of
from windtunnel.catalog.extract.rust.flow import calls_of, handlers_of, imports_of, note_results, propagations_of
from windtunnel.catalog.extract.rust.reader import RustReader
from windtunnel.catalog.extract.rust.sites import find_sites
from windtunnel.catalog.extract.rust.tests import expectations_of
from windtunnel.catalog.facts import FileFacts
from windtunnel.catalog.record import Language

__all__ = ["FileReader", "facts_of"]


def facts_of(path: str, data: bytes, language: Language) -> FileFacts:
    """Find the errors of a Rust file. What stands under `#[cfg(test)]` belongs to its tests."""
    reader = RustReader(path, data, language, is_test_path(path, language))
    reader.classes += classes_of(reader)
    if not reader.is_test:
        find_sites(reader)
    calls = () if reader.is_test else calls_of(reader)
    handlers = () if reader.is_test else handlers_of(reader)
    propagations = () if reader.is_test else propagations_of(reader)
    if not reader.is_test:
        note_results(reader)
    expectations = expectations_of(reader)
    facts = reader.facts()
    return FileFacts(
        facts.path, facts.language, facts.digest, facts.num_lines, facts.is_test, facts.problem, facts.functions,
        facts.classes, facts.raises, handlers, calls, expectations, propagations, imports_of(reader),
    )  # fmt: skip
