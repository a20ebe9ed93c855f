"""What a variable of Rust is bound by where it is used, and the types that are written down for it."""

from __future__ import annotations

import re

from tree_sitter import Node

from windtunnel.catalog.extract.syntax import one_line, text

_BINDS = {"match_arm": "pattern", "for_expression": "pattern", "closure_expression": "parameters",
          "if_expression": "condition", "while_expression": "condition"}  # fmt: skip


def binding_of(name: str, node: Node) -> Node | None:
    """The `let` or parameter that a name means at a node; None: another pattern, or nothing, binds it."""
    child, parent = node, node.parent
    while parent is not None:
        if parent.type == "block":
            for before in reversed([each for each in parent.named_children if each.end_byte <= child.start_byte]):
                pattern = before.child_by_field_name("pattern") if before.type == "let_declaration" else None
                if _names(pattern, name):
                    return before if text(pattern) == name else None
        elif parent.type == "function_item":
            listed = parent.child_by_field_name("parameters")
            found = [each for each in (listed.named_children if listed is not None else ()) if each.type == "parameter"]
            return next((each for each in found if _names(each.child_by_field_name("pattern"), name)), None)
        elif parent.type in _BINDS:
            pattern = parent.child_by_field_name(_BINDS[parent.type])
            is_let = _BINDS[parent.type] != "condition" or "let " in text(pattern)
            if child != pattern and is_let and _names(pattern, name):
                return None
        child, parent = parent, parent.parent
    return None


def _names(pattern: Node | None, name: str) -> bool:
    return bool(re.search(rf"(?<![\w.]){re.escape(name)}\b", text(pattern)))


def annotation_of(name: str, node: Node) -> str:
    """The type that a variable or parameter is declared with; empty: none."""
    binding = binding_of(name, node)
    return one_line(text(binding.child_by_field_name("type"))) if binding is not None else ""


def value_of(name: str, node: Node) -> Node | None:
    """What a `let` gives a variable."""
    binding = binding_of(name, node)
    return binding.child_by_field_name("value") if binding is not None and binding.type == "let_declaration" else None


def bound_of(parameter: str, node: Node) -> str:
    """The first trait that bounds a type parameter of the function or impl around a node; empty: it is none."""
    current: Node | None = node
    while current is not None:
        if current.type in ("function_item", "impl_item"):
            body = current.child_by_field_name("body")
            head = text(current) if body is None else text(current)[: -len(text(body)) or None]
            if match := re.search(rf"[<,\s]{re.escape(parameter)}\s*:\s*(?:\??\w+::)*(\w+)", head):
                return match[1]
        current = current.parent
    return ""
