"""Go: error values, sentinels, error types, panics, fatal exits, error logs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tree_sitter import Node

from windtunnel.catalog.extract.braces import FileReader, around
from windtunnel.catalog.extract.formats import percent_parts, unescaped
from windtunnel.catalog.extract.paths import is_test_path
from windtunnel.catalog.extract.syntax import first_line, last_line, one_line, ordered_captures, text
from windtunnel.catalog.facts import ClassFacts, FileFacts
from windtunnel.catalog.record import Cause, Kind, Language
from windtunnel.catalog.template import Hole, Part, merged, says_something

_FUNCTIONS = frozenset(("function_declaration", "method_declaration", "func_literal"))
_QUERY = """
(call_expression function: [(identifier) (selector_expression)]) @call
(return_statement) @return
(method_declaration name: (field_identifier) @n (#eq? @n "Error")) @error
"""
_ERRORS = re.compile(
    r"(?:^|\.)(?:errors|xerrors|pkgerrors|fmt|status|grpcstatus)\.(New|Errorf|Wrapf?|WithMessagef?|Error)$"
)
_FATAL = re.compile(
    r"(?:^|\.)(?:log|klog|glog|logger|lg|zap|slog|sugar|Logger)\w*(?:\(\))?\.(Fatal|Panic|Exit)(?:f|ln|w)?$"
)
_LOG = re.compile(r"(?:^|\.)(?:log|klog|glog|logger|lg|zap|slog|sugar|Logger)\w*(?:\(\))?\.Error(?:f|ln|w|S)?$")


def facts_of(path: str, data: bytes, language: Language) -> FileFacts:
    """Find the errors of a Go file."""
    reader = _GoReader(path, data, language, "go", _FUNCTIONS, frozenset(), is_test_path(path, language))
    found = ordered_captures("go", _QUERY, reader.root)
    for method in found.get("error", ()):
        _type(reader, method)
    for node in found.get("call", ()):
        _call(reader, node)
    for node in found.get("return", ()):
        _returned(reader, node)
    return reader.facts()


class _GoReader(FileReader):
    def owner_of(self, node: Node) -> str:
        """The receiver's type of a method."""
        method = node if node.type == "method_declaration" else around(node, ("method_declaration",))
        receiver = method.child_by_field_name("receiver") if method is not None else None
        if receiver is None or not receiver.named_children:
            return ""
        return re.sub(r"^\*|\[.*", "", text(receiver.named_children[0].child_by_field_name("type")))


def _arguments(call: Node) -> list[Node]:
    listed = call.child_by_field_name("arguments")
    return [] if listed is None else [child for child in listed.named_children if child.type != "comment"]


def _call(reader: FileReader, node: Node) -> None:
    name = one_line(text(node.child_by_field_name("function")), 120)
    arguments = _arguments(node)
    if name == "panic":
        template = _message(reader, arguments)
        reader.add("panic", node, "panic", template, otherwise=("statement", one_line(text(node))))
    elif match := _ERRORS.search(name):
        _error(reader, node, name, match[1], arguments)
    elif (match := _FATAL.search(name)) or _LOG.search(name):
        template = _message(reader, arguments)
        if template is not None:
            kind: Kind = "log" if match is None else "panic" if match[1] == "Panic" else "fatal log"
            reader.add(kind, node, name, template)


def _error(reader: FileReader, node: Node, name: str, function: str, arguments: list[Node]) -> None:
    given = (
        arguments[1:]
        if name.partition(".")[0].endswith("status") or function.startswith(("Wrap", "With"))
        else arguments
    )
    template = _message(reader, given)
    if template is None:
        return
    wrapped = arguments[0] if function.startswith(("Wrap", "With")) else _wrapped(template, given)
    cause = None
    if wrapped is not None:
        cause = Cause((), "%w" if function == "Errorf" else function, first_line(node), one_line(text(wrapped), 80))
    reader.add("error value", node, _sentinel(node) or name, template, cause=cause)


def _sentinel(node: Node) -> str:
    """`var ErrGone = errors.New(…)`: the variable is what others compare with."""
    spec = around(node, ("var_spec", "block"))
    name = spec.child_by_field_name("name") if spec is not None and spec.type == "var_spec" else None
    return text(name) if name is not None and re.match(r"_?[eE]rr", text(name)) else ""


def _wrapped(template: tuple[Part, ...], arguments: list[Node]) -> Node | None:
    holes = [part for part in template if isinstance(part, Hole)]
    for hole, argument in zip(holes, arguments[1:], strict=False):
        if hole.format == "%w":
            return argument
    return None


def _returned(reader: FileReader, node: Node) -> None:
    """`return nil, &LoadError{Key: k}`: a type that is an error by its name."""
    for literal in ordered_captures("go", "(composite_literal) @c", node).get("c", ()):
        type_ = one_line(text(literal.child_by_field_name("type")))
        if not re.search(r"(?:Error|Err)$", type_) or around(literal, ("return_statement",)) != node:
            continue
        given = []
        for element in ordered_captures("go", "(keyed_element) @k", literal).get("k", ()):
            key, value = element.named_children[0], element.named_children[-1]
            given.append((text(key), _parts(reader, value.named_children[0] if value.named_children else value) or
                          (Hole(one_line(text(value), 80)),)))  # fmt: skip
        reader.add("error value", node, type_, None, arguments=tuple(given))


def _message(reader: FileReader, arguments: Sequence[Node]) -> tuple[Part, ...] | None:
    """The first argument that has a text; with a format in it the ones after it are its values."""
    for index, argument in enumerate(arguments):
        parts = _parts(reader, argument)
        if parts is not None and says_something(parts):
            if len(parts) == 1 and isinstance(parts[0], str) and re.search(r"%[-+#0]*\d*\.?\d*[a-zA-Z]", parts[0]):
                return percent_parts(parts[0], [one_line(text(other), 80) for other in arguments[index + 1 :]])
            return parts
    return None


def _parts(reader: FileReader, node: Node) -> tuple[Part, ...] | None:
    """What an expression adds to a message; None: nothing that is text."""
    if node.type == "interpreted_string_literal":
        return (unescaped(text(node)[1:-1]),)
    if node.type == "raw_string_literal":
        return (text(node)[1:-1],)
    if node.type == "binary_expression" and text(node.child_by_field_name("operator")) == "+":
        sides = [side for name in ("left", "right") if (side := node.child_by_field_name(name))]
        return merged(part for side in sides for part in (_parts(reader, side) or (Hole(one_line(text(side), 80)),)))
    if node.type == "call_expression":
        name = text(node.child_by_field_name("function"))
        is_text = name in ("fmt.Sprintf", "fmt.Sprint", "fmt.Errorf", "errors.New")
        return _message(reader, _arguments(node)) if is_text else None
    return None


def _type(reader: FileReader, method: Node) -> None:
    """An error type: what its `Error` returns, over its fields."""
    owner, body = reader.owner_of(method), method.child_by_field_name("body")
    receiver = method.child_by_field_name("receiver")
    if not owner or body is None or receiver is None:
        return
    variable = text(receiver.named_children[0].child_by_field_name("name")) if receiver.named_children else ""
    returned = ordered_captures("go", "(return_statement (expression_list) @e)", body).get("e", ())
    template = _parts(reader, returned[0].named_children[0]) if len(returned) == 1 else None
    own = tuple(
        Hole(part.expression.removeprefix(f"{variable}."), part.format) if isinstance(part, Hole) else part
        for part in template or ()
    )
    if says_something(own):
        reader.classes.append(ClassFacts(owner, first_line(method), last_line(method), ("error",), None, (), own))
