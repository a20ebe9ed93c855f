"""Where Rust makes errors: `Err(…)`, `map_err`, `ok_or`, `bail!`, `ensure!`, panics, `expect`, contexts, error logs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tree_sitter import Node

from windtunnel.catalog.extract.braces import around
from windtunnel.catalog.extract.rust.errors import arguments_of, formatted, literal_of
from windtunnel.catalog.extract.rust.reader import RustReader
from windtunnel.catalog.extract.syntax import first_line, last_line, one_line, ordered_captures, text
from windtunnel.catalog.record import Cause, Guard, Kind
from windtunnel.catalog.template import Hole, Part, says_something

_QUERY = """
(call_expression function: (identifier) @f (#eq? @f "Err")) @err
(call_expression function: (field_expression field: (field_identifier) @m
  (#match? @m "^(map_err|ok_or|ok_or_else|context|with_context|expect|unwrap|expect_err)$"))) @method
(macro_invocation) @macro
(call_expression function: (scoped_identifier) @p (#match? @p "process::exit$")) @exit
"""
_BAILS = {"bail": "bail", "anyhow": "bail", "eyre": "bail", "ensure": "bail"}
_PANICS = frozenset(("panic", "unreachable", "todo", "unimplemented"))
_ASSERTS = {"assert": "", "assert_eq": "==", "assert_ne": "!=", "debug_assert": "", "debug_assert_eq": "==",
            "debug_assert_ne": "!="}  # fmt: skip


def find_sites(reader: RustReader) -> None:
    """Note every site of the file that is not in its tests."""
    found = ordered_captures("rust", _QUERY, reader.root)
    for node in found.get("err", ()):
        if not reader.in_tests(node) and (arguments := _arguments(node)):
            _made(reader, node, arguments[0])
    for node in found.get("method", ()):
        if not reader.in_tests(node):
            _method(reader, node)
    for node in found.get("macro", ()):
        if not reader.in_tests(node):
            _macro(reader, node)
    for node in found.get("exit", ()):
        if not reader.in_tests(node):
            words = one_line(text(node))
            reader.add("exit", node, "std::process::exit", None, otherwise=("statement", words))


def _arguments(call: Node) -> list[Node]:
    listed = call.child_by_field_name("arguments")
    return [] if listed is None else [child for child in listed.named_children if "comment" not in child.type]


def _made(
    reader: RustReader, node: Node, value: Node, *, cause: Cause | None = None, guards: tuple[Guard, ...] = ()
) -> None:
    """An error value that is made in place; one that is only passed on is none."""
    made = _error(reader, value)
    if made is None:
        return
    type_, template, arguments = made
    reader.add("construct", node, type_, template, cause=cause, guards=guards, arguments=arguments)


Made = tuple[str, tuple[Part, ...] | None, tuple[tuple[str, tuple[Part, ...]], ...]]


def _error(reader: RustReader, value: Node) -> Made | None:
    """Type, message and arguments of an expression that makes an error."""
    kind = value.type
    if kind in ("closure_expression", "block"):
        inner = value.child_by_field_name("body") if kind == "closure_expression" else None
        last = inner or (value.named_children[-1] if value.named_children else None)
        return _error(reader, last) if last is not None else None
    if kind == "struct_expression":
        body = value.child_by_field_name("body")
        fields = body.named_children if body is not None else []
        given = tuple(_field(reader, field) for field in fields if "field_initializer" in field.type)
        return _type(reader, text(value.child_by_field_name("name"))), None, given
    if kind == "scoped_identifier" and text(value.child_by_field_name("name"))[:1].isupper():
        return _type(reader, text(value)), None, ()
    if kind == "macro_invocation":
        name = text(value.child_by_field_name("macro")).rpartition("::")[2]
        template = formatted(text(value.named_children[-1]))
        return (f"{name}!", template, ()) if name in ("anyhow", "eyre", "format") and template else None
    if kind == "call_expression":
        return _called(reader, value)
    if kind == "string_literal":
        return "str", (literal_of(text(value)) or ("", ""))[:1], ()
    return None


def _called(reader: RustReader, value: Node) -> Made | None:
    function = value.child_by_field_name("function")
    if function is None:
        return None
    if function.type == "field_expression":  # `….into()`, `….to_string()`, `Error::new(…).context(…)`
        inner = function.child_by_field_name("value")
        method = text(function.child_by_field_name("field"))
        return (
            _error(reader, inner)
            if inner is not None and method in ("into", "to_string", "to_owned", "build")
            else None
        )
    name = re.sub(r"::<.*?>", "", text(function))
    arguments = _arguments(value)
    if name in ("Box::new", "Arc::new", "Some") and arguments:
        return _error(reader, arguments[0])
    if "::" not in name and not name[:1].isupper():
        return None
    given = tuple(("", _parts(reader, argument) or (Hole(one_line(text(argument), 80)),)) for argument in arguments)
    last = name.rpartition("::")[2]
    message = next((value for _, value in given if says_something(value)), None)
    if last[:1].isupper():
        return _type(reader, name), None if "::" in name else message, given
    owner = name.rpartition("::")[0].rpartition("::")[2]
    looks = owner.endswith(("Error", "Err")) or owner == "Self" or last in ("custom", "new", "msg", "other", "from")
    return (_type(reader, name), message, given) if looks and message is not None else None


def _type(reader: RustReader, name: str) -> str:
    """`Enum::Variant` or the type alone, without the path to it; `Self` named."""
    parts = re.sub(r"<.*?>", "", one_line(name)).split("::")
    parts = [part for part in parts if part]
    kept = parts[-2:] if len(parts) > 1 and parts[-2][:1].isupper() else parts[-1:]
    return "::".join(kept)


def _field(reader: RustReader, field: Node) -> tuple[str, tuple[Part, ...]]:
    name = text(field.child_by_field_name("field")) or text(field)
    value = field.child_by_field_name("value")
    return name, (_parts(reader, value) if value is not None else None) or (Hole(one_line(text(value or field), 80)),)


def _parts(reader: RustReader, node: Node) -> tuple[Part, ...] | None:
    """The text that an expression gives; None: it is no text."""
    kind = node.type
    if kind in ("string_literal", "raw_string_literal"):
        found = literal_of(text(node))
        return (found[0],) if found else None
    if kind == "macro_invocation":
        name = text(node.child_by_field_name("macro")).rpartition("::")[2]
        return formatted(text(node.named_children[-1])) if name in ("format", "format_args", "concat") else None
    if kind == "call_expression":
        function = node.child_by_field_name("function")
        if function is not None and function.type == "field_expression":
            inner = function.child_by_field_name("value")
            return _parts(reader, inner) if inner is not None else None
        arguments = _arguments(node)
        return _parts(reader, arguments[0]) if re.search(r"String::from$", text(function)) and arguments else None
    if kind == "reference_expression" and node.named_children:
        return _parts(reader, node.named_children[-1])
    return _assigned(reader, node) if kind == "identifier" else None


def _assigned(reader: RustReader, node: Node) -> tuple[Part, ...] | None:
    """A local variable that is given a text once before it is used."""
    function = reader.named_function(node)
    if function is None or function.end_point.row - function.start_point.row > 400:
        return None
    name = text(node)
    values = [
        declared.child_by_field_name("value")
        for declared in ordered_captures("rust", "(let_declaration) @d", function).get("d", ())
        if text(declared.child_by_field_name("pattern")) == name and declared.end_byte <= node.start_byte
    ]
    value = values[0] if len(values) == 1 else None
    return _parts(reader, value) if value is not None and value.type != "identifier" else None


def _method(reader: RustReader, node: Node) -> None:
    function = node.child_by_field_name("function")
    assert function is not None
    method, receiver = text(function.child_by_field_name("field")), function.child_by_field_name("value")
    operation = one_line(text(receiver), 120)
    arguments = _arguments(node)
    line = first_line(receiver) if receiver is not None else first_line(node)
    fails = Guard(operation, True, "none" if method.startswith("ok_or") else "failed", line, last_line(function))
    if method in ("map_err", "ok_or", "ok_or_else") and arguments:
        cause = Cause((), method, line, operation) if method == "map_err" else None
        _made(reader, node, arguments[0], cause=cause, guards=(fails,))
    elif method in ("context", "with_context") and arguments:
        is_closure = arguments[0].type == "closure_expression"
        said = arguments[0].child_by_field_name("body") if is_closure else arguments[0]
        template = _parts(reader, said) if said is not None else None
        if template is not None:
            reader.add("bail", node, method, template, cause=Cause((), method, line, operation), guards=(fails,))
    elif method == "expect" and arguments and (template := _parts(reader, arguments[0])) is not None:
        reader.add("panic", node, "expect", template, guards=(fails,), cause=Cause((), "expect", line, operation))
    elif method == "unwrap" and not arguments:
        words = one_line(text(node), 160)
        reader.add("panic", node, "unwrap", None, guards=(fails,), otherwise=("statement", words))


def _macro(reader: RustReader, node: Node) -> None:
    path = text(node.child_by_field_name("macro"))
    name = path.rpartition("::")[2]
    tree = next((child for child in node.named_children if child.type == "token_tree"), None)
    source = text(tree)[1:-1] if tree is not None else ""
    if name in _BAILS and not (name in ("anyhow", "eyre") and _is_inside_err(node)):
        _bail(reader, node, name, source)
    elif name in _PANICS:
        template = formatted(source) if source else None
        reader.add("panic", node, f"{name}!", template, otherwise=("statement", one_line(text(node))))
    elif name in _ASSERTS:
        _assert(reader, node, name, source)
    elif name == "error" or (name == "event" and "ERROR" in source[:40]):
        template = formatted(source)
        if template is not None and says_something(template):
            reader.add("log", node, f"{path}!", template)


def _is_inside_err(node: Node) -> bool:
    """`Err(anyhow!(…))` is one site."""
    parent = around(node, ("call_expression", "block", "closure_expression"))
    function = parent.child_by_field_name("function") if parent is not None else None
    if function is None:
        return False
    return text(function) == "Err" or (
        function.type == "field_expression" and text(function).endswith(("ok_or", "map_err"))
    )


def _bail(reader: RustReader, node: Node, name: str, source: str) -> None:
    if name != "ensure":
        template = formatted(source)
        kind: Kind = "bail"
        if template is not None:
            reader.add(kind, node, f"{name}!", template)
        return
    condition, *rest = arguments_of(source)
    guard = Guard(condition, False, "assert", first_line(node), first_line(node))
    message = formatted(source[len(condition) :]) if rest else None
    reader.add("bail", node, "ensure!", message, guards=(guard,), otherwise=("condition", condition))


def _assert(reader: RustReader, node: Node, name: str, source: str) -> None:
    arguments: Sequence[str] = arguments_of(source)
    operator = _ASSERTS[name]
    num_operands = 2 if operator else 1
    if len(arguments) < num_operands:
        return
    condition = f" {operator} ".join(arguments[:num_operands])
    guard = Guard(condition, False, "assert", first_line(node), last_line(node))
    message = formatted(", ".join(arguments[num_operands:])) if len(arguments) > num_operands else None
    reader.add("assert", node, f"{name}!", message, guards=(guard,), otherwise=("condition", condition))
