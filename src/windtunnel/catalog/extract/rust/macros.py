"""Macros of Rust that make errors, panic, assert, or log."""

from __future__ import annotations

import re

from tree_sitter import Node

from windtunnel.catalog.extract.braces import around
from windtunnel.catalog.extract.rust.errors import formatted, pieces_of
from windtunnel.catalog.extract.rust.reader import RustReader
from windtunnel.catalog.extract.syntax import first_line, last_line, one_line, text
from windtunnel.catalog.record import Guard
from windtunnel.catalog.template import Hole, Part, says_something

_BAILS = {"bail": "bail", "anyhow": "bail", "eyre": "bail", "ensure": "bail"}
_PANICS = frozenset(("panic", "unreachable", "todo", "unimplemented"))
_ASSERTS = {"assert": "", "assert_eq": "==", "assert_ne": "!=", "debug_assert": "", "debug_assert_eq": "==",
            "debug_assert_ne": "!="}  # fmt: skip
_MADE = re.compile(r"((?:\w+::)*[A-Z]\w*(?:::[A-Z]\w*)?)\s*(?:\((.*)\))?$", re.DOTALL)


def macro_site(reader: RustReader, node: Node) -> None:
    """Note what a macro raises or tells: `bail!`, `ensure!`, `panic!`, `assert!`, `error!` and their like."""
    path = text(node.child_by_field_name("macro"))
    name = path.rpartition("::")[2]
    tree = next((child for child in node.named_children if child.type == "token_tree"), None)
    source = text(tree)[1:-1] if tree is not None else ""
    if name in _BAILS and not (name in ("anyhow", "eyre") and _is_inside_err(node)):
        _bail(reader, node, name, source)
    elif name in _PANICS:
        template = formatted(source) if source else None
        reader.add("panic", node, f"{name}!", template, otherwise=("statement", one_line(text(node))))
    elif name in _ASSERTS:
        _assert(reader, node, name, source)
    elif name == "error" or (name == "event" and "ERROR" in source[:40]):
        template = _logged(source)
        if says_something(template):
            reader.add("log", node, f"{path}!", template)


def _logged(source: str) -> tuple[Part, ...] | None:
    """The message of a log, after its target and fields."""
    pieces = pieces_of(source)
    first = next((i for i, piece in enumerate(pieces) if re.match(r'r?#*"', piece)), None)
    return None if first is None else formatted(", ".join(pieces[first:]))


def _is_inside_err(node: Node) -> bool:
    """`Err(anyhow!(…))` is one site."""
    parent = around(node, ("call_expression", "block", "closure_expression"))
    function = parent.child_by_field_name("function") if parent is not None else None
    if function is None:
        return False
    return text(function) == "Err" or (
        function.type == "field_expression" and text(function).endswith(("ok_or", "map_err"))
    )


def _bail(reader: RustReader, node: Node, name: str, source: str) -> None:
    if name != "ensure":
        made = _MADE.match(source.strip())
        if made:
            reader.add("bail", node, made[1], None, arguments=_given(made[2]))
        elif (template := formatted(source)) is not None:
            reader.add("bail", node, f"{name}!", template)
        return
    condition, *rest = pieces_of(source) or [""]
    words = one_line(condition)
    guard = Guard(words, False, "assert", first_line(node), first_line(node))
    message = formatted(", ".join(rest)) if rest else None
    made = _MADE.match(rest[0]) if rest and message is None else None
    if made:
        reader.add("bail", node, made[1], None, guards=(guard,), arguments=_given(made[2]))
    else:
        reader.add("bail", node, "ensure!", message, guards=(guard,), otherwise=("condition", words))


def _given(source: str | None) -> tuple[tuple[str, tuple[Part, ...]], ...]:
    """Arguments within a macro, which the grammar does not read: texts, `format!`, and what else there is."""
    found: list[tuple[str, tuple[Part, ...]]] = []
    for piece in pieces_of(source or ""):
        is_text = re.match(r'(?:format!\s*\(|String::from\()?\s*r?#*"', piece)
        parts = formatted(re.sub(r"^(?:format!\s*\(|String::from\()", "", piece)) if is_text else None
        found.append(("", parts or (Hole(one_line(piece, 80)),)))
    return tuple(found)


def _assert(reader: RustReader, node: Node, name: str, source: str) -> None:
    pieces = pieces_of(source)
    arguments = [one_line(piece) for piece in pieces]
    operator = _ASSERTS[name]
    num_operands = 2 if operator else 1
    if len(arguments) < num_operands:
        return
    condition = f" {operator} ".join(arguments[:num_operands])
    first, last = first_line(node), last_line(node)
    guards: tuple[Guard, ...] = (Guard(condition, False, "assert", first, last),)
    if name.startswith("debug_"):
        guards = (Guard("debug_assertions", True, "cfg", first, last), *guards)
    message = formatted(", ".join(pieces[num_operands:])) if len(pieces) > num_operands else None
    reader.add("assert", node, f"{name}!", message, guards=guards, otherwise=("condition", condition))
