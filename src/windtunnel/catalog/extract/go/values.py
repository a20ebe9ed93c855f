"""Which statement gave a variable of Go its value, where the code leaves no doubt; and all that a function writes."""

from __future__ import annotations

import re
from typing import NamedTuple

from tree_sitter import Node

from windtunnel.catalog.extract.syntax import captures, text

FUNCTIONS = frozenset(("function_declaration", "method_declaration"))
_WRITES = (
    "[(short_var_declaration) (assignment_statement) (var_spec) (inc_statement) (dec_statement) (range_clause)] @w"
)


class Write(NamedTuple):
    """A statement that gives variables a value, and the block in which a declared one lives."""

    start: int
    end: int
    names: frozenset[str]
    is_declaration: bool
    scope: tuple[int, int]


def writes_in(function: Node) -> list[Write]:
    """Every statement of a function that gives a variable a value, in no order."""
    found = []
    for node in captures("go", _WRITES, function).get("w", ()):
        scope = node.parent or node
        is_declaration = node.type in ("short_var_declaration", "var_spec")
        names = frozenset(written_by(node))
        found.append(Write(node.start_byte, node.end_byte, names, is_declaration, (scope.start_byte, scope.end_byte)))
    return found


def written_by(statement: Node) -> list[str]:
    """The variables that a statement gives a value."""
    if statement.type in ("inc_statement", "dec_statement"):
        return [text(statement.named_children[0])]
    if statement.type == "var_spec":
        return [text(name) for name in statement.children_by_field_name("name")]
    left = statement.child_by_field_name("left")
    if left is None:
        return []
    return [text(child) for child in (left.named_children if left.type == "expression_list" else [left])]


def origin_of(name: str, node: Node) -> Node | None:
    """The statement that gave a variable its value at `node`; none where the code leaves a doubt."""
    child, parent = node, node.parent
    while parent is not None and child.type not in FUNCTIONS and child.type != "func_literal":
        head = parent.child_by_field_name("initializer") or parent.child_by_field_name("communication")
        if head is not None and head != child and name in written_by(head):
            return head
        if parent.type == "statement_list":
            for before in reversed([each for each in parent.named_children if each.end_byte <= child.start_byte]):
                if (found := _given_by(before, name)) is not None:
                    return found
                if _may_write(before, name):
                    return None
        elif parent.type == "for_statement" and _may_write(parent, name):
            return None
        child, parent = parent, parent.parent
    return None


def _given_by(statement: Node, name: str) -> Node | None:
    """The statement, or the head of an `if`, if it surely assigns to the variable."""
    if statement.type in ("short_var_declaration", "assignment_statement"):
        return statement if name in written_by(statement) else None
    if statement.type == "var_declaration":
        return next((each for each in statement.named_children if name in written_by(each)), None)
    head = statement.child_by_field_name("initializer") if statement.type == "if_statement" else None
    if head is None or head.type != "assignment_statement" or name not in written_by(head):
        return None
    bodies = (statement.child_by_field_name("consequence"), statement.child_by_field_name("alternative"))
    return None if any(_may_write(body, name) for body in bodies if body is not None) else head


def _may_write(node: Node, name: str) -> bool:
    """Whether something below assigns to the variable; a declaration below makes another of its name."""
    if not re.search(rf"\b{re.escape(name)}\b", text(node)):
        return False
    found = captures("go", "[(assignment_statement) (range_clause)] @w (unary_expression) @u", node)
    if any(text(each) == f"&{name}" for each in found.get("u", ())):
        return True
    return any(name in written_by(write) for write in found.get("w", ()))


def value_of(assignment: Node) -> Node | None:
    """What is assigned, where it is one expression."""
    value = assignment.child_by_field_name("right") or assignment.child_by_field_name("value")
    if value is None:
        return None
    values = value.named_children if value.type == "expression_list" else [value]
    return values[0] if len(values) == 1 else None


def called_in(assignment: Node) -> Node | None:
    """The call whose result is assigned; none for `ctx.Err()`, which does not fail but tells of a failure."""
    call = value_of(assignment)
    if call is None or call.type != "call_expression":
        return None
    makes_one = re.search(r"\.(?:Err|Error|Errorf|New)$|^func\b", text(call.child_by_field_name("function")))
    return None if makes_one else call
