"""Java: what is thrown, exception classes, preconditions, assertions, error logs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tree_sitter import Node

from windtunnel.catalog.extract.braces import FileReader, around, cause_of, comment_above
from windtunnel.catalog.extract.formats import brace_parts, percent_parts, unescaped
from windtunnel.catalog.extract.paths import is_test_path
from windtunnel.catalog.extract.syntax import first_line, last_line, one_line, ordered_captures, text
from windtunnel.catalog.facts import ClassFacts, FileFacts
from windtunnel.catalog.record import Guard, Kind, Language
from windtunnel.catalog.template import Hole, Part, merged, says_something

_FUNCTIONS = frozenset((
    "method_declaration", "constructor_declaration", "lambda_expression", "compact_constructor_declaration",
    "static_initializer",
))  # fmt: skip
_OWNERS = frozenset(("class_declaration", "interface_declaration", "enum_declaration", "record_declaration"))
_QUERY = """
(throw_statement) @throw
(assert_statement) @assert
(return_statement (object_creation_expression type: (_) @made (#match? @made "(Exception|Error)$"))) @return
(method_invocation name: (identifier) @n
  (#match? @n "^(error|fatal|severe|requireNonNull|check[A-Z][A-Za-z]+|isTrue|not(Null|Empty)|orElseThrow)$")) @call
(class_declaration superclass: (superclass)) @class
"""
_LOGGER = re.compile(r"(?:^|\.)(?:log|logger|LOG|LOGGER|_log|_logger)$")
_ERROR = re.compile(r"(?:Exception|Error|Throwable)$")
_CHECKS = {
    "requireNonNull": ("NullPointerException", "{} != null"),
    "checkNotNull": ("NullPointerException", "{} != null"),
    "checkArgument": ("IllegalArgumentException", "{}"),
    "checkState": ("IllegalStateException", "{}"),
    "isTrue": ("IllegalArgumentException", "{}"),
    "notNull": ("NullPointerException", "{} != null"),
    "notEmpty": ("IllegalArgumentException", "{} is not empty"),
}
"""Methods that throw when what they are given does not hold."""


def facts_of(path: str, data: bytes, language: Language) -> FileFacts:
    """Find the errors of a Java file."""
    reader = FileReader(path, data, language, "java", _FUNCTIONS, _OWNERS, is_test_path(path, language))
    found = ordered_captures("java", _QUERY, reader.root)
    for node in found.get("class", ()):
        _class(reader, node)
    for node in found.get("throw", ()):
        if node.named_children:
            _throw(reader, node, node.named_children[0])
    for node in found.get("return", ()):  # made here, thrown by whoever called
        _made(reader, "error value", node, node.named_children[0])
    for node in found.get("assert", ()):
        _assert(reader, node)
    for node in found.get("call", ()):
        _call(reader, node)
    return reader.facts()


def _throw(reader: FileReader, node: Node, value: Node) -> None:
    while value.type in ("parenthesized_expression", "cast_expression") and value.named_children:
        value = value.named_children[-1]
    if value.type == "object_creation_expression":
        _made(reader, "throw", node, value)
    elif value.type == "method_invocation" and text(value.child_by_field_name("name")) != "orElseThrow":
        # made by a method: what it makes is found where it makes it; here stands the statement
        name = one_line(text(value).partition("(")[0], 120)
        arguments = _arguments(value)
        template = _message(reader, arguments)
        cause, words = cause_of(node, arguments), one_line(text(node))
        reader.add("throw", node, name, template, cause=cause, otherwise=("statement", words))


def _made(reader: FileReader, kind: Kind, node: Node, value: Node) -> None:
    arguments = _arguments(value)
    bound = tuple(("", _parts(reader, argument) or (_hole(argument),)) for argument in arguments)
    type_ = re.sub(r"<.*>", "", one_line(text(value.child_by_field_name("type")), 120))
    template = _message(reader, arguments)
    reader.add(kind, node, type_, template, cause=cause_of(node, arguments), arguments=bound)


def _assert(reader: FileReader, node: Node) -> None:
    condition, *rest = node.named_children
    template = _parts(reader, rest[0]) if rest else None
    words = one_line(text(condition))
    guard = Guard(words, False, "assert", first_line(condition), last_line(condition))
    message = template if says_something(template) else None
    reader.add("assert", node, "AssertionError", message, guards=(guard,), otherwise=("condition", words))


def _call(reader: FileReader, node: Node) -> None:
    name, receiver = text(node.child_by_field_name("name")), text(node.child_by_field_name("object"))
    arguments = _arguments(node)
    if name in ("error", "fatal", "severe"):
        template = _message(reader, arguments)
        if _LOGGER.search(receiver) and template is not None:
            kind: Kind = "fatal log" if name == "fatal" else "log"
            reader.add(kind, node, f"{receiver}.{name}", template, cause=cause_of(node, arguments))
    elif name == "orElseThrow":
        made = ordered_captures("java", "(object_creation_expression) @o", node).get("o", ())
        if made and arguments and made[-1].start_byte >= arguments[0].start_byte:
            _made(reader, "throw", node, made[0])
    elif name in _CHECKS and arguments:
        type_, condition = _CHECKS[name]
        template = _message(reader, arguments[1:])
        words = condition.format(one_line(text(arguments[0]), 120))
        guard = Guard(words, False, "assert", first_line(arguments[0]), last_line(arguments[0]))
        reader.add("check", node, type_, template, guards=(guard,), otherwise=("condition", words))


def _arguments(call: Node) -> list[Node]:
    listed = call.child_by_field_name("arguments")
    return [] if listed is None else [child for child in listed.named_children if "comment" not in child.type]


def _message(reader: FileReader, arguments: Sequence[Node]) -> tuple[Part, ...] | None:
    """The first argument that has a text; with a format in it the ones after it are its values."""
    for index, argument in enumerate(arguments):
        parts = _parts(reader, argument)
        if parts is not None and says_something(parts):
            rest = [one_line(text(other), 80) for other in arguments[index + 1 :]]
            if rest and len(parts) == 1 and isinstance(parts[0], str):
                if "{}" in parts[0]:
                    return brace_parts(parts[0], rest, doubled=False)
                return percent_parts(parts[0], rest) if re.search(r"%[-\d.$]*[sdxf]", parts[0]) else parts
            return parts
    return None


def _parts(reader: FileReader, node: Node) -> tuple[Part, ...] | None:
    """What an expression adds to a message; None: nothing that is text."""
    kind = node.type
    if kind == "string_literal":
        return (_literal(text(node)),)
    if kind == "binary_expression" and text(node.child_by_field_name("operator")) == "+":
        sides = [side for name in ("left", "right") if (side := node.child_by_field_name(name))]
        return merged(part for side in sides for part in (_parts(reader, side) or (_hole(side),)))
    if kind in ("parenthesized_expression", "lambda_expression") and node.named_children:
        return _parts(reader, node.named_children[-1])
    if kind == "method_invocation":
        return _called(reader, node)
    if kind == "identifier":
        return _assigned(reader, node)
    return None


def _literal(source: str) -> str:
    if source.startswith('"""'):
        lines = source[3:-3].split("\n")[1:]
        indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
        return unescaped("\n".join(line[indent:] for line in lines))
    return unescaped(source[1:-1])


def _called(reader: FileReader, node: Node) -> tuple[Part, ...] | None:
    """`String.format`, `"…".formatted`, `MessageFormat.format`, `String.join` of what is written out."""
    name, receiver = text(node.child_by_field_name("name")), node.child_by_field_name("object")
    arguments = _arguments(node)
    if name == "formatted" and receiver is not None and receiver.type == "string_literal":
        return percent_parts(_literal(text(receiver)), [one_line(text(value), 80) for value in arguments])
    if name in ("format", "lenientFormat") and arguments:
        if text(receiver).endswith("Locale") or arguments[0].type not in (
            "string_literal",
            "binary_expression",
            "identifier",
        ):
            arguments = arguments[1:]
        first = _parts(reader, arguments[0]) if arguments else None
        if first and len(first) == 1 and isinstance(first[0], str):
            values = [one_line(text(value), 80) for value in arguments[1:]]
            return (
                brace_parts(first[0], values) if "MessageFormat" in text(receiver) else percent_parts(first[0], values)
            )
    if name == "toString" and receiver is not None:
        return _parts(reader, receiver)
    return None


def _assigned(reader: FileReader, node: Node) -> tuple[Part, ...] | None:
    """A local variable that is given a text once before it is used, or a constant of the class."""
    name, method = text(node), reader.named_function(node)
    for place in (method, reader.root):
        if place is None or (place is not reader.root and place.end_point.row - place.start_point.row > 400):
            continue
        declared = [
            declarator
            for declarator in ordered_captures("java", "(variable_declarator) @d", place).get("d", ())
            if text(declarator.child_by_field_name("name")) == name
            and (place is reader.root or declarator.end_byte <= node.start_byte)
            and (place is not reader.root or around(declarator, _FUNCTIONS) is None)
        ]
        value = declared[0].child_by_field_name("value") if len(declared) == 1 else None
        if value is not None and value.type in ("string_literal", "binary_expression", "method_invocation"):
            return _parts(reader, value)
    return None


def _hole(node: Node) -> Hole:
    return Hole(one_line(text(node), 80))


def _class(reader: FileReader, node: Node) -> None:
    """An exception class, with the text that its constructor hands to its base or `getMessage` returns."""
    base = re.sub(r"^extends\s+|<.*", "", one_line(text(node.child_by_field_name("superclass"))))
    if not _ERROR.search(base):
        return
    template, parameters = None, list[tuple[str, str]]()
    for call in ordered_captures("java", "(explicit_constructor_invocation) @c", node).get("c", ()):
        constructor = around(call, ("constructor_declaration",))
        found = _message(reader, _arguments(call))
        if template is None and found is not None and constructor is not None and around(constructor, _OWNERS) == node:
            template = found
            listed = ordered_captures("java", "(formal_parameter) @p", constructor).get("p", ())
            parameters = [(text(parameter.child_by_field_name("name")), "") for parameter in listed]
    for method in ordered_captures("java", "(method_declaration) @m", node).get("m", ()):
        if template is None and text(method.child_by_field_name("name")) == "getMessage":
            for returned in ordered_captures("java", "(return_statement) @r", method).get("r", ()):
                found = _parts(reader, returned.named_children[0]) if returned.named_children else None
                template = found if says_something(found) else template
    name, scope = text(node.child_by_field_name("name")), reader.owner_of(node)
    reader.classes.append(
        ClassFacts(
            f"{scope}.{name}" if scope else name, first_line(node), last_line(node), (base,), comment_above(node),
            tuple(parameters), template,
        )
    )  # fmt: skip
