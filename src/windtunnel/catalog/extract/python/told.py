"""Which argument is the message of an error, and the ways in which it is made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tree_sitter import Node

from windtunnel.catalog.extract.python.guards import Head, expression_head, heads_around
from windtunnel.catalog.extract.python.messages import Parts, fill_percent, template_of, value_of
from windtunnel.catalog.extract.python.outline import Outline
from windtunnel.catalog.extract.python.thrown import unwrapped
from windtunnel.catalog.extract.python.variables import Scope, reaching, returned_by
from windtunnel.catalog.template import Hole, num_literal_characters, says_something

_KEYWORDS = ("message", "msg", "detail", "reason", "error", "description", "text", "problem")
_MOST_LINES = 12

Arguments = tuple[tuple[str, Parts], ...]


class Told(NamedTuple):
    """A message, with what must hold for it, beside what must hold for the statement; and where else it is made."""

    template: Parts | None
    heads: tuple[Head, ...] = ()
    lines: tuple[int, ...] = ()


def bound(arguments: list[Node], scope: Scope) -> Arguments:
    """Keywords (empty: positional) and values."""
    values: list[tuple[str, Parts]] = []
    for node in arguments:
        if node.type == "keyword_argument":
            key, value = node.child_by_field_name("name"), node.child_by_field_name("value")
            if key is not None and value is not None:
                values.append((scope.outline.source(key), _value(value, scope)))
        elif node.type in ("list_splat", "dictionary_splat"):
            stars = "*" if node.type == "list_splat" else "**"
            values.append((stars, (Hole(scope.outline.one_line(node, 200)),)))
        else:
            values.append(("", _value(node, scope)))
    return tuple(values)


def _value(node: Node, scope: Scope) -> Parts:
    if node.type in ("integer", "float", "true", "false", "none"):
        text = scope.outline.source(node)
        return (Hole(text, values=(text,)),)
    return value_of(node, scope)


def told_by(values: Arguments, arguments: list[Node], scope: Scope) -> list[Told]:
    """The message of a constructor, once for each way in which it is made; one without a template where there is none.

    The argument that is the message is one with a telling name, else the one with the most text.
    """
    number = _number_of_message(values)
    if number is None:
        number = next((index for index, (keyword, _) in enumerate(values) if not keyword or keyword in _KEYWORDS), None)
        if number is None:
            return [Told(None)]
        return list(_ways(_expression(arguments[number]), scope)) or [Told(None)]
    return [Told(values[number][1], (), _lines_of(_expression(arguments[number]), scope))]


def _number_of_message(values: Arguments) -> int | None:
    texts = {number: parts for number, (_, parts) in enumerate(values) if says_something(parts)}
    if len(texts) < 2:
        return next((number for number in texts if _is_message(values[number])), None)
    for number in texts:
        if values[number][0] in _KEYWORDS:
            return number
    positional = [number for number in texts if not values[number][0]]
    telling = positional or [number for number in texts if _is_message(values[number])]
    return max(telling, key=lambda number: num_literal_characters(texts[number])) if telling else None


def _is_message(value: tuple[str, Parts]) -> bool:
    keyword, parts = value
    return not keyword or keyword in _KEYWORDS or any(isinstance(part, str) and " " in part for part in parts)


def _expression(argument: Node) -> Node:
    value = argument.child_by_field_name("value") if argument.type == "keyword_argument" else argument
    return unwrapped(argument if value is None else value)


def logged(arguments: list[Node], scope: Scope) -> list[Told]:
    """The message of a logging call, with its lazy `%` arguments; once for each way in which it is made."""
    positional = [node for node in arguments if node.type != "keyword_argument"]
    if not positional:
        return [Told(None)]
    first, rest = unwrapped(positional[0]), positional[1:]
    template = template_of(first, scope)
    if says_something(template):
        ways = [Told(template, (), _lines_of(first, scope))]
    else:
        ways = list(_ways(first, scope)) or [Told(None)]
    if not rest:
        return ways
    return [
        way if way.template is None else way._replace(template=fill_percent(way.template, rest, {}, scope))
        for way in ways
    ]


def _ways(node: Node, scope: Scope) -> Iterator[Told]:
    """The messages that an expression chooses between, where they are texts."""
    outline = scope.outline
    children = [child for child in node.named_children if child.type != "comment"]
    if node.type == "conditional_expression" and len(children) == 3:
        for arm, holds in ((children[0], True), (children[2], False)):
            template = template_of(arm, scope)
            if says_something(template):
                yield Told(template, (expression_head(outline, children[1], holds),))
    elif node.type == "boolean_operator" and len(children) == 2:
        template = template_of(children[1], scope)
        if says_something(template):
            operator = node.child_by_field_name("operator")
            holds = operator is not None and operator.type == "and"
            yield Told(template, (expression_head(outline, children[0], holds),))
    elif node.type == "identifier":
        yield from _assigned(node, scope)
    elif node.type == "call" and (function := node.child_by_field_name("function")) is not None:
        value = returned_by(outline.source(function), scope)
        if value is not None:  # its conditions are those of another function
            lines = _lines(outline, value)
            yield from (way._replace(heads=(), lines=lines) for way in _ways(value, scope.at(value)))


def _assigned(node: Node, scope: Scope) -> Iterator[Told]:
    around = {head.guard for head in heads_around(scope.outline, scope.frame, scope.position)}
    for each in reaching(scope, scope.outline.source(node)):
        if each.augmented or each.value is None:
            return
        there = scope.at(each.value)
        template = template_of(each.value, there)
        if says_something(template):
            heads = heads_around(scope.outline, there.frame, each.position)
            own = tuple(head for head in heads if head.guard not in around)
            yield Told(template, own, _lines(scope.outline, each.value))


def _lines_of(node: Node, scope: Scope) -> tuple[int, ...]:
    """The lines of the assignment that a message's name stands for."""
    if node.type != "identifier" or scope.frame.function is None:
        return ()
    found = reaching(scope, scope.outline.source(node))
    return tuple(line for each in found if each.value is not None for line in _lines(scope.outline, each.value))


def _lines(outline: Outline, value: Node) -> tuple[int, ...]:
    start = outline.line_at(value.start_byte)
    return tuple(range(start, min(outline.line_at(max(value.end_byte - 1, 0)), start + _MOST_LINES - 1) + 1))
