"""A Go file under extraction."""

from __future__ import annotations

import re

from tree_sitter import Node

from windtunnel.catalog.extract.braces import FileReader
from windtunnel.catalog.extract.go.guards import guards_of
from windtunnel.catalog.extract.go.values import FUNCTIONS, Write, writes_in
from windtunnel.catalog.extract.syntax import one_line, ordered_captures, text
from windtunnel.catalog.record import Guard, Language

_STATEMENTS = frozenset((
    "return_statement", "expression_statement", "short_var_declaration", "assignment_statement", "send_statement",
    "go_statement", "defer_statement", "var_spec", "const_spec",
))  # fmt: skip
_AT_TOP = """
(source_file (const_declaration (const_spec) @spec))
(source_file (var_declaration (var_spec) @spec))
(source_file (var_declaration (var_spec_list (var_spec) @spec)))
"""


class GoReader(FileReader):
    """Knows receivers, the file's constants and variables, and which of its types are errors."""

    def __init__(self, path: str, data: bytes, language: Language, is_test: bool) -> None:
        super().__init__(path, data, language, "go", FUNCTIONS, frozenset(), is_test)
        self.specs = ordered_captures("go", _AT_TOP, self.root).get("spec", [])
        self.constants: dict[str, Node] = {}
        for spec in self.specs:
            names, value = spec.children_by_field_name("name"), spec.child_by_field_name("value")
            if value is not None and len(names) == len(value.named_children) == 1:
                self.constants[text(names[0])] = value.named_children[0]
        self.error_types: set[str] = set()
        self.taken: set[int] = set()
        """Calls that make an error which is the message of another site."""
        self._writes: dict[int, list[Write]] = {}

    def guards(self, node: Node) -> tuple[Guard, ...]:
        """As Go has them."""
        function = self.named_function(node)
        return guards_of(node, [] if function is None else self._writes_in(function))

    def _writes_in(self, function: Node) -> list[Write]:
        if function.id not in self._writes:
            self._writes[function.id] = writes_in(function)
        return self._writes[function.id]

    def is_local(self, name: str, node: Node) -> bool:
        """Whether a name is a variable, or a parameter, of the function that a node stands in."""
        function = self.named_function(node)
        if function is None:
            return False
        if any(name in write.names for write in self._writes_in(function) if write.is_declaration):
            return True
        lists = [text(function.child_by_field_name(field)) for field in ("receiver", "parameters", "result")]
        return bool(re.search(rf"[(,]\s*{re.escape(name)}(?:\s+\S|\s*,)", "".join(lists)))

    def owner_of(self, node: Node) -> str:
        """The type of the receiver of the method that a node is, or lies in."""
        method: Node | None = node
        while method is not None and method.type not in FUNCTIONS:
            method = method.parent
        receiver = method.child_by_field_name("receiver") if method is not None else None
        return receiver_of(receiver)[1] if receiver is not None else ""


def receiver_of(receiver: Node) -> tuple[str, str]:
    """Its name and its type, without pointer and type parameters."""
    declared = next((child for child in receiver.named_children if child.type == "parameter_declaration"), None)
    if declared is None:
        return "", ""
    type_ = re.sub(r"\[.*", "", one_line(text(declared.child_by_field_name("type"))).lstrip("*"))
    return text(declared.child_by_field_name("name")), type_


def statement_of(node: Node) -> Node:
    """The statement that a node belongs to; without one itself."""
    current: Node | None = node
    while current is not None and current.type not in _STATEMENTS:
        current = current.parent
        if current is None or current.type in FUNCTIONS or current.type in ("block", "statement_list", "func_literal"):
            return node
    return current or node
