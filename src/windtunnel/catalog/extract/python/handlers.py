"""What catches errors in a file, and what it does with them."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from tree_sitter import Node

from windtunnel.catalog.extract.python.calls import Call
from windtunnel.catalog.extract.python.guards import alias_of, types_of
from windtunnel.catalog.extract.python.outline import Branch, Frame, Outline
from windtunnel.catalog.facts import HandlerFacts
from windtunnel.catalog.record import Line

_MOST_LINES = 6
_ENDS = re.compile(rb"(?:sys\.exit|os\._exit|os\.abort|exit|quit|[\w.]*parser\.error)\(")
_ANSWERS = re.compile(
    rb"(?i)\b(?:\w*error_response|\w*errorresponse|jsonresponse|http\w*error|send_error|\w*abort|jsonify|set_status"
    rb"|handle_\w*(?:error|exception)|\w*_error_\w*)\("
)
_TOLD = {"warning": "warns", "warn": "warns", "error": "logs", "exception": "logs", "critical": "logs", "fatal": "logs"}
_LOGS = re.compile(rb"(?i)\b(?:log|logger|logging)\w*\.(?:info|log)\(|traceback\.(?:print_|format_)|\bprint\(")


def handlers_of(outline: Outline, special: list[Call]) -> tuple[HandlerFacts, ...]:
    """Every except clause, and every `contextlib.suppress`."""
    clauses = _Clauses(outline, special)
    found = [facts for frame in outline.frames if frame.kind == "try" for facts in clauses.of_try(frame)]
    found.extend(
        facts
        for call in special
        if call.name == "suppress" and call.receiver in ("", "contextlib")
        for facts in _suppressed(outline, call)
    )
    return tuple(found)


class _Clauses:
    def __init__(self, outline: Outline, special: list[Call]) -> None:
        self._outline = outline
        self._raise_nodes = sorted(outline.found.get("raise", []), key=lambda node: node.start_byte)
        self._raised = [node.start_byte for node in self._raise_nodes]
        self._calls = special
        self._call_starts = [call.node.start_byte for call in special]

    def of_try(self, frame: Frame) -> Iterator[HandlerFacts]:
        outline = self._outline
        branches = frame.branches
        if not branches or branches[0].kind != "try":
            return
        body = branches[0].block
        for branch in branches[1:]:
            if branch.kind != "except" or branch.head is None:
                continue
            clause = branch.head
            shown: Sequence[int]
            does, deciding = self._does(frame, branch, alias_of(outline, clause))
            start = outline.line_at(clause.start_byte)
            end = max(min(outline.line_at(max(branch.block.end_byte - 1, 0)), start + _MOST_LINES - 1), deciding)
            shown = range(start, end + 1)
            if len(shown) > _MOST_LINES:  # what decides stands far below the head
                shown = (*range(start, start + _MOST_LINES - 1), deciding)
            yield HandlerFacts(
                body_start=outline.line_at(body.start_byte),
                body_end=outline.line_at(max(body.end_byte - 1, 0)),
                start=start,
                end=end,
                function=-1 if frame.function is None else frame.function.index,
                catches=types_of(outline, clause),
                does=does,
                lines=tuple(Line(number, outline.line_text(number)) for number in shown),
            )

    def _does(self, frame: Frame, branch: Branch, alias: str) -> tuple[str, int]:
        """What a clause does in the end, and the line that decides it."""
        outline, block = self._outline, branch.block
        start, end = block.start_byte, block.end_byte
        nested: tuple[str, int] | None = None
        for index in range(bisect_left(self._raised, start), bisect_left(self._raised, end)):
            node = self._raise_nodes[index]
            where = outline.frame_at(node.start_byte)
            if where.function is not frame.function:
                continue
            does = ("re-raises" if _is_same(outline, node, alias) else "wraps"), outline.line_at(node.start_byte)
            if where is frame:
                return does
            nested = nested or does
        source = outline.data[start:end]
        if (match := _ENDS.search(source)) is not None and self._is_direct(frame, start + match.start()):
            return "ends the process", outline.line_at(start + match.start())
        told = self._told(start, end)
        if told is not None and told[0] == "logs":
            return told
        if nested is not None:
            return nested
        if b"set_exception(" in source:
            return "re-raises", outline.line_at(start + source.index(b"set_exception("))
        if (match := _ANSWERS.search(source)) is not None:
            return "answers", outline.line_at(start + match.start())
        if told is not None:
            return told
        if (match := _LOGS.search(source)) is not None:
            return "logs", outline.line_at(start + match.start())
        return _left(outline, block)

    def _is_direct(self, frame: Frame, position: int) -> bool:
        return self._outline.frame_at(position) is frame

    def _told(self, start: int, end: int) -> tuple[str, int] | None:
        warned = None
        for index in range(bisect_left(self._call_starts, start), bisect_left(self._call_starts, end)):
            call = self._calls[index]
            does = _TOLD.get(call.name) if call.receiver else None
            line = self._outline.line_at(call.node.start_byte)
            if does == "logs":
                return does, line
            if does is not None:
                warned = warned or (does, line)
        return warned


def _is_same(outline: Outline, node: Node, alias: str) -> bool:
    """Whether a raise passes the caught error on: bare, or of its name."""
    values = [child for child in node.named_children if child.type not in ("comment", "from")]
    if not values:
        return True
    name = outline.source(values[0])
    return bool(alias) and (name == alias or name.startswith(f"{alias}.with_traceback("))


def _left(outline: Outline, block: Node) -> tuple[str, int]:
    for child in reversed(block.named_children):
        if child.type in ("return_statement", "break_statement"):
            return "returns", outline.line_at(child.start_byte)
    return "ignores", outline.line_at(block.start_byte)


def _suppressed(outline: Outline, call: Call) -> Iterator[HandlerFacts]:
    node: Node | None = call.node.parent
    arguments = None if node is None else node.child_by_field_name("arguments")
    while node is not None and node.type != "with_statement":
        if node.type in ("block", "module", "call") and node != call.node.parent:
            return
        node = node.parent
    if node is None or arguments is None:
        return
    start = outline.line_at(node.start_byte)
    body = node.child_by_field_name("body")
    frame = outline.frame_at(node.start_byte)
    yield HandlerFacts(
        body_start=start if body is None else outline.line_at(body.start_byte),
        body_end=outline.line_at(max(node.end_byte - 1, 0)),
        start=start,
        end=start,
        function=-1 if frame.function is None else frame.function.index,
        catches=tuple(outline.one_line(each) for each in arguments.named_children if each.type != "comment"),
        does="ignores",
        lines=(Line(start, outline.line_text(start)),),
    )
