"""What a raise statement raises: the type and the constructor's arguments; or an error that was there before."""

from __future__ import annotations

import builtins
import re
from typing import NamedTuple

from tree_sitter import Node

from windtunnel.catalog.extract.python.guards import caught_names
from windtunnel.catalog.extract.python.outline import Outline
from windtunnel.catalog.extract.python.variables import Scope, assignments, class_around, returned_by

_CLASS = re.compile(r"(?:[^\W\d]\w*\.)*_*[A-Z]\w*")
_OWN_CLASS = ("cls", "self.__class__", "type(self)")
_BUILTINS = frozenset(dir(builtins))


class Thrown(NamedTuple):
    """An error that a statement makes."""

    type: str
    arguments: list[Node]
    scope: Scope
    """Where the arguments stand."""


def thrown_by(statement: Node, scope: Scope, known: set[str]) -> Thrown | None:
    """What the statement makes and raises; None: it passes on what a variable or another object holds.

    `known`: the names of the file's classes and imports, which tell a class in lower case from a variable.
    """
    given = statement.child_by_field_name("cause")
    values = [each for each in statement.named_children if each.type != "comment" and each != given]
    if not values:
        return None
    value, rest = unwrapped(values[0]), values[1:]
    if value.type == "expression_list":  # Python 2: `raise Type, "message"`
        value, *rest = value.named_children
    outline = scope.outline
    if value.type == "identifier":
        name = outline.source(value)
        if name in caught_names(outline, scope.frame, statement.start_byte):
            return None
        made = _made(name, scope)
        if made is not None:
            value, scope = made, scope.at(made)
        elif not _is_class(name, known):
            return None
    value = _bare(value, outline)
    if value.type == "call":
        return _constructed(value, scope)
    if value.type in ("attribute", "subscript"):
        name = outline.one_line(value, 120)
        if not _is_class(name, known):
            returned = _returned(name, scope)
            return _constructed(returned, scope.at(returned)) if returned is not None else None
    return Thrown(outline.one_line(value, 120), rest, scope)


def _is_class(name: str, known: set[str]) -> bool:
    return _CLASS.fullmatch(name) is not None or name.partition(".")[0] in known or name in _BUILTINS


def _constructed(call: Node, scope: Scope) -> Thrown | None:
    function = call.child_by_field_name("function")
    if function is None:
        return None
    name = scope.outline.one_line(function, 120)
    if name in _OWN_CLASS and (owner := class_around(scope)) is not None:
        name = owner.name
    if _CLASS.fullmatch(name) is None:
        if name.endswith(".exception"):  # of a future
            return None
        returned = _returned(name, scope)
        if returned is not None and (made := returned.child_by_field_name("function")) is not None:
            return Thrown(scope.outline.one_line(made, 120), arguments_of(returned), scope.at(returned))
    return Thrown(name, arguments_of(call), scope)


def _returned(name: str, scope: Scope) -> Node | None:
    """The call of a class that a function or property of the file returns, where it returns nothing else."""
    value = returned_by(name, scope)
    made = None if value is None or value.type != "call" else value.child_by_field_name("function")
    return value if made is not None and _CLASS.fullmatch(scope.outline.source(made)) else None


def unwrapped(node: Node) -> Node:
    """The expression within parentheses."""
    while node.type == "parenthesized_expression":
        inner = [child for child in node.named_children if child.type != "comment"]
        if len(inner) != 1:
            break
        node = inner[0]
    return node


def _bare(value: Node, outline: Outline) -> Node:
    """The error itself of `Type(…).with_traceback(…)`."""
    while value.type == "call" and (function := value.child_by_field_name("function")) is not None:
        receiver = function.child_by_field_name("object") if function.type == "attribute" else None
        attribute = function.child_by_field_name("attribute") if receiver is not None else None
        if receiver is None or attribute is None or outline.source(attribute) != "with_traceback":
            break
        value = unwrapped(receiver)
    return value


def _made(name: str, scope: Scope) -> Node | None:
    """The one call that made the error that a variable holds."""
    found = assignments(scope, name)
    certain = [index for index, each in enumerate(found) if each.certain]
    reaching = found[certain[-1] :] if certain else found
    value = reaching[0].value if len(reaching) == 1 else None
    return value if value is not None and value.type == "call" else None


def arguments_of(call: Node) -> list[Node]:
    """The arguments of a call."""
    arguments = call.child_by_field_name("arguments")
    if arguments is None:
        return []
    if arguments.type != "argument_list":
        return [arguments]
    return [child for child in arguments.named_children if child.type != "comment"]
