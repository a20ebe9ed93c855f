"""Python: what a file raises, asserts, exits with and logs; its handlers, calls, classes and tests."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable

from tree_sitter import Node

from windtunnel.catalog.extract import digest_of
from windtunnel.catalog.extract.paths import is_test_path
from windtunnel.catalog.extract.python.calls import calls_of
from windtunnel.catalog.extract.python.classes import Classes
from windtunnel.catalog.extract.python.constructed import names_from_error_modules
from windtunnel.catalog.extract.python.definitions import functions_of, imports_of
from windtunnel.catalog.extract.python.expectations import expectations_of
from windtunnel.catalog.extract.python.handlers import handlers_of
from windtunnel.catalog.extract.python.outline import Outline
from windtunnel.catalog.extract.python.sites import Sites
from windtunnel.catalog.extract.syntax import first_line, parse
from windtunnel.catalog.facts import CallFacts, ClassFacts, FileFacts, FunctionFacts, HandlerFacts, RaiseFacts
from windtunnel.catalog.record import Language

_CODING = re.compile(rb"\A(?:[ \t\f]*(?:#[^\n]*)?\n)?[ \t\f]*#[^\n]*?coding[:=][ \t]*([-\w.]+)")


def facts_of(path: str, data: bytes, language: Language) -> FileFacts:
    """Everything found in one file. Bad code gives facts of what can be read, and a problem that names the line."""
    source, problem = _decoded(data)
    num_lines = source.count(b"\n") + (bool(source) and not source.endswith(b"\n"))
    if (line := _too_deep_at(source)) is not None:
        problem, source = f"line {line} is nested too deeply", b""
    root = parse("python", source)
    if problem is None and root.has_error:
        problem = f"line {_first_error(root)} can't be read as Python 3; the lines around it may be read in part only"
    outline = Outline(source, root)
    is_test = is_test_path(path, language)
    imports = imports_of(outline, path)
    calls, special = calls_of(outline, names_from_error_modules(imports))
    raises = () if is_test else Sites(outline, (name for name, _ in imports)).facts(special)
    raised: dict[int, set[str]] = {}
    for each in raises:
        raised.setdefault(each.function, set()).add(each.type)
    functions = functions_of(outline, raised, is_test)
    classes = () if is_test else Classes(outline, special).facts()
    handlers = () if is_test else handlers_of(outline, special)
    used = _used(calls, functions, classes, raises, handlers)
    expectations = expectations_of(outline, special) if is_test else ()
    outline.release()
    return FileFacts(
        path=path,
        language=language,
        digest=digest_of(data),
        num_lines=num_lines,
        is_test=is_test,
        problem=problem,
        functions=functions,
        classes=classes,
        raises=raises,
        handlers=handlers,
        calls=() if is_test else calls,
        expectations=expectations,
        imports=tuple(pair for pair in imports if is_test or pair[0] in used),
    )


_WORD = re.compile(r"[^\W\d]\w*")


def _used(
    calls: Iterable[CallFacts],
    functions: Iterable[FunctionFacts],
    classes: Iterable[ClassFacts],
    raises: Iterable[RaiseFacts],
    handlers: Iterable[HandlerFacts],
) -> set[str]:
    """The names by which the facts speak of other files: of what is called, raised, caught, inherited or annotated."""
    used = {receiver.partition(".")[0] for call in calls for receiver in call.receivers}
    used.update(call.name for call in calls if "" in call.receivers)
    types = {type_ for function in functions for _, type_ in function.parameters}
    types.update(type_ for each in classes for type_ in (*each.bases, *(type_ for _, type_ in each.attributes)))
    types.update(type_ for handler in handlers for type_ in handler.catches)
    types.update(each.type for each in raises)
    return used.union(*map(_WORD.findall, types))


def _decoded(data: bytes) -> tuple[bytes, str | None]:
    """The file in UTF-8 with `\\n` at the ends of lines, and what is wrong with its bytes."""
    source = data.removeprefix(codecs.BOM_UTF8)
    problem = None
    coding = _CODING.match(source)
    if coding is not None and coding[1].lower() not in (b"utf-8", b"utf8", b"utf-8-sig"):
        try:
            source = source.decode(coding[1].decode("ascii")).encode()
        except (LookupError, UnicodeError) as error:
            problem = f"can't be decoded: {error}"
    else:
        try:
            source.decode()
        except UnicodeDecodeError as error:
            problem = f"line {source.count(bytes([10]), 0, error.start) + 1} is not UTF-8"
    if b"\0" in source:
        problem = problem or f"line {source.count(bytes([10]), 0, source.index(0)) + 1} holds a null byte"
    if b"\r" in source:
        source = source.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return source, problem


_MOST_LEVELS = 250
"""Python itself allows 100. The grammar's scanner writes over the end of a buffer at 511."""
_INDENTED = re.compile(rb"\n[ \t\f]{%d}" % _MOST_LEVELS)


def _too_deep_at(source: bytes) -> int | None:
    """The line whose indentation has more levels than can be parsed."""
    if _INDENTED.search(source) is None:
        return None
    levels = [0]
    for number, line in enumerate(source.split(b"\n"), 1):
        width = len(line) - len(line.lstrip(b" \t\f"))
        if width == len(line):
            continue
        while width < levels[-1]:
            levels.pop()
        if width > levels[-1]:
            levels.append(width)
            if len(levels) > _MOST_LEVELS:
                return number
    return None


def _first_error(root: Node) -> int:
    """The line of the first thing that is not Python: the innermost one, as an error may take in much that is."""
    node = root
    while following := next((child for child in node.children if child.has_error or child.is_missing), None):
        node = following
    return first_line(node)
