"""C++: what is thrown, check macros, error logs, and error statuses with a text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tree_sitter import Node

from windtunnel.catalog.extract.braces import FileReader, around, cause_of
from windtunnel.catalog.extract.formats import brace_parts, percent_parts, unescaped
from windtunnel.catalog.extract.paths import is_test_path
from windtunnel.catalog.extract.syntax import first_line, last_line, one_line, ordered_captures, text
from windtunnel.catalog.facts import ClassFacts, FileFacts
from windtunnel.catalog.record import Guard, Kind, Language, MessageSource
from windtunnel.catalog.template import Hole, Part, merged, says_something

_FUNCTIONS = frozenset(("function_definition", "lambda_expression"))
_OWNERS = frozenset(("class_specifier", "struct_specifier"))
_QUERY = """
(throw_statement) @throw
(call_expression function: [(identifier) (qualified_identifier) (field_expression)]) @call
(binary_expression left: (identifier) @stream operator: "<<")
(class_specifier (base_class_clause)) @class
(struct_specifier (base_class_clause)) @class
"""
_CHECK = re.compile(
    r"(?:[A-Z0-9]+_)*(?:CHECK|DCHECK|ASSERT|ENFORCE|VERIFY|REQUIRE|ENSURE)(?:_[A-Z0-9]+)*$|^assert$|^(?:folly|absl)_assert$"
)
_COMPARED = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}
_LOG = re.compile(
    r"(?:^|_)(?:LOG_?)?(ERROR|ERR|FATAL|CRITICAL|CRIT)$|^(?:ERROR|FATAL|CRITICAL)_LOG$|^LOG_(?:ERROR|FATAL)$"
)
_LOG_CALL = re.compile(r"(?:^|[.>:])(?:log_?)?(error|critical|fatal)$")
_STATUS = re.compile(r"(?:^|::)(?:Status::[A-Z]\w+|[A-Z]\w*Error)$")
_STRINGS = ("string_literal", "raw_string_literal", "concatenated_string")
_TAKES_ALL = re.compile(r"(?:^|::)(?:StrCat|str|concat|to_string_all|strcat|format_args)$", re.IGNORECASE)
_PRINTF = re.compile(r"(?:printf|StrFormat|StringPrintf|stringf|strformat|Format)$", re.IGNORECASE)
_BRACES = re.compile(r"(?:^|::)(?:format|vformat|make_format_args)$")
_WRAPPERS = re.compile(r"(?:^|::)(?:string|move|string_view|c_str|str|runtime_format|forward|FMT_STRING|_T|L)$")
_MOST_MESSAGE_LINES = 30


def facts_of(path: str, data: bytes, language: Language) -> FileFacts:
    """Find the errors of a C++ file."""
    reader = FileReader(path, data, language, "cpp", _FUNCTIONS, _OWNERS, is_test_path(path, language))
    found = ordered_captures("cpp", _QUERY, reader.root)
    for node in found.get("class", ()):
        _class(reader, node)
    for node in found.get("throw", ()):
        _throw(reader, node)
    for node in found.get("stream", ()):
        if match := _LOG.search(text(node)):
            _stream(reader, node, _log_kind(match[1]), text(node), ())
    for node in found.get("call", ()):
        _call(reader, node)
    return reader.facts()


def _throw(reader: FileReader, node: Node) -> None:
    value = node.named_children[0] if node.named_children else None
    if value is None or value.type == "identifier":  # thrown on, not made here
        return
    arguments = _arguments(value)
    type_ = text(value.child_by_field_name("function") or value.child_by_field_name("type"))
    if not type_:
        type_ = one_line(text(value), 80)
    _site(reader, "throw", node, type_, _message(reader, arguments), arguments)


def _site(
    reader: FileReader, kind: Kind, node: Node, type_: str, template: tuple[Part, ...] | None, arguments: list[Node]
) -> None:
    bound = tuple(("", _parts(reader, argument) or (_hole(argument),)) for argument in arguments)
    otherwise: tuple[MessageSource, str] | None = None if kind == "throw" else ("statement", one_line(text(node)))
    name, cause = one_line(re.sub(r"\s+", "", type_), 120), cause_of(node, arguments)
    reader.add(kind, node, name, template, cause=cause, arguments=bound, otherwise=otherwise)


def _arguments(value: Node) -> list[Node]:
    listed = value.child_by_field_name("arguments") or value.child_by_field_name("value")
    return [] if listed is None else [child for child in listed.named_children if child.type != "comment"]


def _message(reader: FileReader, arguments: list[Node]) -> tuple[Part, ...] | None:
    """Of a constructor: its first argument that has a text; with a format, the ones after it are its values."""
    for index, argument in enumerate(arguments):
        parts = _parts(reader, argument)
        if parts is not None and says_something(parts):
            rest = [one_line(text(other), 80) for other in arguments[index + 1 :]]
            if rest and len(parts) == 1 and isinstance(parts[0], str):
                return _formatted(parts[0], rest)
            return parts
    return None


def _formatted(literal: str, values: list[str]) -> tuple[Part, ...]:
    """A format of either kind, or no format at all."""
    if "{" in literal and "}" in literal:
        return brace_parts(literal, values)
    return percent_parts(literal, values) if re.search(r"%[-+#0]*\d*\.?\d*[a-zA-Z]", literal) else (literal,)


def _parts(reader: FileReader, node: Node) -> tuple[Part, ...] | None:
    """What an expression adds to a message; None: nothing that is text."""
    kind = node.type
    if kind in _STRINGS:
        return (_literal(node),)
    if kind == "binary_expression" and text(node.child_by_field_name("operator")) in ("+", "<<"):
        return _joined(reader, [side for name in ("left", "right") if (side := node.child_by_field_name(name))])
    if kind == "parenthesized_expression" and node.named_children:
        return _parts(reader, node.named_children[0])
    if kind == "call_expression":
        return _called(reader, node)
    if kind == "compound_literal_expression":
        return _joined(reader, _arguments(node))
    if kind == "identifier":
        return _assigned(reader, node)
    return None


def _joined(reader: FileReader, nodes: Sequence[Node]) -> tuple[Part, ...]:
    return merged(part for node in nodes for part in (_parts(reader, node) or (_hole(node),)))


def _called(reader: FileReader, node: Node) -> tuple[Part, ...] | None:
    function, arguments = node.child_by_field_name("function"), _arguments(node)
    name = re.sub(r"<.*>", "", text(function))
    if function is not None and function.type == "field_expression" and name.endswith((".str", ".c_str", ".data")):
        return _parts(reader, function.child_by_field_name("argument") or function)
    if not arguments:
        return None
    if _TAKES_ALL.search(name):
        return _joined(reader, arguments)
    if _WRAPPERS.search(name):
        return _parts(reader, arguments[0])
    if _BRACES.search(name) or _PRINTF.search(name):
        first = _parts(reader, arguments[0])
        if first and len(first) == 1 and isinstance(first[0], str):
            values = [one_line(text(argument), 80) for argument in arguments[1:]]
            return brace_parts(first[0], values) if _BRACES.search(name) else percent_parts(first[0], values)
    return None


def _assigned(reader: FileReader, node: Node) -> tuple[Part, ...] | None:
    """A local variable that is given a text once, or a stream that is written to, before it is used."""
    function = reader.named_function(node)
    if function is None or (function.end_point.row - function.start_point.row) > 400:
        return None
    name = text(node)
    values = [
        declared
        for declared in ordered_captures("cpp", "(init_declarator) @d", function).get("d", ())
        if text(declared.child_by_field_name("declarator")).strip("*& ") == name
        and declared.end_byte <= node.start_byte
    ]
    if len(values) == 1 and (value := values[0].child_by_field_name("value")) is not None:
        return None if value.type == "identifier" else _parts(reader, value)
    streamed = [
        stream
        for stream in ordered_captures("cpp", '(binary_expression left: (identifier) @s operator: "<<")', function).get(
            "s", ()
        )
        if text(stream) == name and stream.end_byte <= node.start_byte
    ]
    return merged(part for stream in streamed for part in _streamed(reader, stream)) if streamed else None


def _streamed(reader: FileReader, stream: Node) -> tuple[Part, ...]:
    """All that is written to a stream in one statement."""
    parts: list[Part] = []
    node = stream.parent if stream.type == "identifier" else stream
    while node is not None and node.type == "binary_expression":
        right = node.child_by_field_name("right")
        if right is not None and not re.search(
            r"(?:^|::)(?:endl|flush|hex|dec|setw\(.*|setfill\(.*|boolalpha)$", text(right)
        ):
            parts += _parts(reader, right) or (_hole(right),)
        node = node.parent
    return merged(parts)


def _literal(node: Node) -> str:
    if node.type == "concatenated_string":
        return "".join(
            _literal(child) if child.type in _STRINGS else f"<{text(child)}>" for child in node.named_children
        )
    source = text(node)
    if node.type == "raw_string_literal":
        return source[source.find("(") + 1 : source.rfind(")")]
    return unescaped(source[source.find('"') + 1 : source.rfind('"')])


def _hole(node: Node) -> Hole:
    return Hole(one_line(text(node), 80))


def _call(reader: FileReader, node: Node) -> None:
    name = text(node.child_by_field_name("function"))
    if _CHECK.search(name):
        _check(reader, node, name)
    elif name.endswith("LOG") and (
        match := re.match(r"\((ERROR|FATAL)\b", text(node.child_by_field_name("arguments")))
    ):
        _levelled_log(reader, node, name, match[1])
    elif (match := _LOG.search(name)) or (match := _LOG_CALL.search(name)):
        arguments = _arguments(node)
        if (template := _message(reader, arguments)) is not None:
            _site(reader, _log_kind(match[1].upper()), node, name.replace("->", "."), template, arguments)
        elif not arguments:
            _stream(reader, node, _log_kind(match[1].upper()), name, ())
    elif _STATUS.search(name) and around(node, ("throw_statement",)) is None:
        arguments = _arguments(node)
        template = _message(reader, arguments)
        if template is not None and "Status::" in name:
            template = _with_the_rest(reader, template, arguments)
        if template is not None:
            _site(reader, "error value", node, name, template, arguments)


def _with_the_rest(reader: FileReader, template: tuple[Part, ...], arguments: list[Node]) -> tuple[Part, ...]:
    """Of `Status::Corruption("bad block", file)`: what follows the first text is shown after it, one alone by `: `."""
    parts = [_parts(reader, argument) for argument in arguments]
    first = next((index for index, each in enumerate(parts) if says_something(each)), 0)
    rest = arguments[first + 1 :]
    if template != parts[first] or not rest:  # a format has taken them up
        return template
    last = template[-1]
    is_apart = len(arguments) == 2 and not (isinstance(last, str) and last.endswith((" ", ":")))
    shown = [part for each in rest for part in (_parts(reader, each) or (_hole(each),))]
    return merged((*template, *((": ",) if is_apart else ()), *shown))


def _levelled_log(reader: FileReader, node: Node, name: str, level: str) -> None:
    """`LOG(ERROR) << …`, or `RAW_LOG(ERROR, "…", …)`."""
    type_, arguments = f"{name}({level})", _arguments(node)[1:]
    if not arguments:
        _stream(reader, node, _log_kind(level), type_, ())
    elif (template := _message(reader, arguments)) is not None:
        _site(reader, _log_kind(level), node, type_, template, arguments)


def _log_kind(level: str) -> Kind:
    return "log" if level in ("ERROR", "ERR") else "fatal log"


def _stream(reader: FileReader, node: Node, kind: Kind, type_: str, guards: tuple[Guard, ...]) -> None:
    parts = _streamed(reader, node if node.type == "identifier" else node.parent or node)
    if says_something(parts):
        reader.add(kind, node, type_, parts, guards=guards, cause=cause_of(node, ()), statement=_statement(node))


def _statement(node: Node) -> Node:
    while node.parent is not None and node.parent.type == "binary_expression":
        node = node.parent
    return node


def _check(reader: FileReader, node: Node, name: str) -> None:
    """A check that fails raises: its condition did not hold."""
    arguments = _arguments(node)
    if not arguments:
        return
    compared = _COMPARED.get(name.rpartition("_")[2])
    num_conditions = 2 if compared and len(arguments) >= 2 else 1
    condition = f" {compared} ".join(one_line(text(argument)) for argument in arguments[:num_conditions])
    messages = arguments[num_conditions:]
    template: tuple[Part, ...] | None = None
    if num_conditions == 1 and (said := re.fullmatch(r'(.*?)\s*&&\s*"((?:[^"\\]|\\.)*)"', condition)):
        condition, template = said[1], (unescaped(said[2]),)
    elif messages:
        template = _message(reader, messages[:1]) if len(messages) == 1 else _check_message(reader, messages)
    if node.parent is not None and node.parent.type == "binary_expression" and template is None:
        template = _streamed(reader, node.parent) or None
    guard = Guard(condition, False, "assert", first_line(node), last_line(arguments[num_conditions - 1]))
    message = template if says_something(template) else None
    reader.add(
        "check", node, name, message, guards=(guard,), cause=cause_of(node, ()), otherwise=("condition", condition),
        statement=_statement(node),
    )  # fmt: skip


def _check_message(reader: FileReader, messages: list[Node]) -> tuple[Part, ...] | None:
    """`TORCH_CHECK(c, "a ", x, " b")` joins its arguments; one with a format has them as values."""
    first = _parts(reader, messages[0])
    if first and len(first) == 1 and isinstance(first[0], str):
        formatted = _formatted(first[0], [one_line(text(message), 80) for message in messages[1:]])
        if len(formatted) > 1 or any(isinstance(part, Hole) for part in formatted):
            return formatted
    return _joined(reader, messages)


def _class(reader: FileReader, node: Node) -> None:
    """An exception class, with the text that its constructor hands to its base or its `what` returns."""
    bases = [
        text(base)
        for clause in node.named_children
        if clause.type == "base_class_clause"
        for base in clause.named_children
        if base.type != "access_specifier"
    ]
    name = text(node.child_by_field_name("name"))
    if not any(re.search(r"(?:exception|error)$", base, re.IGNORECASE) for base in bases):
        return
    template: tuple[Part, ...] | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    for initializer in ordered_captures("cpp", "(field_initializer) @i", node).get("i", ()):
        listed = [child for child in initializer.named_children if child.type in ("argument_list", "initializer_list")]
        constructor = around(initializer, ("function_definition",))
        if listed and constructor is not None and text(initializer.named_children[0]) in bases:
            found = _message(reader, listed[0].named_children)
            if found is not None:
                template, parameters = found, _parameters(constructor)
    for returned in ordered_captures("cpp", "(return_statement) @r", node).get("r", ()):
        function = around(returned, ("function_definition",))
        if template is None and function is not None and "what()" in text(function.child_by_field_name("declarator")):
            template = _parts(reader, returned.named_children[0]) if returned.named_children else None
    scope = reader.owner_of(node)
    qualified = f"{scope}.{name}" if scope else name
    reader.classes.append(
        ClassFacts(qualified, first_line(node), last_line(node), tuple(bases), None, parameters, template)
    )


def _parameters(constructor: Node) -> tuple[tuple[str, str], ...]:
    found = ordered_captures("cpp", "(parameter_declaration) @p (optional_parameter_declaration) @p", constructor).get(
        "p", ()
    )
    names = []
    for parameter in found:
        declarator = parameter.child_by_field_name("declarator")
        default = parameter.child_by_field_name("default_value")
        names.append((text(declarator).strip("*& "), one_line(text(default), 80)))
    return tuple(names)
