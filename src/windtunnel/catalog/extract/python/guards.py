"""Conditions on the way to a statement, with polarity, outermost first; only what lies in its function."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterator
from typing import NamedTuple

from tree_sitter import Node

from windtunnel.catalog.extract.python.outline import Branch, Frame, Outline
from windtunnel.catalog.extract.python.variables import bindings
from windtunnel.catalog.record import Cause, Guard

_EXITS = ("return_statement", "raise_statement", "continue_statement", "break_statement")
_EXIT_CALL = re.compile(rb"(?:sys\.exit|os\._exit|exit|quit|[\w.]*parser\.error)\(")


class Head(NamedTuple):
    """A guard, and the lines of its head: without what follows in the same line, which belongs to others."""

    guard: Guard
    lines: tuple[tuple[int, str], ...]


def heads_around(outline: Outline, frame: Frame, position: int) -> list[Head]:
    """The guards of what stands at the position; `frame`: the innermost one around it."""
    heads = [*_before(outline, frame, position), *_passed(outline, frame, position)]
    if any(head.guard.kind == "early exit" for head in heads):
        return [head for head in heads if not _is_outdated(outline, frame, head, position)]
    return heads


_NAMES = re.compile(r"[^\W\d][\w.]*")


def _is_outdated(outline: Outline, frame: Frame, head: Head, position: int) -> bool:
    """Whether what an early exit looked at may have changed since: a name in its condition is bound anew."""
    if head.guard.kind != "early exit":
        return False
    around = frame.function or outline.top
    bound: dict[str, list[int]] = around.cache.setdefault(_BINDINGS, {})
    end = outline.line_starts[min(head.guard.end, len(outline.line_starts) - 1)]
    for name in _NAMES.findall(head.guard.condition):
        while name and name not in _NEVER_BOUND:
            known = bound.get(name)
            if known is None:
                known = bound[name] = bindings(outline, around, name)
            if known and any(end <= place < position for place in known):
                return True
            name = name.rpartition(".")[0]
    return False


_NEVER_BOUND = frozenset((*keyword.kwlist, *dir(builtins), "self", "cls"))


def _before(outline: Outline, frame: Frame, position: int) -> tuple[Head, ...]:
    """The guards of the beginning of the block that holds the position; kept, as many sites share them."""
    missing: list[tuple[Frame, int | None]] = []
    known: tuple[Head, ...] | None = None
    current: Frame | None = frame
    while known is None and current is not None and current.kind not in ("function", "module"):
        index = current.branch_at(position)
        known = current.cache.get(index)
        if known is None:
            missing.append((current, index))
            current = current.parent
    known = known or ()
    for current, index in reversed(missing):
        assert current.parent is not None
        entered = () if index is None else _entered(outline, current, index)
        known = (*known, *_passed(outline, current.parent, current.start), *entered)
        current.cache[index] = known
    return known


def head_of(outline: Outline, guard: Guard, cut: int, *also: tuple[int, int]) -> Head:
    """A guard with its lines; `cut`: where its block begins. `also`: more lines, each with what they are cut at."""
    lines = [(number, outline.line_text(number)) for number in range(guard.start, guard.end)]
    for number, position in ((guard.end, cut), *also):
        same = outline.line_at(position) == number
        lines.append((number, outline.line_before(position) if same else outline.line_text(number)))
    return Head(guard, tuple(lines))


def expression_head(outline: Outline, condition: Node, holds: bool) -> Head:
    """A guard within an expression: `x if condition else y`, `condition and x`."""
    start, end = outline.line_at(condition.start_byte), outline.line_at(condition.end_byte - 1)
    return head_of(outline, Guard(_text(outline, condition), holds, "if", start, end), len(outline.data))


def _entered(outline: Outline, frame: Frame, index: int) -> Iterator[Head]:
    """Of the statement that holds the place: what chose its block."""
    branch, kind = frame.branches[index], frame.kind
    if kind == "if":
        yield from _chosen(outline, frame, index)
    elif kind in ("while", "for") and branch.kind == kind:
        yield _head(outline, frame.node, branch, True, kind)
    elif kind == "while":
        yield _head(outline, frame.node, frame.branches[0], False, kind)
    elif kind == "try" and branch.kind == "except" and branch.head is not None:
        yield _except(outline, branch, True)
    elif kind == "try" and branch.kind == "else":
        for each in frame.branches:
            if each.kind == "except":
                yield _except(outline, each, False, "try else")
    elif kind == "match":
        yield from _case(outline, frame, index)


def _chosen(outline: Outline, frame: Frame, index: int) -> Iterator[Head]:
    branch = frame.branches[index]
    for number, each in enumerate(frame.branches[: index + 1]):
        if each.kind == "else":
            continue
        start = frame.node if number == 0 else _clause_start(each)
        closing = branch if branch.kind == "else" and number == index - 1 else None
        yield _head(outline, start, each, each is branch, "if", closing)


def _clause_start(branch: Branch) -> Node:
    assert branch.head is not None
    return branch.head.parent or branch.head


def _head(outline: Outline, start: Node, branch: Branch, holds: bool, kind: str, closing: Branch | None = None) -> Head:
    """A guard of a branch whose head begins with the node `start`; `closing`: the `else` that it leads to."""
    head = branch.head
    if kind == "for":
        left, right = start.child_by_field_name("left"), start.child_by_field_name("right")
        condition = f"for {_text(outline, left)} in {_text(outline, right)}"
        end = start.start_byte if right is None else right.end_byte
    else:
        condition = ("while " if kind == "while" else "") + _text(outline, head)
        end = start.start_byte if head is None else head.end_byte
    guard = Guard(condition, holds, kind, outline.line_at(start.start_byte), outline.line_at(max(end - 1, 0)))
    if closing is None or closing.head is None:
        return head_of(outline, guard, branch.block.start_byte)
    line = outline.line_at(closing.head.start_byte)
    return head_of(outline, guard, branch.block.start_byte, (line, closing.block.start_byte))


def _text(outline: Outline, node: Node | None) -> str:
    while node is not None and node.type == "parenthesized_expression" and node.named_child_count == 1:
        node = node.named_children[0]
    return "" if node is None else outline.one_line(node)


def types_of(outline: Outline, clause: Node) -> tuple[str, ...]:
    """What an except clause catches; all, where it names nothing."""
    values = clause.children_by_field_name("value")
    if not values:
        return ("BaseException",)
    if _is_old(outline, values):
        values = values[:1]
    types: list[str] = []
    for value in values:
        value = value.named_children[0] if value.type == "as_pattern" else value
        while value.type == "parenthesized_expression" and value.named_child_count == 1:
            value = value.named_children[0]
        each = (
            [child for child in value.named_children if child.type != "comment"] if value.type == "tuple" else [value]
        )
        types.extend(outline.one_line(type_) for type_ in each)
    return tuple(types)


def alias_of(outline: Outline, clause: Node) -> str:
    """The name that an except clause gives to the error; empty: none."""
    values = clause.children_by_field_name("value")
    if _is_old(outline, values):
        return outline.source(values[1])
    alias = values[0].child_by_field_name("alias") if values and values[0].type == "as_pattern" else None
    return "" if alias is None else outline.source(alias)


def _is_old(outline: Outline, values: list[Node]) -> bool:
    """`except Type, name:` of Python 2; since 3.14 the same form holds two types."""
    return len(values) == 2 and values[1].type == "identifier" and outline.source(values[1])[:1].islower()


def _except(outline: Outline, branch: Branch, holds: bool, kind: str = "except") -> Head:
    clause = branch.head
    assert clause is not None
    values = clause.children_by_field_name("value")
    end = values[-1].end_byte if values else clause.start_byte + 1
    guard = Guard(
        ", ".join(types_of(outline, clause)), holds, kind, outline.line_at(clause.start_byte), outline.line_at(end - 1)
    )
    return head_of(outline, guard, branch.block.start_byte)


def _case(outline: Outline, frame: Frame, index: int) -> Iterator[Head]:
    first = outline.line_at(frame.start)
    subjects = ", ".join(outline.one_line(each) for each in frame.node.children_by_field_name("subject"))
    for number, branch in enumerate(frame.branches[: index + 1]):
        clause = branch.head
        assert clause is not None
        last = [child for child in clause.named_children if child.type not in ("block", "comment")][-1:]
        end = last[0].end_byte if last else clause.start_byte + 4
        patterns = " ".join(outline.data[clause.start_byte : end].decode("utf-8", "replace").split())
        if number == index and number and patterns == "case _":
            continue
        start = outline.line_at(clause.start_byte)
        guard = Guard(f"match {subjects}: {patterns}", number == index, "case", start, outline.line_at(end - 1))
        also = [] if number else [(first, outline.line_starts[first])]
        yield head_of(outline, guard, branch.block.start_byte, *also)


def _passed(outline: Outline, frame: Frame, position: int) -> Iterator[Head]:
    """Earlier statements of the same block that would have left it, had their condition held (or not held)."""
    if not frame.children or frame.children[0].end > position:
        return
    index = frame.branch_at(position)
    start = position if index is None else frame.branches[index].block.start_byte
    before = [child for child in frame.children if start <= child.start and child.end <= position]
    for child in before[-_MOST_PASSED:]:
        if child.kind in ("if", "while"):
            known = child.cache.get(_AFTER)
            if known is None:
                left = _early_exits(outline, child) if child.kind == "if" else _ended(outline, child)
                known = child.cache[_AFTER] = tuple(left)
            yield from known


_MOST_PASSED = 40
"""Statements of a block that are looked at before a place: the nearest ones."""
_AFTER, _BINDINGS = -1, -2
"""Keys of what holds after a statement, and of what it binds, beside the indices of its branches."""


def _early_exits(outline: Outline, frame: Frame) -> Iterator[Head]:
    branches = frame.branches
    for number, branch in enumerate(branches):
        if branch.kind == "else":
            if number == 1 and leaves(outline, branch.block):
                yield _head(outline, frame.node, branches[0], True, "early exit", branch)
            return
        if not leaves(outline, branch.block):
            if number or len(branches) != 2:
                return
            continue
        if number and not leaves(outline, branches[0].block):
            return
        yield _head(outline, frame.node if number == 0 else _clause_start(branch), branch, False, "early exit")


def _ended(outline: Outline, frame: Frame) -> Iterator[Head]:
    """A `while` that ended by itself: its condition no longer held."""
    branch = frame.branches[0] if frame.branches else None
    if branch is None or branch.head is None or b"break" in outline.data[frame.start : frame.end]:
        return
    if outline.source(branch.head) not in ("True", "1"):
        yield _head(outline, frame.node, branch, False, "while")


def leaves(outline: Outline, block: Node) -> bool:
    """Whether a block always ends by leaving the blocks around it."""
    for number in range(block.named_child_count - 1, -1, -1):
        last = block.named_child(number)
        if last is None or last.type == "comment":
            continue
        if last.type in _EXITS:
            return True
        if last.type == "expression_statement":
            return _EXIT_CALL.match(outline.data, last.start_byte) is not None
        return False
    return False


def cause_of(outline: Outline, frame: Frame, position: int, given: Node | None) -> Cause | None:
    """The error that one at the position is made from; `given`: what stands after `from`."""
    clause = _clause_around(frame, position)
    if given is not None:
        expression = outline.one_line(given)
        if expression == "None":
            return None
        types: tuple[str, ...] = ()
        current = frame
        while clause is not None:
            if alias_of(outline, clause[0]) == expression:
                types = types_of(outline, clause[0])
                break
            current = clause[1]
            clause = None if current.parent is None else _clause_around(current.parent, position)
        return Cause(types, "from e", outline.line_at(given.start_byte), expression)
    if clause is None:
        return None
    line, alias = outline.line_at(clause[0].start_byte), alias_of(outline, clause[0])
    return Cause(types_of(outline, clause[0]), "during handling", line, alias)


def _clause_around(frame: Frame, position: int) -> tuple[Node, Frame] | None:
    for current in reversed(frame.chain()):
        if current.kind == "try" and (index := current.branch_at(position)) is not None:
            branch = current.branches[index]
            if branch.kind == "except" and branch.head is not None:
                return branch.head, current
    return None


def caught_names(outline: Outline, frame: Frame, position: int) -> set[str]:
    """The names that the except clauses around the position give to errors."""
    names = set()
    current: Frame | None = frame
    while current is not None and current.kind != "module":
        found = _clause_around(current, position)
        if found is None:
            break
        names.add(alias_of(outline, found[0]))
        current = found[1].parent
    return names - {""}
