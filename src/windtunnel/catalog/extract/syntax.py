"""What every language's extraction needs of tree-sitter: parsers, captures, text, one-line forms, excerpts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib import import_module

from tree_sitter import Language as Grammar
from tree_sitter import Node, Parser, Query, QueryCursor

from windtunnel.catalog.record import Line

MOST_STATEMENT_CHARACTERS = 400


@cache
def grammar(name: str) -> Grammar:
    """Of `python`, `rust`, `cpp`, `go`, `typescript`, `tsx`, `javascript`, `java`."""
    if name in ("typescript", "tsx"):
        return Grammar(getattr(import_module("tree_sitter_typescript"), f"language_{name}")())
    return Grammar(import_module(f"tree_sitter_{name}").language())


@cache
def _parser(name: str) -> Parser:
    return Parser(grammar(name))


@cache
def _query(name: str, pattern: str) -> Query:
    return Query(grammar(name), pattern)


def parse(name: str, data: bytes) -> Node:
    """The root of the file's tree. Broken code gives a tree with error nodes."""
    return _parser(name).parse(data).root_node


def captures(name: str, pattern: str, node: Node) -> dict[str, list[Node]]:
    """Nodes below `node` by capture name, in no order."""
    return QueryCursor(_query(name, pattern)).captures(node)


def ordered_captures(name: str, pattern: str, node: Node) -> dict[str, list[Node]]:
    """Nodes below `node` by capture name, in the order of the file."""
    found = captures(name, pattern, node)
    return {key: sorted(nodes, key=lambda each: each.start_byte) for key, nodes in found.items()}


def text(node: Node | None) -> str:
    """The node's source text; empty for none."""
    return "" if node is None or node.text is None else node.text.decode("utf-8", "replace")


def one_line(source: str, most: int = MOST_STATEMENT_CHARACTERS) -> str:
    """The text with each run of white space as one space, cut to `most` characters."""
    line = re.sub(r"\s+", " ", source).strip()
    return line if len(line) <= most else line[: most - 1] + "…"


def first_line(node: Node) -> int:
    """Its first line, counted from 1."""
    return node.start_point.row + 1


def last_line(node: Node) -> int:
    """Its last line, counted from 1; of a node that ends with a newline, the line before."""
    end = node.end_point
    return end.row if end.column == 0 and end.row > node.start_point.row else end.row + 1


def excerpt_of(lines: list[bytes], ranges: Iterable[tuple[int, int]]) -> tuple[Line, ...]:
    """The lines of the ranges (first and last, from 1), in order and each once."""
    numbers = sorted({number for start, end in ranges for number in range(start, end + 1)})
    return tuple(
        Line(number, lines[number - 1].decode("utf-8", "replace").rstrip())
        for number in numbers
        if 1 <= number <= len(lines)
    )
