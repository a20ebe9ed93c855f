"""A Rust file under extraction."""

from __future__ import annotations

import re

from tree_sitter import Node

from windtunnel.catalog.extract.braces import FileReader, around
from windtunnel.catalog.extract.rust.errors import above
from windtunnel.catalog.extract.rust.guards import guards_of
from windtunnel.catalog.extract.syntax import first_line, last_line, one_line, text
from windtunnel.catalog.facts import FunctionFacts
from windtunnel.catalog.record import Guard, Language

_FUNCTIONS = frozenset(("function_item",))


class RustReader(FileReader):
    """Knows impl blocks, return types, and which parts are tests."""

    def __init__(self, path: str, data: bytes, language: Language, is_test: bool) -> None:
        super().__init__(path, data, language, "rust", _FUNCTIONS, frozenset(("impl_item", "trait_item")), is_test)

    def guards(self, node: Node) -> tuple[Guard, ...]:
        """As Rust has them."""
        return guards_of(node)

    def owner_of(self, node: Node) -> str:
        """The type of the impl block, or the trait, that a node lies in."""
        owner = around(node, self.owners)
        if owner is None:
            return ""
        named = owner.child_by_field_name("type") or owner.child_by_field_name("name")
        return re.sub(r"<.*|^&", "", one_line(text(named))).rpartition("::")[2]

    def _function_facts(self, function: Node) -> FunctionFacts:
        name, owner = text(function.child_by_field_name("name")), self.owner_of(function)
        docs, _ = above(function)
        listed = function.child_by_field_name("parameters")
        parameters = tuple(
            (one_line(text(each.child_by_field_name("pattern"))), one_line(text(each.child_by_field_name("type"))))
            for each in (listed.named_children if listed is not None else ())
            if each.type == "parameter"
        )
        body = function.child_by_field_name("body")
        head = text(function) if body is None else text(function)[: -len(text(body)) or None]
        returns = one_line(text(function.child_by_field_name("return_type")))
        qualified = f"{owner}::{name}" if owner else name
        start, end, is_test = first_line(function), last_line(function), self.in_tests(function)
        return FunctionFacts(
            name, qualified, start, end, owner, docs, parameters, returns, is_test, one_line(head, 200)
        )

    def in_tests(self, node: Node) -> bool:
        """Whether a node stands in a test, or in a module of tests."""
        current: Node | None = node
        while current is not None:
            if current.type in ("function_item", "mod_item"):
                _, attributes = above(current)
                if any(re.search(r"\bcfg\(test\)|#\[(?:\w+::)*test\b", text(each)) for each in attributes):
                    return True
            current = current.parent
        return self.is_test
