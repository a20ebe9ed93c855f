"""TypeScript and JavaScript: what is thrown, rejected promises, error classes, errors told on the console or a log."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tree_sitter import Node

from windtunnel.catalog.extract.braces import FileReader, around, cause_of, comment_above
from windtunnel.catalog.extract.formats import percent_parts, unescaped
from windtunnel.catalog.extract.paths import is_test_path
from windtunnel.catalog.extract.syntax import first_line, last_line, one_line, ordered_captures, text
from windtunnel.catalog.facts import ClassFacts, FileFacts
from windtunnel.catalog.record import Kind, Language
from windtunnel.catalog.template import Hole, Part, merged, says_something

_FUNCTIONS = frozenset((
    "function_declaration", "generator_function_declaration", "method_definition", "arrow_function",
    "function_expression",
))  # fmt: skip
_OWNERS = frozenset(("class_declaration", "class", "abstract_class_declaration"))
_QUERY = """
(throw_statement) @throw
(call_expression function: (member_expression)) @call
(call_expression function: (identifier) @name (#match? @name "^(reject|invariant|assert|fail|_?err)$")) @call
(class_declaration (class_heritage)) @class
(return_statement (new_expression constructor: (_) @made (#match? @made "(Error|Exception)$"))) @return
"""
_LOGGERS = re.compile(r"(?:^|\.)(?:console|log|logger|_logger|_log)\.(error|fatal|critical)$")
_ERROR = re.compile(r"(?:Error|Exception|Failure)$")


def facts_of(path: str, data: bytes, language: Language) -> FileFacts:
    """Find the errors of a TypeScript or JavaScript file."""
    grammar = {"typescript": "tsx" if path.endswith("x") else "typescript"}.get(language, "javascript")
    reader = FileReader(path, data, language, grammar, _FUNCTIONS, _OWNERS, is_test_path(path, language))
    found = ordered_captures(grammar, _QUERY, reader.root)
    for node in found.get("class", ()):
        _class(reader, node)
    for node in found.get("throw", ()):
        if node.named_children:
            _raised(reader, "throw", node, node.named_children[0])
    for node in found.get("return", ()):  # made here, thrown by whoever called
        _raised(reader, "error value", node, node.named_children[0])
    for node in found.get("call", ()):
        _call(reader, node)
    return reader.facts()


def _call(reader: FileReader, node: Node) -> None:
    name = one_line(text(node.child_by_field_name("function")))
    arguments = _arguments(node)
    if name in ("reject", "Promise.reject"):
        if arguments:
            _raised(reader, "reject", node, arguments[0])
    elif name in ("invariant", "assert", "console.assert") and len(arguments) >= 1:
        template = _message(reader, arguments[1:])
        condition = one_line(text(arguments[0]))
        reader.add("assert", node, name, template, otherwise=("condition", condition))
    elif match := _LOGGERS.search(name):
        template = _message(reader, arguments)
        if template is not None:
            kind: Kind = "log" if match[1] == "error" else "fatal log"
            reader.add(kind, node, name, template, cause=cause_of(node, arguments))


def _raised(reader: FileReader, kind: Kind, node: Node, value: Node) -> None:
    while value.type in ("parenthesized_expression", "as_expression", "non_null_expression") and value.named_children:
        value = value.named_children[0]
    if value.type == "new_expression" or (value.type == "call_expression" and _makes_error(value)):
        arguments = _arguments(value)
        made = value.child_by_field_name("constructor") or value.child_by_field_name("function")
        bound = tuple(("", _parts(reader, argument) or (_hole(argument),)) for argument in arguments)
        template, type_ = _message(reader, arguments), one_line(text(made), 120)
        reader.add(kind, node, type_, template, cause=cause_of(node, arguments), arguments=bound)
    elif value.type in ("string", "template_string", "binary_expression"):
        reader.add(kind, node, "string", _parts(reader, value), cause=cause_of(node, (value,)))


def _makes_error(call: Node) -> bool:
    """Whether a call without `new` makes an error: `Error("…")`, `createError("…")`."""
    name = text(call.child_by_field_name("function"))
    return bool(_ERROR.search(name)) or bool(re.search(r"(?:^|\.)(?:create|make|new|get)\w*(?:Error|Exception)", name))


def _arguments(call: Node) -> list[Node]:
    listed = call.child_by_field_name("arguments")
    if listed is None or listed.type == "template_string":
        return [] if listed is None else [listed]
    return [child for child in listed.named_children if child.type != "comment"]


def _message(reader: FileReader, arguments: Sequence[Node]) -> tuple[Part, ...] | None:
    """The first argument that has a text; with `%s` the ones after it are its values. `{message: …}` counts too."""
    for index, argument in enumerate(arguments):
        if argument.type == "object":
            pairs = {
                text(pair.child_by_field_name("key")): pair.child_by_field_name("value")
                for pair in argument.named_children
            }
            value = pairs.get("message")
            parts = _parts(reader, value) if value is not None else None
        else:
            parts = _parts(reader, argument)
        if parts is not None and says_something(parts):
            if len(parts) == 1 and isinstance(parts[0], str) and re.search(r"%[sdifjoO]", parts[0]):
                return percent_parts(parts[0], [one_line(text(other), 80) for other in arguments[index + 1 :]])
            return parts
    return None


def _parts(reader: FileReader, node: Node) -> tuple[Part, ...] | None:
    """What an expression adds to a message; None: nothing that is text."""
    kind = node.type
    if kind == "string":
        return (unescaped(text(node)[1:-1]),)
    if kind == "template_string":
        return _template(node)
    if kind == "binary_expression" and text(node.child_by_field_name("operator")) == "+":
        sides = [side for name in ("left", "right") if (side := node.child_by_field_name(name))]
        return merged(part for side in sides for part in (_parts(reader, side) or (_hole(side),)))
    if kind in ("parenthesized_expression", "as_expression", "non_null_expression") and node.named_children:
        return _parts(reader, node.named_children[0])
    if kind == "ternary_expression":
        return _either(reader, node)
    if kind == "call_expression":
        return _joined_lines(reader, node)
    if kind == "identifier":
        return _assigned(reader, node)
    return None


def _template(node: Node) -> tuple[Part, ...]:
    source, parts, end = node.text or b"", list[Part](), 1
    for child in node.named_children:
        if child.type == "template_substitution":
            start = child.start_byte - node.start_byte
            parts.append(unescaped(source[end:start].decode("utf-8", "replace")))
            parts.append(Hole(one_line(text(child)[2:-1], 80)))
            end = child.end_byte - node.start_byte
    return merged([*parts, unescaped(source[end:-1].decode("utf-8", "replace"))])


def _either(reader: FileReader, node: Node) -> tuple[Part, ...] | None:
    """A choice between two texts: a hole with both."""
    sides = [node.child_by_field_name(name) for name in ("consequence", "alternative")]
    texts = [parts[0] for side in sides if side is not None and (parts := _parts(reader, side)) and len(parts) == 1]
    values = tuple(part for part in texts if isinstance(part, str))
    return (Hole(one_line(text(node), 80), values=values),) if len(values) == 2 else None


def _joined_lines(reader: FileReader, node: Node) -> tuple[Part, ...] | None:
    """`[…].join("\\n")` of an array that is written out."""
    function = node.child_by_field_name("function")
    array = function.child_by_field_name("object") if function is not None else None
    arguments = _arguments(node)
    if array is None or array.type != "array" or not text(function).endswith(".join") or len(arguments) != 1:
        return None
    glue = _parts(reader, arguments[0])
    parts: list[Part] = []
    for item in array.named_children:
        parts += [*(glue if parts and glue else ()), *(_parts(reader, item) or (_hole(item),))]
    return merged(parts)


def _assigned(reader: FileReader, node: Node) -> tuple[Part, ...] | None:
    """A local variable that is given a text once before it is used, or a constant of the file."""
    name, function = text(node), reader.named_function(node)
    for place in (function, reader.root):
        if place is None or (place is not reader.root and place.end_point.row - place.start_point.row > 400):
            continue
        declared = [
            declarator
            for declarator in ordered_captures(reader.grammar, "(variable_declarator) @d", place).get("d", ())
            if text(declarator.child_by_field_name("name")) == name
            and declarator.end_byte <= node.start_byte
            and (place is not reader.root or around(declarator, _FUNCTIONS) is None)
        ]
        value = declared[0].child_by_field_name("value") if len(declared) == 1 else None
        if value is not None and value.type in ("string", "template_string", "binary_expression", "ternary_expression"):
            return _parts(reader, value)
    return None


def _hole(node: Node) -> Hole:
    return Hole(one_line(text(node), 80))


def _class(reader: FileReader, node: Node) -> None:
    """An error class, with the text that its constructor hands to its base or assigns to `message`."""
    base = re.sub(r"^extends\s+|<.*|\s+implements.*", "", one_line(text(node.child(2))))
    bases = ordered_captures(reader.grammar, "(class_heritage) @h", node).get("h", ())
    base = re.sub(r"^extends\s+|[<{(\s].*$", "", one_line(text(bases[0]))) if bases else base
    if not _ERROR.search(base):
        return
    name = text(node.child_by_field_name("name"))
    template, parameters = None, list[tuple[str, str]]()
    for method in ordered_captures(reader.grammar, "(method_definition) @m", node).get("m", ()):
        if text(method.child_by_field_name("name")) == "constructor" and around(method, _OWNERS) == node:
            template, parameters = _constructed(reader, method), _parameters(method)
    for attribute in ordered_captures(reader.grammar, _ATTRIBUTES[reader.grammar != "javascript"], node).get("f", ()):
        named = attribute.child_by_field_name("name") or attribute.child_by_field_name("property")
        value = attribute.child_by_field_name("value")
        if template is None and text(named) == "message" and value is not None:
            template = _parts(reader, value)
    statement = node.parent if node.parent is not None and node.parent.type == "export_statement" else node
    if not says_something(template):
        template = None
    reader.classes.append(
        ClassFacts(
            name, first_line(node), last_line(node), (base,), comment_above(statement), tuple(parameters), template
        )
    )


_ATTRIBUTES = ("(field_definition) @f", "(public_field_definition) @f")


def _constructed(reader: FileReader, method: Node) -> tuple[Part, ...] | None:
    for call in ordered_captures(reader.grammar, "(call_expression function: (super)) @c", method).get("c", ()):
        if template := _message(reader, _arguments(call)):
            return template
    for assignment in ordered_captures(reader.grammar, "(assignment_expression) @a", method).get("a", ()):
        right = assignment.child_by_field_name("right")
        if text(assignment.child_by_field_name("left")) == "this.message" and right is not None:
            return _parts(reader, right)
    return None


def _parameters(method: Node) -> list[tuple[str, str]]:
    listed = method.child_by_field_name("parameters")
    found = []
    for parameter in listed.named_children if listed is not None else ():
        pattern = parameter.child_by_field_name("pattern") or parameter.child_by_field_name("left") or parameter
        default = parameter.child_by_field_name("value") or parameter.child_by_field_name("right")
        found.append((text(pattern), one_line(text(default), 80)))
    return found
