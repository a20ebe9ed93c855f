"""Variants of error types that are made within something else: in another error, a closure's match, a call, a field.

Whether a name is an error's variant is known only when all files are; here a type is taken for one by its name, and
`assemble` drops what turns out to have no message.
"""

from __future__ import annotations

import re

from tree_sitter import Node

from windtunnel.catalog.extract.braces import around
from windtunnel.catalog.extract.rust.reader import RustReader
from windtunnel.catalog.extract.syntax import first_line, ordered_captures, text

_QUERY = """
(scoped_identifier) @path
(struct_expression name: (scoped_type_identifier)) @struct
"""
_VARIANT = re.compile(r"(?:\w+::)*(?P<owner>\w*(?:Error|Err|ErrorKind)|Self)::[A-Z]\w*[a-z]\w*$")
_STATEMENTS = frozenset(("block", "match_arm", "function_item", "source_file", "declaration_list"))


def variants_made(reader: RustReader) -> list[tuple[Node, str]]:
    """The expressions that make a variant, and the variant as `Enum::Variant`; of tests, patterns and `From` none."""
    found = ordered_captures("rust", _QUERY, reader.root)
    made: list[tuple[Node, str]] = []
    for node in (*found.get("path", ()), *found.get("struct", ())):
        name = text(node if node.type == "scoped_identifier" else node.child_by_field_name("name"))
        match = _VARIANT.match(name)
        if match is None or not _is_made(node) or reader.in_tests(node):
            continue
        owner = reader.owner_of(node) if match["owner"] == "Self" else match["owner"]
        if owner.endswith(("Error", "Err", "ErrorKind")) and not _is_conversion(node):
            called = node.parent if node.parent is not None and node.parent.type == "call_expression" else node
            made.append((called, re.sub(r"(?:^|(?<=::))Self(?=::)", owner, name)))
    return sorted(made, key=lambda pair: pair[0].start_byte)


def _is_made(node: Node) -> bool:
    """An expression of its own: no pattern, no comparison, no part of a longer path."""
    child, parent = node, node.parent
    if parent is None or parent.type == "scoped_identifier":
        return False
    while parent is not None and parent.type not in _STATEMENTS:
        if parent.type.endswith("_pattern") or parent.type == "use_declaration":
            return False
        if parent.type in ("let_condition", "let_declaration") and child == parent.child_by_field_name("pattern"):
            return False
        if parent.type == "binary_expression" and text(parent.child_by_field_name("operator")) in ("==", "!="):
            return False
        child, parent = parent, parent.parent
    return not (parent is not None and parent.type == "match_arm" and child == parent.child_by_field_name("pattern"))


def _is_conversion(node: Node) -> bool:
    """In `impl From<…>`: what `?` makes by it is told where the `?` stands."""
    block = around(node, ("impl_item",))
    return block is not None and bool(re.match(r"(?:\w+::)*From<", text(block.child_by_field_name("trait"))))


def is_noted(reader: RustReader, node: Node, type_: str) -> bool:
    """Whether a site of the file makes this variant there already."""
    line, variant = first_line(node), "::".join(type_.split("::")[-2:])
    return any(
        site.start <= line <= site.end and "::".join(site.type.split("::")[-2:]) == variant for _, site in reader.raises
    )
