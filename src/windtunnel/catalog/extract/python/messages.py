"""Expressions → message templates: f-strings, `%`, `.format`, concatenation, names that stand for text."""

from __future__ import annotations

import inspect
import re
import string
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Sequence

from tree_sitter import Node

from windtunnel.catalog.extract.python.variables import (
    Assigned,
    Scope,
    arguments_given,
    class_around,
    class_attribute,
    constant,
    reaching,
    returned_by,
)
from windtunnel.catalog.template import Hole, Part, merged

_MOST_DEPTH = 12
"""Of names followed and expressions nested: beyond, a hole. Real messages need 3."""
_MOST_EXPRESSION_CHARACTERS = 200

Parts = tuple[Part, ...]


def template_of(node: Node, scope: Scope) -> Parts | None:
    """The template that an expression makes; None where it is not text that the code shows."""
    return _parts(node, scope, 0)


def value_of(node: Node, scope: Scope) -> Parts:
    """An expression's template, or a hole for what is no text."""
    parts = template_of(node, scope)
    return (hole_of(node, scope),) if parts is None else parts


def literal_of(node: Node, scope: Scope) -> str | None:
    """The text of an expression that is literal throughout."""
    parts = template_of(node, scope)
    return "".join(parts) if parts is not None and _is_literal(parts) else None  # type: ignore[arg-type]


def _is_literal(parts: Parts) -> bool:
    return all(isinstance(part, str) for part in parts)


def _parts(node: Node, scope: Scope, nested: int) -> Parts | None:
    if nested + scope.depth > _MOST_DEPTH:
        return None
    kind = node.type
    while kind == "parenthesized_expression":
        inner = [child for child in node.named_children if child.type != "comment"]
        if len(inner) != 1:
            return None
        node = inner[0]
        kind = node.type
    make = _MAKERS.get(kind)
    return None if make is None else make(node, scope, nested)


def _or_hole(node: Node, scope: Scope, nested: int) -> Parts:
    parts = _parts(node, scope, nested + 1)
    return (hole_of(node, scope),) if parts is None else parts


# --- literals ---------------------------------------------------------------------------------------------------

_ESCAPE = re.compile(
    r"\\(?:(\n)|([\\'\"abfnrtv])|([0-7]{1,3})|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|N\{([^}]+)\})"
)
_SIMPLE = {"\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def unescape(content: str) -> str:
    """The text that a literal's source stands for."""

    def character(match: re.Match[str]) -> str:
        newline, simple, octal, two, four, eight, name = match.groups()
        if newline:
            return ""
        if simple:
            return _SIMPLE[simple]
        try:
            if name:
                return unicodedata.lookup(name)
            return chr(int(octal, 8) if octal else int(two or four or eight, 16))
        except (KeyError, ValueError, OverflowError):
            return match.group()

    return _ESCAPE.sub(character, content)


def _string(node: Node, scope: Scope, nested: int) -> Parts | None:
    outline = scope.outline
    children = node.children
    prefix = outline.source(children[0]).lower() if children else ""
    if "b" in prefix:
        return None
    raw, formatted = "r" in prefix, "f" in prefix
    parts: list[Part] = []
    for child in children[1:]:
        if child.type == "string_content":
            content = outline.source(child)
            if not raw and "\\" in content:
                content = unescape(content)
            parts.append(content.replace("{{", "{").replace("}}", "}") if formatted else content)
        elif child.type == "interpolation":
            parts.extend(_interpolation(child, scope, nested))
    return merged(parts)


def _interpolation(node: Node, scope: Scope, nested: int) -> Iterable[Part]:
    expression = node.child_by_field_name("expression")
    if expression is None:
        return (Hole(scope.outline.one_line(node).strip("{}")),)
    conversion = specification = ""
    equals = 0
    for child in node.children:
        if child.type == "type_conversion":
            conversion = scope.outline.source(child)
        elif child.type == "format_specifier":
            specification = scope.outline.source(child)[1:]
        elif child.type == "=":  # `{value=}`: what stands before the value counts, with its white space
            equals = child.end_byte
    if equals:
        while scope.outline.data[equals : equals + 1].isspace():
            equals += 1
        source = scope.outline.data[node.start_byte + 1 : equals].decode("utf-8", "replace")
        shown = conversion or ("" if specification else "!r")
        shown += f":{specification}" if conversion and specification else specification
        return (source, hole_of(expression, scope, shown))
    if not conversion and not specification:
        return _shown(expression, scope, nested)
    if conversion and specification:
        return (hole_of(expression, scope, f"{conversion}:{specification}"),)
    return (hole_of(expression, scope, conversion or specification),)


def _shown(node: Node, scope: Scope, nested: int) -> Parts:
    """What a hole without a format shows: text where it is written right there or is a constant."""
    parts = _parts(node, scope, nested + 1)
    return (hole_of(node, scope),) if parts is None else parts


def _concatenated(node: Node, scope: Scope, nested: int) -> Parts | None:
    parts: list[Part] = []
    for child in node.named_children:
        if child.type == "string":
            parts.extend(_string(child, scope, nested) or ())
    return merged(parts)


# --- operators --------------------------------------------------------------------------------------------------


def _binary(node: Node, scope: Scope, nested: int) -> Parts | None:
    operator = node.child_by_field_name("operator")
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    if operator is None or left is None or right is None:
        return None
    if operator.type == "+":
        return _sum(node, scope, nested)
    if operator.type == "%":
        template = _parts(left, scope, nested + 1)
        return None if template is None else _percent(template, right, scope, nested)
    return None


def _sum(node: Node, scope: Scope, nested: int) -> Parts | None:
    operands: list[Node] = []
    current: Node | None = node
    while current is not None and current.type == "binary_operator":
        operator, right = current.child_by_field_name("operator"), current.child_by_field_name("right")
        if operator is None or operator.type != "+" or right is None:
            break
        operands.append(right)
        current = current.child_by_field_name("left")
    if current is not None:
        operands.append(current)
    known = [_parts(operand, scope, nested + 1) for operand in operands]
    if all(parts is None for parts in known):
        return None
    summed: list[Part] = []
    for operand, parts in zip(reversed(operands), reversed(known), strict=True):
        summed.extend((hole_of(operand, scope),) if parts is None else parts)
    return merged(summed)


_PERCENT = re.compile(
    r"%(?:\((?P<name>[^)]*)\))?(?P<spec>[#0\- +]*(?:\*|\d+)?(?:\.(?:\*|\d+))?)[hlL]?(?P<type>[a-zA-Z%])"
)


def _percent(template: Parts, right: Node, scope: Scope, nested: int) -> Parts:
    while right.type == "parenthesized_expression" and len(right.named_children) == 1:
        right = right.named_children[0]
    if right.type == "dictionary":
        return fill_percent(template, (), _pairs(right, scope), scope, nested)
    values = [right]
    if right.type == "tuple":
        values = [child for child in right.named_children if child.type != "comment"]
    return fill_percent(template, values, {}, scope, nested)


def _pairs(dictionary: Node, scope: Scope) -> dict[str, Node]:
    pairs = {}
    for pair in dictionary.named_children:
        key, value = pair.child_by_field_name("key"), pair.child_by_field_name("value")
        if key is not None and value is not None and (name := literal_of(key, scope)) is not None:
            pairs[name] = value
    return pairs


def fill_percent(
    template: Parts, values: Sequence[Node], named: dict[str, Node], scope: Scope, nested: int = 0
) -> Parts:
    """Fill `%` conversions with the arguments' expressions."""
    result: list[Part] = []
    following = iter(values)
    for part in template:
        if not isinstance(part, str):
            result.append(part)
            continue
        position = 0
        for match in _PERCENT.finditer(part):
            result.append(part[position : match.start()])
            position = match.end()
            if match["type"] == "%":
                result.append("%")
                continue
            for _ in range(match["spec"].count("*")):
                next(following, None)
            node = named.get(match["name"]) if match["name"] is not None else next(following, None)
            format_ = "" if match["type"] == "s" and not match["spec"] else f"%{match['spec']}{match['type']}"
            if node is None or node.type in ("list_splat", "dictionary_splat"):
                result.append(Hole(match["name"] or "", format_))
                following = iter(()) if node is not None else following
            elif format_:
                result.append(hole_of(node, scope, format_))
            else:
                result.extend(_shown(node, scope, nested))
        result.append(part[position:])
    return merged(result)


def _conditional(node: Node, scope: Scope, nested: int) -> Parts | None:
    arms = [child for child in node.named_children if child.type != "comment"]
    if len(arms) != 3:
        return None
    values: list[str] = []
    for arm in (arms[0], arms[2]):
        parts = _parts(arm, scope, nested + 1)
        if parts is None:
            return None
        known = _closed(parts)
        if known is None:
            return (Hole(scope.outline.one_line(node, _MOST_EXPRESSION_CHARACTERS)),)
        values.extend(known)
    return (Hole(scope.outline.one_line(node, _MOST_EXPRESSION_CHARACTERS), values=tuple(dict.fromkeys(values))),)


def _closed(parts: Parts) -> tuple[str, ...] | None:
    """All texts that the parts can make, where that is known."""
    if _is_literal(parts):
        return ("".join(parts),)  # type: ignore[arg-type]
    if len(parts) == 1 and isinstance(parts[0], Hole):
        return parts[0].values
    return None


# --- calls ------------------------------------------------------------------------------------------------------

_TRANSLATIONS = ("_", "gettext", "_gettext", "ugettext", "gettext_lazy", "_lazy", "str", "N_")
_TRIMS: dict[str, Callable[[str], str]] = {"strip": str.strip, "lstrip": str.lstrip, "rstrip": str.rstrip}
_DEDENTS: dict[str, Callable[[str], str]] = {"dedent": textwrap.dedent, "cleandoc": inspect.cleandoc}


def _call(node: Node, scope: Scope, nested: int) -> Parts | None:
    function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    if function is None or arguments is None or arguments.type != "argument_list":
        return None
    given = [child for child in arguments.named_children if child.type != "comment"]
    name = scope.outline.source(function).rpartition(".")[2]
    if name in _DEDENTS and len(given) == 1:
        parts = _parts(given[0], scope, nested + 1)
        return None if parts is None else _over_text(parts, _DEDENTS[name])
    if function.type == "identifier" and name in _TRANSLATIONS and len(given) == 1:
        return _parts(given[0], scope, nested + 1)
    receiver = function.child_by_field_name("object")
    if receiver is None or scope.outline.source(receiver) in ("self", "cls"):
        value = returned_by(scope.outline.source(function), scope)
        return None if value is None else _parts(value, scope.at(value), nested + 1)
    if name == "format":
        template = _parts(receiver, scope, nested + 1)
        return None if template is None else fill_format(template, given, scope, nested)
    if name in _TRIMS and not given:
        parts = _parts(receiver, scope, nested + 1)
        return None if parts is None else _over_text(parts, _TRIMS[name])
    if name == "join" and len(given) == 1 and given[0].type in ("list", "tuple"):
        return _joined(receiver, given[0], scope, nested)
    return None


def _over_text(parts: Parts, change: Callable[[str], str]) -> Parts:
    """The parts after a change of their text as a whole, with holes as characters that no source has."""
    holes = [part for part in parts if isinstance(part, Hole)]
    numbers = iter(range(len(holes)))
    changed = change("".join(part if isinstance(part, str) else chr(0xF0000 + next(numbers)) for part in parts))
    pieces = re.split("([\U000f0000-\U000fffff])", changed)  # text and holes by turns
    return merged(holes[ord(piece) - 0xF0000] if index % 2 else piece for index, piece in enumerate(pieces))


def _joined(separator: Node, items: Node, scope: Scope, nested: int) -> Parts | None:
    between = _parts(separator, scope, nested + 1)
    if between is None or any(child.type == "list_splat" for child in items.named_children):
        return None
    result: list[Part] = []
    for number, item in enumerate(child for child in items.named_children if child.type != "comment"):
        result.extend((*(between if number else ()), *_or_hole(item, scope, nested)))
    return merged(result)


def format_fields(text: str) -> Parts | None:
    """A text as `str.format` reads it: its fields as holes by their names. None: it is not such a text."""
    result: list[Part] = []
    try:
        for literal, field, specification, conversion in string.Formatter().parse(text):
            result.append(literal)
            if field is not None:
                result.append(Hole(field, (f"!{conversion}" if conversion else "") + (specification or "")))
    except ValueError:
        return None
    return merged(result)


_FIRST = re.compile(r"[.\[]")


def fill_format(template: Parts, given: Sequence[Node], scope: Scope, nested: int = 0) -> Parts:
    """Fill the fields of `str.format` with the arguments' expressions."""
    positional = [node for node in given if node.type not in ("keyword_argument", "dictionary_splat")]
    named: dict[str, Node] = {}
    for node in given:
        if node.type == "keyword_argument":
            key, value = node.child_by_field_name("name"), node.child_by_field_name("value")
            if key is not None and value is not None:
                named[scope.outline.source(key)] = value
    result: list[Part] = []
    following = 0
    for part in template:
        fields = format_fields(part) if isinstance(part, str) else None
        for piece in (part,) if fields is None else fields:
            if isinstance(piece, str) or fields is None:
                result.append(piece)
                continue
            first = _FIRST.split(piece.expression, maxsplit=1)[0]
            rest = piece.expression[len(first) :]
            value = named.get(first)
            if first == "" or first.isdigit():
                number = following if first == "" else int(first)
                following += first == ""
                value = positional[number] if number < len(positional) else None
            if value is None or value.type == "list_splat":
                result.append(piece)
            elif rest or piece.format:
                whole = scope.outline.one_line(value, _MOST_EXPRESSION_CHARACTERS) + rest
                result.append(Hole(whole, piece.format))
            else:
                result.extend(_shown(value, scope, nested))
    return merged(result)


# --- names ------------------------------------------------------------------------------------------------------


def _identifier(node: Node, scope: Scope, nested: int) -> Parts | None:
    name = scope.outline.source(node)
    found = reaching(scope, name) if scope.frame.function is not None else []
    if found or name in scope.parameters:
        return _variable(name, found, scope, nested)
    value = constant(scope.outline, name)
    return None if value is None else _parts(value, scope.at(value), nested + 1)


def _variable(name: str, found: list[Assigned], scope: Scope, nested: int) -> Parts | None:
    parts = _alternatives(name, [each for each in found if not each.augmented], scope, nested)
    added = [each for each in found if each.augmented]
    if parts is None and not added:
        return None
    result: list[Part] = [Hole(name)] if parts is None else list(parts)
    for each in added:
        assert each.value is not None
        more = _or_hole(each.value, scope.at(each.value), nested)
        result.extend(more if each.certain else (_perhaps(each.value, more, scope),))
    return merged(result)


def _perhaps(value: Node, parts: Parts, scope: Scope) -> Hole:
    known = _closed(parts)
    expression = scope.outline.one_line(value, _MOST_EXPRESSION_CHARACTERS)
    return Hole(expression, values=None if known is None else ("", *known))


def _alternatives(name: str, found: list[Assigned], scope: Scope, nested: int) -> Parts | None:
    known = [None if each.value is None else _parts(each.value, scope.at(each.value), nested + 1) for each in found]
    if not known or any(parts is None for parts in known):
        return None
    if len(known) == 1:
        return known[0]
    values = [_closed(parts) for parts in known if parts is not None]
    if any(each is None for each in values):
        return (Hole(name),)
    return (Hole(name, values=tuple(dict.fromkeys(text for each in values if each is not None for text in each))),)


def _attribute(node: Node, scope: Scope, nested: int) -> Parts | None:
    receiver, name = scope.outline.source(node).rpartition(".")[::2]
    owner = class_around(scope) if receiver in ("self", "cls", "self.__class__", "type(self)") else None
    if owner is None and receiver.isidentifier():
        owner = next((frame for frame in scope.outline.classes if frame.name == receiver), None)
    value = None if owner is None else class_attribute(scope.outline, owner, name)
    return None if value is None else _parts(value, scope.at(value), nested + 1)


_MAKERS: dict[str, Callable[[Node, Scope, int], Parts | None]] = {
    "string": _string,
    "concatenated_string": _concatenated,
    "binary_operator": _binary,
    "conditional_expression": _conditional,
    "call": _call,
    "identifier": _identifier,
    "attribute": _attribute,
}

_LITERAL = re.compile(r"(?:\w+\.)*Literal\[(.*)\]", re.DOTALL)


def hole_of(node: Node, scope: Scope, format_: str = "") -> Hole:
    """A hole for an expression, with all its texts where the code shows them."""
    expression = scope.outline.one_line(node, _MOST_EXPRESSION_CHARACTERS)
    values = None
    if node.type == "identifier":
        values = _values(expression, scope)
    elif node.type == "conditional_expression" and (parts := _conditional(node, scope, 1)) is not None:
        values = _closed(parts)
    return Hole(expression, format_, values)


def _values(name: str, scope: Scope) -> tuple[str, ...] | None:
    """All texts that a name can stand for: a literal type, a loop over literals, literals assigned to it."""
    frame = scope.frame
    for loop in reversed(frame.chain()):
        if loop.kind == "for" and (known := _looped(loop.node, name, scope)) is not None:
            return known
    found = reaching(scope, name) if frame.function is not None else []
    if not found or (len(found) == 1 and found[0].value is None):
        match = _LITERAL.fullmatch(scope.parameters.get(name, ""))
        return _given(name, scope) if match is None else tuple(re.findall(r"""["']([^"']*)["']""", match[1])) or None
    if any(each.augmented for each in found):
        return None
    parts = _variable(name, found, scope, 1)
    return None if parts is None else _closed(parts)


def _given(name: str, scope: Scope) -> tuple[str, ...] | None:
    """The texts that all calls of the function, which the file keeps to itself, give to a parameter."""
    texts: list[str] = []
    for node in arguments_given(scope, name):
        if node.type not in ("string", "concatenated_string") or (text := literal_of(node, scope.at(node))) is None:
            return None
        texts.append(text)
    return tuple(dict.fromkeys(texts)) or None


def _looped(loop: Node, name: str, scope: Scope) -> tuple[str, ...] | None:
    left, right = loop.child_by_field_name("left"), loop.child_by_field_name("right")
    if left is None or right is None or right.type not in ("tuple", "list") or scope.outline.source(left) != name:
        return None
    texts = []
    for item in right.named_children:
        if item.type != "string" or (text := literal_of(item, scope)) is None:
            return None
        texts.append(text)
    return tuple(texts)
