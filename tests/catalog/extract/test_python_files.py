"""Python: whole files, bad ones, and the standard library held against Python's own parser."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from windtunnel.catalog.extract import extract
from windtunnel.catalog.template import text_of

LIBRARY = Path(sysconfig.get_path("stdlib"))


def raised_and_asserted(data: bytes) -> tuple[set[tuple[int, int]], set[tuple[int, int]], set[tuple[int, int]]]:
    """Lines of the raises that make an error, of those that may pass one on, and of the assertions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(data)
    made: set[tuple[int, int]] = set()
    passed: set[tuple[int, int]] = set()
    asserted: set[tuple[int, int]] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            asserted.add((node.lineno, node.end_lineno or 0))
        elif isinstance(node, ast.Raise) and node.exc is not None:
            (passed if may_pass_on(node.exc) else made).add((node.lineno, node.end_lineno or 0))
    return made, passed, asserted


def may_pass_on(error: ast.expr) -> bool:
    """Whether an expression reads like a variable or attribute, not like a class or a call of one."""
    if isinstance(error, ast.Call) and isinstance(error.func, ast.Attribute):
        if error.func.attr == "with_traceback":
            return may_pass_on(error.func.value)
        return error.func.attr == "exception"
    name = getattr(error, "id", None) or getattr(error, "attr", None)
    return isinstance(error, ast.Subscript) or (name is not None and name.lstrip("_")[:1].islower())


def differences(path: Path) -> Iterator[str]:
    """Where extraction and Python's own parser disagree about a file."""
    data = path.read_bytes()
    facts = extract("module.py", data)
    made, passed, asserted = raised_and_asserted(data)
    found = {(site.start, site.end) for site in facts.raises if site.statement.startswith("raise")}
    assertions = {(site.start, site.end) for site in facts.raises if site.kind == "assert"}
    for lines in made - found:
        yield f"{path}: the raise at {lines} is not found"
    for lines in found - made - passed:
        yield f"{path}: there is no raise at {lines}"
    for lines in asserted ^ assertions:
        yield f"{path}: the assertion at {lines}"


def test_every_raise_and_assertion_of_the_standard_library_is_found_and_no_other() -> None:
    paths = [*sorted(LIBRARY.glob("*.py"))[::2], *(LIBRARY / "asyncio").glob("*.py"), *(LIBRARY / "email").glob("*.py")]
    assert len(paths) > 100
    assert [difference for path in paths for difference in differences(path)] == []


@pytest.mark.long
def test_every_raise_and_assertion_of_the_whole_standard_library_with_its_tests_is_found_and_no_other() -> None:
    paths = [path for path in sorted(LIBRARY.rglob("*.py")) if "site-packages" not in path.parts]
    wrong: list[str] = []
    unreadable: list[Path] = []
    for path in paths:
        try:
            wrong.extend(differences(path))
        except (SyntaxError, ValueError):  # the tests of Python's own parser: extraction has read them all the same
            unreadable.append(path)
    assert len(paths) > 1000
    assert 0 < len(unreadable) < 100
    assert wrong == []


@pytest.mark.parametrize(
    ("data", "problem", "templates"),
    [
        (b"", None, []),
        (b"\xef\xbb\xbfraise E('a')", None, ["a"]),
        (b"if x:\r\n raise E('a'\r\n  'b')\r\n", None, ["ab"]),
        (b"x = 1\rraise E('a')\r", None, ["a"]),
        ("# coding: latin-1\nraise E('ä')".encode("latin-1"), None, ["ä"]),
        ("raise E('a')\nraise E('ä')".encode("latin-1"), "line 2 is not UTF-8", ["a"]),
        (b"# coding: nosuch\nraise E('a')", "can't be decoded", ["a"]),
        (b"raise E('a')\nx = '\0'\n", "line 2 holds a null byte", ["a"]),
        ("raise E('a')".encode("utf-16"), "line 1 is not UTF-8", []),
        (b"raise E('a')\nx = = 2\nraise E('b')\n", "line 2 can't be read", ["a", "b"]),
        (b"raise E, 'a %s' % x\ntry: f()\nexcept A, e:\n raise e\n", None, ["a {x}"]),
        (bytes(range(256)) * 20, "is not UTF-8", []),
    ],
)
def test_a_file_that_is_not_as_it_should_be_gives_what_can_be_read_and_names_the_line(
    data: bytes, problem: str | None, templates: list[str]
) -> None:
    facts = extract("a.py", data)
    assert (facts.problem is None) == (problem is None)
    assert (problem or "") in (facts.problem or "")
    found = [text_of(site.template) for site in facts.raises if site.template is not None]
    assert [each for each in found if "�" not in each] == templates


@pytest.mark.parametrize(
    ("data", "template"),
    [
        (b"raise E(" + b"(" * 10_000 + b"'a'" + b")" * 10_000 + b")", "a"),
        (b"raise E(" + b"\n + ".join([b"'a'"] * 10_000) + b")", "a" * 10_000),
        (b"raise E('a' if x else " * 1 + b"'b' if x else\n" * 4_000 + b"c)", "a"),
        (b"raise E('a', x" + b".y()" * 5_000 + b")", "a"),
        (b"if x: pass\n" + b"elif y: pass\n" * 2_000 + b"else: raise E('a')\n", "a"),
        (b"def f():\n m = 'a'\n" + b" m = g(m)\n" * 2_000 + b" raise E('a', m)\n", "a"),
    ],
    ids=["parentheses", "sum", "conditions", "calls", "branches", "assignments"],
)
def test_code_that_is_nested_without_measure_is_read(data: bytes, template: str) -> None:
    assert sys.getrecursionlimit() < 4_000
    site = extract("a.py", data).raises[0]
    assert text_of(site.template or ()) == template


def test_a_file_with_more_levels_than_can_be_parsed_is_told_and_left_out() -> None:
    deep = b"".join(b" " * level + b"if x:\n" for level in range(260)) + b" " * 260 + b"raise E('a')\n"
    facts = extract("a.py", deep)
    assert facts.problem == "line 251 is nested too deeply"
    assert (facts.num_lines, facts.raises) == (261, ())
    wide = b"x = f(a,\n" + b" " * 600 + b"b)\nraise E('a')\n"
    assert extract("a.py", wide).problem is None


_HASHED = """
import hashlib, sys
from pathlib import Path
import msgspec
from windtunnel.catalog.extract import extract
print(hashlib.md5(b"".join(msgspec.msgpack.encode(extract(p, Path(p).read_bytes())) for p in sys.argv[1:])).hexdigest())
"""


def test_a_file_has_the_same_facts_in_every_process() -> None:
    paths = [str(LIBRARY / name) for name in ("subprocess.py", "asyncio/base_events.py", "tarfile.py", "ssl.py")]
    command = [sys.executable, "-c", _HASHED, *paths]
    found = {
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1
