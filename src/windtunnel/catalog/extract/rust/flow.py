"""Calls of Rust, who catches what they give, and every `?` with the error that it passes on."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from tree_sitter import Node

from windtunnel.catalog.extract.rust.operands import error_of
from windtunnel.catalog.extract.rust.reader import RustReader
from windtunnel.catalog.extract.syntax import (
    captures,
    excerpt_of,
    first_line,
    last_line,
    one_line,
    ordered_captures,
    text,
)
from windtunnel.catalog.facts import CallFacts, HandlerFacts, PropagationFacts

_GENERIC_CALLEES = frozenset(("Ok", "Err", "Some", "Box::new", "Vec::new", "String::from", "format"))


def calls_of(reader: RustReader) -> tuple[CallFacts, ...]:
    """Calls by their last name; the receiver is what stands before the dot, or the path before the name."""
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for node in ordered_captures("rust", "(call_expression) @c", reader.root).get("c", ()):
        function = node.child_by_field_name("function")
        if function is None or reader.in_tests(node):
            continue
        if function.type == "field_expression":
            name, receiver = (
                text(function.child_by_field_name("field")),
                one_line(text(function.child_by_field_name("value")), 60),
            )
        else:
            path = re.sub(r"::<.*>$", "", text(function))
            receiver, _, name = path.rpartition("::")
        if name and name not in _GENERIC_CALLEES:
            found[name].append((first_line(node), "" if receiver in ("crate", "super") else receiver))
    return tuple(
        CallFacts(name, tuple(line for line, _ in calls), tuple(receiver for _, receiver in calls))
        for name, calls in found.items()
    )


def imports_of(reader: RustReader) -> tuple[tuple[str, str], ...]:
    """`use` declarations by their local name, and `=Alias` for the error type of a `Result` alias."""
    return (*reader.imports, *_aliases(reader))


def _aliases(reader: RustReader) -> Iterator[tuple[str, str]]:
    for alias in ordered_captures("rust", "(type_item) @t", reader.root).get("t", ()):
        value = one_line(text(alias.child_by_field_name("type")))
        match = re.match(r"(?:\w+::)*Result<[^,]+(?:<.*>)?,\s*(.+)>$", value)
        if match is None:
            match = re.match(r"((?:std::)?(?:io|fmt)|anyhow|eyre)::Result<", value)
            error = f"{match[1]}::Error" if match else ""
        else:
            listed = alias.child_by_field_name("type_parameters")
            defaults = {
                text(each.child_by_field_name("name")): text(each.child_by_field_name("default_type"))
                for each in (listed.named_children if listed is not None else ())
            }
            error = defaults.get(match[1], match[1])  # type Result<T, E = Error>
        if error:
            yield f"={text(alias.child_by_field_name('name'))}", one_line(error)


def propagations_of(reader: RustReader) -> tuple[PropagationFacts, ...]:
    """Every `?` of a function; not those of closures and async blocks, which give what they like."""
    found = []
    for node in ordered_captures("rust", "(try_expression) @t", reader.root).get("t", ()):
        if reader.in_tests(node) or _is_in_closure(node) or not node.named_children:
            continue
        operand = node.named_children[0]
        line, function = first_line(node), reader.function_index(node)
        found.append(PropagationFacts(line, function, one_line(text(operand), 160), error_of(reader, operand)))
    return tuple(found)


def note_results(reader: RustReader) -> None:
    """Note the functions that give a result, whatever stands in them: a `?` elsewhere may be about them."""
    for function in ordered_captures("rust", "(function_item return_type: (_) @r) @f", reader.root).get("f", ()):
        body = function.child_by_field_name("body")
        if body is not None and "Result" in text(function.child_by_field_name("return_type")):
            reader.function_index(body)


def _is_in_closure(node: Node) -> bool:
    parent = node.parent
    while parent is not None and parent.type != "function_item":
        if parent.type in ("closure_expression", "async_block", "try_block", "const_block"):
            return True
        parent = parent.parent
    return False


_DROPPED = """
(call_expression function: (field_expression field: (field_identifier) @m
  (#match? @m "^(ok|unwrap_or|unwrap_or_else|unwrap_or_default|is_ok|is_err)$"))) @c
"""


_RAISES_AGAIN = re.compile(r"^(?:(?:with_)?context|ok_or(?:_else)?|wrap_err(?:_with)?|expect|unwrap)$")


def handlers_of(reader: RustReader) -> tuple[HandlerFacts, ...]:
    """`match` and `if let` on an `Err`, and calls whose result is dropped or replaced."""
    found: list[HandlerFacts] = []
    for node in ordered_captures("rust", "(match_arm) @arm", reader.root).get("arm", ()):
        pattern, match = node.child_by_field_name("pattern"), node.parent.parent if node.parent is not None else None
        caught = _caught(text(pattern))
        if caught is not None and match is not None and not reader.in_tests(node):
            scrutinee = match.child_by_field_name("value")
            found += _handler(reader, scrutinee, node, node.child_by_field_name("value"), caught)
    for node in ordered_captures("rust", "(if_expression condition: (let_condition) @let)", reader.root).get("let", ()):
        caught = _caught(text(node.child_by_field_name("pattern")))
        if caught is not None and node.parent is not None and not reader.in_tests(node):
            found += _handler(
                reader,
                node.child_by_field_name("value"),
                node.parent,
                node.parent.child_by_field_name("consequence"),
                caught,
            )
    for node in ordered_captures("rust", '(let_declaration pattern: (_) @p (#eq? @p "_")) @let', reader.root).get(
        "let", ()
    ):
        found += _handler(reader, node.child_by_field_name("value"), node, None, ())
    for node in ordered_captures("rust", _DROPPED, reader.root).get("c", ()):
        function, around = node.child_by_field_name("function"), node.parent
        goes_on = around is not None and _RAISES_AGAIN.match(text(around.child_by_field_name("field")))
        if function is not None and not goes_on and not reader.in_tests(node):
            found += _handler(reader, function.child_by_field_name("value"), node, None, (), "returns")
    return tuple(found)


def _caught(pattern: str) -> tuple[str, ...] | None:
    """What `Err(…)` takes: types, or everything (empty); None: it is no Err."""
    match = re.match(r"(?:\w+::)*Err\((.*)\)", one_line(pattern))
    if match is None:
        return None
    return tuple(re.findall(r"\b([A-Z]\w*::[A-Z]\w*)", match[1]))


def _handler(
    reader: RustReader, guarded: Node | None, clause: Node, body: Node | None, caught: tuple[str, ...], does: str = ""
) -> Iterator[HandlerFacts]:
    if guarded is None or "(" not in text(guarded) or captures("rust", "(try_expression) @t", guarded):
        return  # what a `?` inside gives leaves the function, and is not caught here
    start, end = first_line(clause), min(last_line(clause), first_line(clause) + 5)
    does = does or (_does(text(body)) if body is not None else "ignores")
    yield HandlerFacts(
        first_line(guarded), last_line(guarded), start, end, reader.function_index(clause), caught, does,
        excerpt_of(reader.lines, [(start, end)]),
    )  # fmt: skip


def _does(body: str) -> str:
    if re.search(r"process::exit\(|\bpanic!", body):
        return "ends the process"
    if re.search(r"\breturn Err\(\s*(?:e|err|error)\b|^Err\(\s*(?:e|err|error)\b", body):
        return "re-raises"
    if re.search(r"\bErr\(|\bbail!|\banyhow!", body):
        return "wraps"
    if re.search(r"\b(?:error|log)!|\beprintln!|\berror\s*!\(", body):
        return "logs"
    if re.search(r"\bwarn!", body):
        return "warns"
    return "returns" if re.search(r"\breturn\b|\bNone\b|\bfalse\b|::default\(\)", body) else "ignores"
