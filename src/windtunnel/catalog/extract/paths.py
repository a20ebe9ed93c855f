"""Which files are tests, by their names: they tell what provokes an error, and raise none that a user sees."""

from __future__ import annotations

import re

from windtunnel.catalog.record import Language

_FOLDERS = frozenset(("test", "tests", "__tests__", "benches", "testdata", "e2e"))
_SPECS = frozenset(("spec", "specs"))
"""Tests in JavaScript; elsewhere code that is about a specification."""
_JAVA_TESTS = re.compile(r"(?:^|/)src/\w*[tT]est\w*/")
_NAMES: dict[Language, re.Pattern[str]] = {
    "python": re.compile(r"^(?:test_.*|.*_test|conftest)\.py$"),
    "rust": re.compile(r"^(?:tests?|.*_tests?)\.rs$"),
    "cpp": re.compile(r"^(?:test_.*|.*[_.-](?:unit)?tests?)\.\w+$"),
    "go": re.compile(r".*_test\.go$"),
    "typescript": re.compile(r".*[.-](?:test|spec)\.[cm]?[tj]sx?$"),
    "javascript": re.compile(r".*[.-](?:test|spec)\.[cm]?[tj]sx?$"),
    "java": re.compile(r"^(?:Test[A-Z].*|.*(?:Test|Tests|IT))\.java$"),
}


def is_test_path(path: str, language: Language) -> bool:
    """Whether a file within a source belongs to its tests. Helpers for tests that a package ships are none."""
    *folders, name = path.split("/")
    known = _FOLDERS | _SPECS if language in ("typescript", "javascript") else _FOLDERS
    if any(folder.lower() in known for folder in folders):
        return True
    return bool(_NAMES[language].match(name)) or bool(_JAVA_TESTS.search(path))
