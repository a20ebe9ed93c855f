"""What had to hold for a line of Go to be reached.

`if err != nil` and `if !ok` say nothing by themselves. Where the code leaves no doubt what gave `err`, the guard is
that call (kind `failed`); what gave `ok` stands for it. An early exit counts only as long as nothing that its condition
names has been written since. One that an error took is left out: it says no more than that the call before went well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from windtunnel.catalog.extract.go.values import FUNCTIONS, Write, called_in, origin_of, value_of, written_by
from windtunnel.catalog.extract.syntax import first_line, last_line, one_line, text
from windtunnel.catalog.record import Guard

_LEAVES = frozenset(("return_statement", "break_statement", "continue_statement", "goto_statement"))
_LEAVING = re.compile(r"^(?:panic|os\.Exit|runtime\.Goexit|.*\.(?:Fatal|Panic)(?:f|ln|w|Depth)?)$")
_CASES = frozenset(("expression_case", "type_case", "default_case", "communication_case"))
_ERROR_NAME = re.compile(r"^(?:\w+\.)*(?:e|\w*[eE]rr(?:or)?\d?)$")
_OK_NAME = re.compile(r"^(?:ok|\w+O[kK]|exists?|found|has|present|loaded)$")
_LOGGER_IS_SET = re.compile(r"^(?:\w+\.)*(?:lg|[lL]ogger|log) [!=]= nil$")
_MOST_CASES = 8


def guards_of(node: Node, writes: list[Write]) -> tuple[Guard, ...]:
    """Outermost first. Closures are passed through; what a file is built for counts too. `writes`: its function's."""
    guards: list[Guard] = []
    child, parent = node, node.parent
    while parent is not None:
        if child.type not in FUNCTIONS or parent.type == "source_file":
            guards += reversed(list(_between(child, parent, (node.start_byte, node.end_byte), writes)))
        child, parent = parent, parent.parent
    return tuple(reversed(guards))


def _between(child: Node, parent: Node, site: tuple[int, int], writes: list[Write]) -> Iterator[Guard]:
    kind = parent.type
    if kind == "statement_list":
        yield from _early_exits(child, parent, site, writes)
    elif kind == "if_statement":
        condition = parent.child_by_field_name("condition")
        sides = (parent.child_by_field_name("consequence"), parent.child_by_field_name("alternative"))
        if condition is not None and child in sides:
            yield from _conditions(condition, child == sides[0])
    elif kind == "for_statement" and child == parent.child_by_field_name("body"):
        yield from _loop(parent)
    elif kind in _CASES and child.type == "statement_list":
        yield from _case(parent)
    elif kind == "source_file":
        yield from _built_for(parent)


def _built_for(root: Node) -> Iterator[Guard]:
    for each in root.named_children:
        if each.type != "comment":
            return
        if match := re.match(r"//go:build\s+(.+)$", text(each)):
            yield Guard(one_line(match[1]), True, "cfg", first_line(each), first_line(each))


def _conditions(condition: Node, holds: bool) -> Iterator[Guard]:
    """Of an `if`: as it stands, but for an operation that failed, which stands by itself."""
    pieces = list(_pieces(condition, "&&" if holds else "||"))
    failed = [_failed(piece, holds) for piece in pieces]
    if not any(failed):
        yield from _guard(condition, holds, "if")
        return
    for piece, guard in zip(pieces, failed, strict=True):
        if guard is not None:
            yield guard
        else:
            yield from _guard(piece, holds, "if")


def _pieces(condition: Node, operator: str) -> Iterator[Node]:
    if condition.type == "binary_expression" and text(condition.child_by_field_name("operator")) == operator:
        for side in ("left", "right"):
            if (inner := condition.child_by_field_name(side)) is not None:
                yield from _pieces(inner, operator)
    else:
        yield condition


def _failed(condition: Node, holds: bool) -> Guard | None:
    """`err != nil`, where a call gave `err`: that call failed."""
    name = error_tested(condition, holds)
    origin = origin_of(name, condition) if name else None
    call = called_in(origin) if origin is not None else None
    if origin is None or call is None:
        return None
    return Guard(one_line(text(call), 120), True, "failed", first_line(origin), last_line(condition))


def error_tested(condition: Node, holds: bool) -> str:
    """The variable that a condition tells to be an error: of `err != nil` err; empty: it is another condition."""
    if condition.type != "binary_expression":
        return ""
    operator, left = text(condition.child_by_field_name("operator")), text(condition.child_by_field_name("left"))
    is_nil = text(condition.child_by_field_name("right")) == "nil"
    says = operator == ("!=" if holds else "==")
    return left if is_nil and says and _ERROR_NAME.match(left) else ""


def _guard(condition: Node, holds: bool, kind: str) -> Iterator[Guard]:
    """As it stands, or what `ok` was given; nothing where it only chooses a logger."""
    words, start = one_line(text(condition)), first_line(condition)
    if _LOGGER_IS_SET.match(words):
        return
    name = words.removeprefix("!")
    origin = origin_of(name, condition) if _OK_NAME.match(name) else None
    if origin is not None:
        names, value = written_by(origin), value_of(origin)
        if value is not None and value.type != "unary_expression" and len(names) > 1 and names[-1] == name:
            holds, start = holds != words.startswith("!"), first_line(origin)
            words = one_line(text(value), 120)
    yield Guard(words, holds, kind, start, last_line(condition))


def _loop(loop: Node) -> Iterator[Guard]:
    body = loop.child_by_field_name("body")
    head = next((child for child in loop.named_children if child != body and child.type != "comment"), None)
    if head is None:
        return
    is_while = head.type not in ("for_clause", "range_clause")
    words = ("" if is_while else "for ") + one_line(text(head))
    yield Guard(words, True, "while" if is_while else "for", first_line(head), last_line(head))


def _case(case: Node) -> Iterator[Guard]:
    """The labels that lead here; at `default`, and where a switch has no value, the ones before that did not."""
    switch = case.parent
    if switch is None:
        return
    if case.type == "communication_case":
        told = case.child_by_field_name("communication")
        if told is not None:
            yield Guard(one_line(text(told)), True, "select", first_line(told), last_line(told))
        return
    value = switch.child_by_field_name("value")
    subject = one_line(text(value)) + (".(type)" if switch.type == "type_switch_statement" else "")
    others = [other for other in switch.named_children if other.type in _CASES and other != case]
    here = [case, *_falling_into(case)]
    if case.type == "default_case" or value is None:
        before = others if case.type == "default_case" else [o for o in others if o.start_byte < case.start_byte]
        labels = [(other, label) for other in before if other not in here for label in _labels(other)]
        for other, label in labels[:_MOST_CASES]:
            words = f"{subject} == {label}" if value is not None else label
            yield Guard(words, False, "case", first_line(other), first_line(other))
    if case.type != "default_case":
        labels_here = [label for each in reversed(here) for label in _labels(each)]
        words = " || ".join(f"{subject} == {label}" if value is not None else label for label in labels_here)
        yield Guard(words, True, "case", first_line(here[-1]), first_line(case))


def _falling_into(case: Node) -> Iterator[Node]:
    """The cases right before that fall through to this one, the nearest first."""
    before = case.prev_named_sibling
    while before is not None and before.type in _CASES:
        listed = before.named_children[-1] if before.named_children else None
        if listed is None or not listed.named_children or listed.named_children[-1].type != "fallthrough_statement":
            return
        yield before
        before = before.prev_named_sibling


def _labels(case: Node) -> list[str]:
    listed = case.child_by_field_name("value")
    if listed is not None:
        return [one_line(text(child)) for child in listed.named_children if child.type != "comment"]
    return [one_line(text(child)) for child in case.children_by_field_name("type") if child.is_named]


# --- early exits ------------------------------------------------------------------------------------------------------


def _early_exits(child: Node, block: Node, site: tuple[int, int], writes: list[Write]) -> Iterator[Guard]:
    """An `if` before `child` one side of which leaves the block: what leads to that side did not hold."""
    for statement in block.named_children:
        if statement == child:
            return
        condition = statement.child_by_field_name("condition") if statement.type == "if_statement" else None
        if condition is None:
            continue
        leaves = [leaves_block(statement.child_by_field_name(side)) for side in ("consequence", "alternative")]
        holds = leaves[1]
        if leaves[0] == leaves[1] or error_tested(condition, not holds):
            continue
        if not _is_past(statement, condition, site, writes):
            failed = _failed(condition, holds)
            yield from _guard(condition, holds, "early exit") if failed is None else (failed,)


def leaves_block(body: Node | None) -> bool:
    """Whether a block always ends by leaving the function or loop."""
    if body is None:
        return False
    if body.type in _LEAVES:
        return True
    if body.type == "expression_statement" and body.named_children[0].type == "call_expression":
        return bool(_LEAVING.match(text(body.named_children[0].child_by_field_name("function"))))
    if body.type in ("block", "statement_list"):
        statements = [child for child in body.named_children if child.type != "comment"]
        return bool(statements) and leaves_block(statements[-1])
    if body.type == "if_statement":
        return all(leaves_block(body.child_by_field_name(side)) for side in ("consequence", "alternative"))
    return False


def _is_past(exit_: Node, condition: Node, site: tuple[int, int], writes: list[Write]) -> bool:
    """Whether a variable of the condition may have another value at the site."""
    names = set(re.findall(r"(?<![.\w\"])[A-Za-z_]\w*", text(condition)))
    return any(
        exit_.end_byte <= write.start
        and write.end <= site[0]
        and not names.isdisjoint(write.names)
        and not (write.is_declaration and write.scope[1] < site[1])
        for write in writes
    )
