"""One walk over a file's tree: its statements that hold others as nested frames, its sites and calls as flat lists.

Walking in Python would cost more than parsing does, so a single query finds all that matters; what encloses what
follows from byte ranges. Nodes between are only looked at around what was found.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

from tree_sitter import Node

from windtunnel.catalog.extract.syntax import captures, ordered_captures

_FRAMES = ("function", "class", "if", "while", "for", "try", "match")

QUERY = """
(function_definition) @function
(class_definition) @class
(if_statement) @if
(while_statement) @while
(for_statement) @for
(try_statement) @try
(match_statement) @match
(raise_statement) @raise
(assert_statement) @assert
(call function: [(identifier) (attribute)] @call)
(assignment left: (attribute) @attribute)
[(import_statement) (import_from_statement)] @import
"""


_AFTER_OPENING = re.compile(rb"([(\[{])\s*\n\s*")
_BEFORE_CLOSING = re.compile(rb",?\s*\n\s*([)\]}])")


class Branch(NamedTuple):
    """One of the blocks that a statement chooses between."""

    kind: str
    """`if`, `elif`, `else`, `while`, `for`, `try`, `except`, `finally`, `case`, `body`."""
    head: Node | None
    """The condition of an `if`, `elif` or `while`; the clause of the others; the statement itself of a `for`."""
    block: Node


class Frame:
    """A statement that holds statements; the outermost one is the file."""

    __slots__ = (
        "_branches", "cache", "children", "end", "function", "index", "kind", "name", "node", "owner", "parent",
        "qualified", "start",
    )  # fmt: skip

    def __init__(self, kind: str, node: Node, start: int, end: int, parent: Frame | None) -> None:
        self.kind = kind
        self.node = node
        self.start = start
        self.end = end
        self.parent = parent
        self.function: Frame | None = None
        """The innermost function around what it holds: itself, of a function."""
        self.children: list[Frame] = []
        """Statements right in it, in order."""
        self.index = -1
        """Of a function, in `Outline.functions`; of a class, in `Outline.classes`."""
        self.name = self.qualified = ""
        """Of a function or class; qualified with those of the classes and functions around it."""
        self.owner: Frame | None = None
        """Of a function or class: the class right around it."""
        self.cache: dict[int | None, Any] = {}
        """What was found out of its branches before, for `guards`."""
        self._branches: tuple[Branch, ...] | None = None

    @property
    def branches(self) -> tuple[Branch, ...]:
        """Its blocks, in order."""
        if self._branches is None:
            self._branches = tuple(_branches_of(self))
        return self._branches

    def branch_at(self, position: int) -> int | None:
        """Index of the block that holds the position; None: it lies in a head."""
        for index, branch in enumerate(self.branches):
            if branch.block.start_byte <= position < branch.block.end_byte:
                return index
        return None

    def chain(self) -> list[Frame]:
        """The frames from the innermost function (left out), or the file, to this one (included): outermost first."""
        chain = []
        frame: Frame | None = self
        while frame is not None and frame.kind != "function":
            chain.append(frame)
            frame = frame.parent
        return chain[::-1]


def _branches_of(frame: Frame) -> Iterator[Branch]:
    node, kind = frame.node, frame.kind
    if kind in ("module", "function", "class"):
        yield Branch("body", None, node.child_by_field_name("body") or node)
    elif kind == "match":
        body = node.child_by_field_name("body")
        for clause in () if body is None else body.children_by_field_name("alternative"):
            yield from _branch("case", clause, clause.child_by_field_name("consequence"))
    else:
        head = node if kind == "for" else node.child_by_field_name("condition")
        yield from _branch(kind, head, node.child_by_field_name("consequence" if kind == "if" else "body"))
        for clause in node.named_children:
            word, _, clause_ = clause.type.partition("_")
            if word == "elif":
                condition = clause.child_by_field_name("condition")
                yield from _branch(word, condition, clause.child_by_field_name("consequence"))
            elif clause_ in ("clause", "group_clause") and word in ("else", "except", "finally"):
                yield from _branch(word, clause, _last_block(clause))


def _branch(kind: str, head: Node | None, block: Node | None) -> Iterator[Branch]:
    if block is not None:
        yield Branch(kind, head, block)


def _last_block(clause: Node) -> Node | None:
    for child in reversed(clause.named_children):
        if child.type == "block":
            return child
    return None


class Outline:
    """What the walk found in a file."""

    def __init__(self, data: bytes, root: Node) -> None:
        """`data`: UTF-8 with `\\n` at the ends of lines; `root`: its tree."""
        self.data = data
        self.root = root
        self.found = captures("python", QUERY, root)
        self.top = Frame("module", root, 0, len(data) + 1, None)
        self.frames: list[Frame] = [self.top]
        self.functions: list[Frame] = []
        self.classes: list[Frame] = []
        self._texts: dict[int, str] = {}
        self.parameters: dict[int, dict[str, str]] = {}
        """Of functions, by index, as far as they were looked at: names and annotations."""
        self._nest()
        self._starts = [frame.start for frame in self.frames]

    def _nest(self) -> None:
        found = [
            (node.start_byte, -node.end_byte, number, kind, node)
            for number, kind in enumerate(_FRAMES)
            for node in self.found.get(kind, ())
        ]
        found.sort(key=lambda entry: entry[:3])
        current = self.top
        for start, minus_end, _, kind, node in found:
            while start >= current.end:
                assert current.parent is not None
                current = current.parent
            frame = Frame(kind, node, start, -minus_end, current)
            frame.function = current.function
            current.children.append(frame)
            if kind == "function" or kind == "class":
                self._name(frame)
            self.frames.append(frame)
            current = frame

    def _name(self, frame: Frame) -> None:
        name = frame.node.child_by_field_name("name")
        frame.name = frame.qualified = "" if name is None else self.source(name)
        outer = frame.parent
        while outer is not None and not outer.qualified:
            outer = outer.parent
        if outer is not None:
            frame.qualified = f"{outer.qualified}.{frame.name}"
            frame.owner = outer if outer.kind == "class" else None
        known = self.functions if frame.kind == "function" else self.classes
        frame.index = len(known)
        known.append(frame)
        if frame.kind == "function":
            frame.function = frame

    def release(self) -> None:
        """Break the cycles of the frames: the tree is freed now, and not when the collector comes by."""
        for frame in self.frames:
            frame.parent = frame.function = frame.owner = None

    def source(self, node: Node) -> str:
        """The node's text."""
        return self.data[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def frame_at(self, position: int) -> Frame:
        """The innermost frame that holds the position."""
        frame = self.frames[bisect_right(self._starts, position) - 1]
        while position >= frame.end:
            assert frame.parent is not None
            frame = frame.parent
        return frame

    @cached_property
    def line_starts(self) -> list[int]:
        """Where each line begins."""
        return [0, *accumulate(map(len, self.data.splitlines(keepends=True)))]

    def line_at(self, position: int) -> int:
        """The line of a position, counted from 1."""
        return bisect_right(self.line_starts, position)

    def line_text(self, number: int) -> str:
        """A line, without white space at its end."""
        text = self._texts.get(number)
        if text is None:
            starts = self.line_starts
            end = starts[number] if number < len(starts) else len(self.data)
            text = self._texts[number] = self.data[starts[number - 1] : end].decode("utf-8", "replace").rstrip()
        return text

    def line_before(self, position: int) -> str:
        """What stands in a line before the position."""
        start = self.line_starts[self.line_at(position) - 1]
        return self.data[start:position].decode("utf-8", "replace").rstrip()

    def one_line(self, node: Node, most: int = 400) -> str:
        """The node's text on one line, without comments, cut to `most` characters."""
        raw = self.data[node.start_byte : node.end_byte]
        if b"\n" in raw:
            raw = self._joined(node, raw)
        line = raw.decode("utf-8", "replace").strip()
        return line if len(line) <= most else line[: most - 1] + "…"

    def _joined(self, node: Node, raw: bytes) -> bytes:
        if b"#" in raw:
            offset, position, kept = node.start_byte, 0, []
            for comment in ordered_captures("python", "(comment) @c", node).get("c", ()):
                kept.append(raw[position : comment.start_byte - offset])
                position = comment.end_byte - offset
            raw = b"".join((*kept, raw[position:]))
        raw = _AFTER_OPENING.sub(rb"\1", raw.replace(b"\\\n", b" "))
        return b" ".join(_BEFORE_CLOSING.sub(rb"\1", raw).split())
