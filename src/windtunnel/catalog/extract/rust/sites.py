"""Where Rust makes errors: `Err(…)`, `map_err`, `ok_or`, `bail!`, `ensure!`, panics, `expect`, contexts, error logs."""

from __future__ import annotations

import re

from tree_sitter import Node

from windtunnel.catalog.extract.rust.errors import formatted, literal_of, pieces_of
from windtunnel.catalog.extract.rust.macros import macro_site
from windtunnel.catalog.extract.rust.nested import is_noted, variants_made
from windtunnel.catalog.extract.rust.reader import RustReader
from windtunnel.catalog.extract.syntax import first_line, last_line, one_line, ordered_captures, text
from windtunnel.catalog.record import Cause, Guard
from windtunnel.catalog.template import Hole, Part, says_something

_QUERY = """
(call_expression function: (identifier) @f (#eq? @f "Err")) @err
(call_expression function: (field_expression field: (field_identifier) @m
  (#match? @m "^(map_err|ok_or|ok_or_else|(with_)?context|wrap_err(_with)?|expect|unwrap|expect_err)$"))) @method
(macro_invocation) @macro
(call_expression function: (scoped_identifier) @p (#match? @p "process::exit$")) @exit
"""


_GIVES_OPTION = re.compile(
    r"\.(?:get|get_mut|first|last|next|next_back|nth|pop|pop_front|pop_back|find|find_map|position|parent|file_name|"
    r"file_stem|extension|to_str|as_str|as_ref|as_mut|as_array|as_object|as_table|as_deref|as_u64|as_i64|as_f64|as_bool|"
    r"take|ok|err|split_once|rsplit_once|checked_\w+|min|max|min_by_key|max_by_key|peek|remove|strip_suffix|host_str|"
    r"path_segments)\((?:[^()]|\([^()]*\))*\)$|\?$"
)
"""Operations that give an Option, by how they end: one that failed has left at its `?`."""


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
            macro_site(reader, node)
    for node in found.get("exit", ()):
        if not reader.in_tests(node):
            _exit(reader, node)
    for node, type_ in variants_made(reader):
        if not is_noted(reader, node, type_):
            made = _error(reader, node)
            reader.add("construct", node, type_, None, arguments=made[2] if made else (), is_sure=False)


def _exit(reader: RustReader, node: Node) -> None:
    """`std::process::exit`, with what is printed right before; one with 0 is no error."""
    if [text(argument) for argument in _arguments(node)] == ["0"]:
        return
    statement = node.parent if node.parent is not None and node.parent.type == "expression_statement" else node
    before = statement.prev_named_sibling
    macro = before.named_children[0] if before is not None and before.type == "expression_statement" else None
    template = None
    if macro is not None and macro.type == "macro_invocation":
        name = text(macro.child_by_field_name("macro")).rpartition("::")[2]
        template = formatted(text(macro.named_children[-1])[1:]) if name in ("eprintln", "eprint", "println") else None
    words = one_line(text(node))
    reader.add("exit", node, "std::process::exit", template if says_something(template) else None,
               otherwise=("statement", words))  # fmt: skip


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
        said = [parts for name, parts in given if name in ("message", "msg", "reason") and says_something(parts)]
        return _type(reader, text(value.child_by_field_name("name")), value), said[0] if said else None, given
    name = text(value.child_by_field_name("name"))
    if kind == "scoped_identifier" and name[:1].isupper() and not re.fullmatch(r"[A-Z]+(?:_[A-Z0-9]+)*", name[1:]):
        return _type(reader, text(value), value), None, ()
    if kind == "macro_invocation":
        name = text(value.child_by_field_name("macro")).rpartition("::")[2]
        template = formatted(text(value.named_children[-1])[1:])
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
    if function.type == "generic_function":  # `….into::<E>()`
        function = function.child_by_field_name("function") or function
    if function.type == "field_expression":  # `….into()`, `….to_string()`, `Error::new(…).context(…)`
        inner = function.child_by_field_name("value")
        method = text(function.child_by_field_name("field"))
        passes = method.startswith("into") or method in ("to_string", "to_owned", "build")
        return _error(reader, inner) if inner is not None and passes else None
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
        return _type(reader, name, value), None if "::" in name else message, given
    owner = name.rpartition("::")[0].rpartition("::")[2]
    looks = owner.endswith(("Error", "Err")) or owner == "Self" or last in ("custom", "new", "msg", "other", "from")
    return (_type(reader, name, value), message, given) if looks and message is not None else None


def _type(reader: RustReader, name: str, node: Node) -> str:
    """`Enum::Variant` or the type alone, with the path that the code writes; `Self` named."""
    parts = [part for part in re.sub(r"<.*?>", "", one_line(name)).split("::") if part]
    if parts[0] == "Self":
        parts[0] = reader.owner_of(node) or "Self"
    return "::".join(parts)


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
        name, source = text(node.child_by_field_name("macro")).rpartition("::")[2], text(node.named_children[-1])[1:]
        if name == "concat":
            pieces = [literal_of(piece) for piece in pieces_of(source)]
            return ("".join(piece[0] for piece in pieces if piece),) if all(pieces) else None
        return formatted(source) if name in ("format", "format_args") else None
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
    is_none = method.startswith("ok_or") or (method != "map_err" and bool(_GIVES_OPTION.search(operation)))
    fails = Guard(operation, True, "none" if is_none else "failed", line, last_line(function))
    if method in ("map_err", "ok_or", "ok_or_else") and arguments:
        cause = Cause((), method, line, operation) if method == "map_err" else None
        _made(reader, node, arguments[0], cause=cause, guards=(fails,))
    elif method in ("context", "with_context", "wrap_err", "wrap_err_with") and arguments:
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
