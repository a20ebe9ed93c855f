"""A Rust file under extraction."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

from tree_sitter import Node

from windtunnel.catalog.extract.braces import FileReader, around
from windtunnel.catalog.extract.rust.errors import above
from windtunnel.catalog.extract.rust.guards import guards_of
from windtunnel.catalog.extract.syntax import first_line, last_line, one_line, ordered_captures, text
from windtunnel.catalog.facts import FunctionFacts
from windtunnel.catalog.record import Guard, Language

_FUNCTIONS = frozenset(("function_item",))
_DEFINED = """[
  (struct_item name: (_) @n) (enum_item name: (_) @n) (type_item name: (_) @n) (trait_item name: (_) @n)
  (mod_item name: (_) @n)
]"""


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
        return re.sub(r"<.*|^&\s*(?:'\w+\s+)?(?:mut\s+)?", "", one_line(text(named))).rpartition("::")[2]

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
        returns = re.sub(
            r"\bSelf::(\w+)",
            lambda match: _associated(function, match[1]) or match[0],
            one_line(text(function.child_by_field_name("return_type"))),
        )
        qualified = f"{owner}::{name}" if owner else name
        start, end, is_test = first_line(function), last_line(function), self.in_tests(function)
        return FunctionFacts(
            name, qualified, start, end, owner, docs, parameters, returns, is_test, one_line(head, 200)
        )

    # --- names --------------------------------------------------------------------------------------------------------

    @cached_property
    def defined(self) -> frozenset[str]:
        """Types, aliases, traits and modules of the file's own."""
        return frozenset(text(name) for name in ordered_captures("rust", _DEFINED, self.root).get("n", ()))

    @cached_property
    def imports(self) -> tuple[tuple[str, str], ...]:
        """Local names of `use` declarations and what they stand for; `*` as often as there are such."""
        uses = ordered_captures("rust", "(use_declaration argument: (_) @u)", self.root).get("u", ())
        return tuple(found for use in uses for found in used(one_line(text(use), 10_000), ""))

    @cached_property
    def _imported(self) -> dict[str, str]:
        return dict(self.imports)

    def full_path(self, path: str) -> str:
        """A path with what its first name was imported as."""
        head, separator, rest = path.partition("::")
        return f"{self._imported.get(head, head)}{separator}{rest}"

    @cached_property
    def _fields(self) -> dict[tuple[str, str], str]:
        return {
            (text(struct.child_by_field_name("name")), text(field.child_by_field_name("name"))): one_line(
                text(field.child_by_field_name("type"))
            )
            for struct in ordered_captures("rust", "(struct_item) @s", self.root).get("s", ())
            for field in ordered_captures("rust", "(field_declaration) @f", struct).get("f", ())
        }

    def field_type(self, field: str, node: Node) -> str:
        """Of `self.field` where a node stands; empty: not known."""
        return self._fields.get((self.owner_of(node), field), "")

    # --- tests --------------------------------------------------------------------------------------------------------

    def in_tests(self, node: Node) -> bool:
        """Whether a node stands in a test, or in a module of tests."""
        current: Node | None = node
        while current is not None:
            if current.type in ("function_item", "mod_item"):
                _, attributes = above(current)
                if any(_is_for_tests(text(each)) for each in attributes):
                    return True
            current = current.parent
        return self.is_test


def _associated(function: Node, name: str) -> str:
    """A type of the impl that a function stands in: `type Err = ParseError;`."""
    block = function.parent
    for item in block.named_children if block is not None and block.type == "declaration_list" else ():
        if item.type == "type_item" and text(item.child_by_field_name("name")) == name:
            return one_line(text(item.child_by_field_name("type")))
    return ""


def _is_for_tests(attribute: str) -> bool:
    """`#[test]`, `#[tokio::test]`, `#[cfg(test)]`, `#[cfg(all(test, unix))]`; not `#[cfg(not(test))]`."""
    if re.match(r"#\[(?:\w+::)*test\b", attribute):
        return True
    told = re.sub(r'not\([^()]*\)|"[^"]*"|\bany\(.*', "", attribute)
    return attribute.startswith("#[cfg(") and bool(re.search(r"\btest\b", told))


def used(path: str, before: str) -> Iterator[tuple[str, str]]:
    """The names that a `use` brings, and their paths."""
    head, brace, inner = path.partition("{")
    if brace:
        depth, piece = 0, ""
        for character in inner.rstrip().removesuffix("}") + ",":
            depth += (character == "{") - (character == "}")
            if character == "," and depth == 0:
                if piece.strip():
                    yield from used(piece.strip(), before + head)
                piece = ""
            else:
                piece += character
        return
    full, _, alias = (before + path).partition(" as ")
    full = full.strip().removesuffix("::self")
    yield (alias.strip() or full.rpartition("::")[2]), full
