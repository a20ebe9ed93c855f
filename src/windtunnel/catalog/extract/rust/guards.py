"""What had to hold for a line of Rust to be reached: `if`, `let`, `match`, loops, early exits, `cfg`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from windtunnel.catalog.extract.syntax import first_line, last_line, one_line, text
from windtunnel.catalog.record import Guard

_LEAVES = frozenset(("return_expression", "break_expression", "continue_expression"))
_LEAVING_MACROS = re.compile(r"^(?:anyhow::|core::|std::)?(?:bail|panic|unreachable|todo|unimplemented)$")
_MOST_ARMS = 8


def guards_of(node: Node) -> tuple[Guard, ...]:
    """Outermost first. Closures are passed through; the function's end is the end, but for its `cfg`."""
    guards: list[Guard] = []
    child, parent, inside = node, node.parent, True
    while parent is not None:
        guards += _cfg(child)
        inside = inside and child.type != "function_item"
        if inside:
            guards += reversed(list(_between(child, parent)))
        child, parent = parent, parent.parent
    return tuple(reversed(guards))


def _cfg(node: Node) -> Iterator[Guard]:
    """`#[cfg(…)]` right above an item or statement."""
    before = node.prev_named_sibling
    while before is not None and before.type in ("attribute_item", "line_comment", "block_comment"):
        match = re.match(r"#\[cfg\((.+)\)\]$", one_line(text(before)))
        if match and match[1] != "test":
            yield Guard(match[1], True, "cfg", first_line(before), last_line(before))
        before = before.prev_named_sibling


def _between(child: Node, parent: Node) -> Iterator[Guard]:
    kind = parent.type
    condition = parent.child_by_field_name("condition")
    if kind == "block":
        yield from _early_exits(child, parent)
    elif kind == "if_expression" and condition is not None:
        if child == parent.child_by_field_name("consequence"):
            yield _guard(condition, True, "if")
        elif child == parent.child_by_field_name("alternative"):
            yield _guard(condition, False, "if")
    elif kind == "let_declaration" and child == parent.child_by_field_name("alternative"):
        yield _let(parent, False, "if")
    elif kind == "while_expression" and condition is not None and child == parent.child_by_field_name("body"):
        words = one_line(text(condition))
        yield Guard(f"while {words}", True, "while", first_line(condition), last_line(condition))
    elif kind == "for_expression" and child == parent.child_by_field_name("body"):
        pattern, value = parent.child_by_field_name("pattern"), parent.child_by_field_name("value")
        head = f"for {one_line(text(pattern))} in {one_line(text(value))}"
        yield Guard(
            head, True, "for", first_line(parent), last_line(value) if value is not None else first_line(parent)
        )
    elif kind == "arguments" and child.type == "closure_expression":
        yield from _fallback(child, parent)
    elif kind == "match_arm" and child == parent.child_by_field_name("value"):
        yield from _arm(parent)


def _fallback(closure: Node, arguments: Node) -> Iterator[Guard]:
    """A closure that is called when what it is handed to fails, or gives None."""
    function = arguments.parent.child_by_field_name("function") if arguments.parent is not None else None
    method = text(function.child_by_field_name("field")) if function is not None else ""
    receiver = function.child_by_field_name("value") if function is not None else None
    if receiver is not None and method in ("unwrap_or_else", "or_else", "map_err", "ok_or_else", "inspect_err"):
        takes_error = text(closure.child_by_field_name("parameters")) not in ("||", "")
        words, kind = one_line(text(receiver), 120), "failed" if takes_error else "none"
        yield Guard(words, True, kind, first_line(receiver), last_line(receiver))


def _guard(condition: Node, holds: bool, kind: str) -> Guard:
    built = re.fullmatch(r"(!?)cfg!\((.+)\)", one_line(text(condition)))
    if built:
        return Guard(built[2], holds != bool(built[1]), "cfg", first_line(condition), last_line(condition))
    return Guard(one_line(text(condition)), holds, kind, first_line(condition), last_line(condition))


def _let(declaration: Node, holds: bool, kind: str) -> Guard:
    pattern, value = declaration.child_by_field_name("pattern"), declaration.child_by_field_name("value")
    words = f"let {one_line(text(pattern))} = {one_line(text(value))}"
    return Guard(words, holds, kind, first_line(declaration), last_line(value) if value else first_line(declaration))


def _arm(arm: Node) -> Iterator[Guard]:
    """The pattern that leads here; at `_`, all that do not."""
    match = arm.parent.parent if arm.parent is not None else None
    pattern = arm.child_by_field_name("pattern")
    if match is None or pattern is None or arm.parent is None:
        return
    value, condition = one_line(text(match.child_by_field_name("value"))), pattern.child_by_field_name("condition")
    words = _pattern(pattern)
    if words == "_" or re.fullmatch(r"[a-z_]\w*", words):
        others = [
            o.child_by_field_name("pattern") for o in arm.parent.named_children if o.type == "match_arm" and o != arm
        ]
        for other in [o for o in others if o is not None and o.child_by_field_name("condition") is None][:_MOST_ARMS]:
            yield Guard(f"let {_pattern(other)} = {value}", False, "case", first_line(other), last_line(other))
    else:
        yield Guard(f"let {words} = {value}", True, "case", first_line(pattern), last_line(pattern))
    if condition is not None:
        yield _guard(condition, True, "if")


def _pattern(pattern: Node) -> str:
    condition = pattern.child_by_field_name("condition")
    words = text(pattern)
    if condition is not None:
        words = words[: condition.start_byte - pattern.start_byte].rstrip().removesuffix("if")
    return one_line(words)


def _early_exits(child: Node, block: Node) -> Iterator[Guard]:
    for statement in block.named_children:
        if statement == child:
            return
        inner = statement.named_children[0] if statement.type == "expression_statement" else statement
        if statement.type == "let_declaration" and statement.child_by_field_name("alternative") is not None:
            yield _let(statement, True, "early exit")
        elif inner.type == "if_expression":
            condition = inner.child_by_field_name("condition")
            leaves = [leaves_block(inner.child_by_field_name(side)) for side in ("consequence", "alternative")]
            if condition is not None and leaves[0] != leaves[1]:
                yield _guard(condition, leaves[1], "early exit")
        elif inner.type == "macro_invocation" and text(inner.child_by_field_name("macro")).endswith("ensure"):
            words = one_line(text(inner.named_children[-1])[1:-1]).partition(', "')[0]
            yield Guard(words, True, "early exit", first_line(inner), first_line(inner))


def leaves_block(body: Node | None) -> bool:
    """Whether a block always ends by leaving the function or loop."""
    if body is None:
        return False
    if body.type in _LEAVES:
        return True
    if body.type == "macro_invocation":
        return bool(_LEAVING_MACROS.match(text(body.child_by_field_name("macro"))))
    if body.type in ("block", "else_clause", "expression_statement"):
        statements = [child for child in body.named_children if "comment" not in child.type]
        return bool(statements) and leaves_block(statements[-1])
    return False
