"""Where Go makes errors: error values, sentinels, error types, panics, fatal and error logs, exits, answers of HTTP."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tree_sitter import Node

from windtunnel.catalog.extract.go.causes import cause_of
from windtunnel.catalog.extract.go.errors import note_sentinel
from windtunnel.catalog.extract.go.messages import arguments_of, formatted, hole, parts_of, printed
from windtunnel.catalog.extract.go.names import (
    CODE,
    ERROR_TYPE,
    HANDS_ON,
    LEVELS,
    LOGGER,
    MAKER,
    OWN_MAKER,
    PRINTS,
    SAYS,
    SENTINEL,
    STATUS,
    TESTING,
)
from windtunnel.catalog.extract.go.reader import GoReader, statement_of
from windtunnel.catalog.extract.syntax import first_line, one_line, ordered_captures, text
from windtunnel.catalog.facts import ClassFacts
from windtunnel.catalog.record import Kind
from windtunnel.catalog.template import Hole, Part, merged, says_something

_QUERY = """
(call_expression) @call
(composite_literal) @literal
[(return_statement) (send_statement) (assignment_statement) (short_var_declaration)] @gives
"""
_PASSED_THROUGH = frozenset((
    "unary_expression", "expression_list", "parenthesized_expression", "literal_element", "keyed_element",
    "literal_value", "composite_literal",
))  # fmt: skip


def find_sites(reader: GoReader) -> None:
    """Note every site of the file. An outer call is read before those in it, which may be its message."""
    for spec in reader.specs:
        _sentinel(reader, spec)
    found = ordered_captures("go", _QUERY, reader.root)
    for node in found.get("call", ()):
        if node.id not in reader.taken:
            _call(reader, node)
        if HANDS_ON.search(text(node.child_by_field_name("function"))):
            _sentinels(reader, arguments_of(node), statement_of(node))
    for node in found.get("literal", ()):
        if node.id not in reader.taken:
            _literal(reader, node)
    for node in found.get("gives", ()):
        _sentinels(reader, _given(node), node)


def _sentinels(reader: GoReader, given: Iterable[Node], statement: Node) -> None:
    """The sentinels among what a statement gives to others."""
    for name in given:
        if SENTINEL.match(text(name)) and not reader.is_local(text(name), name):
            reader.add("error value", name, text(name), None, statement=statement, cause=cause_of(reader, name, ()))


# --- what makes an error ----------------------------------------------------------------------------------------------


def _call(reader: GoReader, node: Node) -> None:
    name, arguments = one_line(text(node.child_by_field_name("function"))), arguments_of(node)
    if _makes(node):
        type_, template = _made(reader, name, node)
        _add(reader, "error value", node, type_, template, arguments)
    elif name == "panic" and arguments:
        _add(reader, "panic", node, name, _message(reader, arguments), arguments)
    elif name == "os.Exit" and arguments and text(arguments[0]) != "0":
        _exit(reader, node)
    elif name == "http.Error" and len(arguments) == 3:
        _add(reader, "error value", node, name, _message(reader, arguments[1:2]), arguments[1:2])
    elif name in reader.error_types and _is_given(node) and len(arguments) == 1:  # a type that is applied
        given = (("", parts_of(arguments[0], reader.constants) or (hole(arguments[0]),)),)
        reader.add("error value", node, name, None, arguments=given, statement=statement_of(node),
                   cause=cause_of(reader, node, arguments))  # fmt: skip
    elif OWN_MAKER.match(name) and _is_given(node):
        _made_by_own(reader, node, name, arguments)
    else:
        _log(reader, node, name, arguments)


def _makes(call: Node) -> bool:
    """Whether a call makes an error of a text; a status that says OK is none."""
    name, arguments = text(call.child_by_field_name("function")), arguments_of(call)
    is_maker = bool(MAKER.match(name) or STATUS.match(name)) and bool(arguments)
    return is_maker and text(arguments[0]) != "codes.OK"


def _made_by_own(reader: GoReader, node: Node, name: str, arguments: list[Node]) -> None:
    """`newError(code, "…")`. A text that other arguments follow may be a label, and a format's are its values."""
    is_format = name.endswith("f")
    said = arguments if is_format else arguments[-1:]
    template = _message(reader, said, is_format=is_format)
    if template is not None:
        _add(reader, "error value", node, name, template, arguments)
    else:  # what is made for it stands for itself
        reader.taken.difference_update(argument.id for argument in arguments)


def _add(
    reader: GoReader, kind: Kind, node: Node, type_: str, template: tuple[Part, ...] | None, arguments: Sequence[Node]
) -> None:
    template = template if says_something(template) else None
    reader.add(kind, node, type_, template, cause=cause_of(reader, node, arguments), statement=statement_of(node),
               otherwise=("statement", one_line(text(node), 160)))  # fmt: skip


def _made(reader: GoReader, name: str, node: Node) -> tuple[str, tuple[Part, ...] | None]:
    """Type and message of a call that makes an error."""
    arguments = arguments_of(node)
    is_format = name.endswith("f")
    if STATUS.match(name):
        code = CODE.match(text(arguments[0]))
        type_ = f"codes.{code[1]}" if code else name
        if code and not any(each.name == type_ for each in reader.classes):
            shown = (f"rpc error: code = {code[1]} desc = ", Hole("message"))
            line = first_line(node)
            reader.classes.append(ClassFacts(type_, line, line, renders=shown))
        return type_, _message(reader, arguments[1:], is_format=is_format)
    if name.rpartition(".")[2].startswith(("Wrap", "WithMessage", "Annotate", "Trace")):
        said = _message(reader, arguments[1:], is_format=is_format)
        return name, merged((*said, ": ", hole(arguments[0]))) if said else None
    return name, _message(reader, arguments, is_format=is_format)


def _message(
    reader: GoReader, arguments: Sequence[Node], *, is_format: bool = False, spaced: bool = False
) -> tuple[Part, ...] | None:
    """What the arguments say. An error that is made in place says it for them, and is no site of its own."""
    said = [i for i, each in enumerate(arguments) if parts_of(each, reader.constants)]
    if is_format:
        return formatted(arguments[said[0] :], reader.constants) if said else None
    if len(arguments) == 1 and arguments[0].type == "call_expression" and _makes(arguments[0]):
        reader.taken.add(arguments[0].id)
        return _made(reader, text(arguments[0].child_by_field_name("function")), arguments[0])[1]
    said = [i for i in said if says_something(parts_of(arguments[i], reader.constants))]
    if not said:
        return None
    first = arguments[said[0]]
    is_after_another = said[0] > 0 and first.type.endswith("literal") and not spaced  # (err, "text"): a structured log
    if is_after_another or _are_fields(arguments[said[0] + 1 :]):
        return parts_of(first, reader.constants)
    return printed(arguments, reader.constants, spaced=spaced)


def _are_fields(arguments: Sequence[Node]) -> bool:
    """Whether what follows a message are fields of a structured log: `zap.Error(err)`, or a key in quotes."""
    if not arguments:
        return False
    first = text(arguments[0])
    return bool(re.match(r"(?:zap|slog|log|field)\.[A-Z]\w*\(|(?:\w+\.)?\w*[fF]ields?\b", first)) or (
        len(arguments) % 2 == 0 and bool(re.match(r'^"[\w.\-/ ]{1,40}"$', first))
    )


def _literal(reader: GoReader, node: Node) -> None:
    """`&PathError{…}`: a value of an error type."""
    type_, body = text(node.child_by_field_name("type")), node.child_by_field_name("body")
    if not _is_error_type(reader, type_) or body is None or not _is_given(node):
        return
    given: list[tuple[str, tuple[Part, ...]]] = []
    arguments: list[Node] = []
    for element in body.named_children:
        if element.type == "comment":
            continue
        key, value = element.child_by_field_name("key"), element.child_by_field_name("value") or element
        value = value.named_children[0] if value.type == "literal_element" and value.named_children else value
        given.append((text(key), _inner(reader, value) or (hole(value),)))
        arguments.append(value)
    said = [value for key, value in given if says_something(value) and (SAYS.search(key) or len(given) == 1)]
    template = said[0] if len(said) == 1 else None
    reader.add("error value", node, type_, template, cause=cause_of(reader, node, arguments), arguments=tuple(given),
               statement=statement_of(node))  # fmt: skip


def _inner(reader: GoReader, value: Node) -> tuple[Part, ...] | None:
    """A field's text; an error that is made for a field is no site of its own."""
    if value.type == "call_expression" and _makes(value):
        reader.taken.add(value.id)
        return _made(reader, text(value.child_by_field_name("function")), value)[1]
    return parts_of(value, reader.constants)


def _is_error_type(reader: GoReader, name: str) -> bool:
    return name in reader.error_types or bool(ERROR_TYPE.match(name))


def _given(node: Node) -> list[Node]:
    """The values of a statement that hands them out, or keeps them."""
    if node.type == "return_statement":
        return [each for listed in node.named_children for each in listed.named_children]
    value = node.child_by_field_name("value") if node.type == "send_statement" else node.child_by_field_name("right")
    if value is None:
        return []
    return value.named_children if value.type == "expression_list" else [value]


def _is_given(node: Node) -> bool:
    """Whether a value is returned, sent, assigned or handed on, not compared or called upon."""
    current, parent = node, node.parent
    while parent is not None and parent.type in _PASSED_THROUGH:
        current, parent = parent, parent.parent
    if parent is None:
        return False
    if parent.type == "argument_list" and parent.parent is not None:
        called = text(parent.parent.child_by_field_name("function"))
        return not re.search(r"(?:^|\.)(?:Is|As|Equal|DeepEqual|len|cap|new|append)$", called)
    if parent.type in ("short_var_declaration", "assignment_statement"):
        return current == parent.child_by_field_name("right")
    return parent.type in ("return_statement", "send_statement", "var_spec")


# --- panics, logs, exits ----------------------------------------------------------------------------------------------


def _log(reader: GoReader, node: Node, name: str, arguments: list[Node]) -> None:
    receiver, _, method = name.rpartition(".")
    kind = next((kind for pattern, kind in LEVELS if pattern.match(method)), None)
    if kind is None or not receiver or not LOGGER.search(receiver) or TESTING.match(receiver) or not arguments:
        return
    template = _message(reader, arguments, is_format=method.endswith("f"), spaced=method.endswith("ln"))
    if template is not None or kind != "log":
        _add(reader, kind, node, name, template, arguments)


def _exit(reader: GoReader, node: Node) -> None:
    """`os.Exit`, with what is printed right before."""
    statement = statement_of(node)
    before = statement.prev_named_sibling
    call = before.named_children[0] if before is not None and before.type == "expression_statement" else None
    template = None
    if call is not None and call.type == "call_expression":
        name, arguments = text(call.child_by_field_name("function")), arguments_of(call)
        if PRINTS.match(name):
            arguments = arguments[1:] if ".Fprint" in name else arguments
            template = _message(reader, arguments, is_format=name.endswith("f"), spaced=name.endswith("ln"))
    reader.add("exit", node, "os.Exit", template if says_something(template) else None, statement=statement,
               cause=cause_of(reader, node, ()), otherwise=("statement", one_line(text(node))))  # fmt: skip


# --- sentinels --------------------------------------------------------------------------------------------------------


def _sentinel(reader: GoReader, spec: Node) -> None:
    """`var ErrX = errors.New("…")`: an error with a name, made once."""
    names, values = spec.children_by_field_name("name"), spec.child_by_field_name("value")
    if spec.type != "var_spec" or values is None or len(names) != 1 or len(values.named_children) != 1:
        return
    value = values.named_children[0]
    call = _innermost(value)
    literal = call.named_children[0] if call.type == "unary_expression" and call.named_children else call
    type_ = text(literal.child_by_field_name("type")) if literal.type == "composite_literal" else ""
    if type_ and _is_error_type(reader, type_):
        reader.taken.add(literal.id)
        note_sentinel(reader, spec, None, type_)
        return
    template = None
    if call.type == "call_expression" and _makes(call):
        template = _made(reader, text(call.child_by_field_name("function")), call)[1]
    elif call.type == "call_expression" and SENTINEL.match(text(names[0])):
        template = _message(reader, arguments_of(call))
    if template is not None:
        reader.taken.update((call.id, value.id))
        reader.add("error value", spec, note_sentinel(reader, spec, template), template)


def _innermost(call: Node) -> Node:
    """Of `status.New(…).Err()` the first call."""
    while call.type == "call_expression":
        function = call.child_by_field_name("function")
        inner = function.child_by_field_name("operand") if function is not None else None
        if inner is None or inner.type != "call_expression":
            break
        call = inner
    return call
