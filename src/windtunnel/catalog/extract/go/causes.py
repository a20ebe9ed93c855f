"""The error that an error of Go is made from."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tree_sitter import Node

from windtunnel.catalog.extract.formats import percent_parts
from windtunnel.catalog.extract.go.guards import error_tested
from windtunnel.catalog.extract.go.names import ERROR_VARIABLE, GIVEN_SENTINEL
from windtunnel.catalog.extract.go.reader import GoReader
from windtunnel.catalog.extract.go.values import FUNCTIONS, called_in, origin_of
from windtunnel.catalog.extract.syntax import first_line, one_line, text
from windtunnel.catalog.record import Cause
from windtunnel.catalog.template import Hole

_STRINGS = re.compile(r'"(?:[^"\\\n]|\\.)*"|`[^`]*`')


def cause_of(reader: GoReader, node: Node, arguments: Sequence[Node]) -> Cause | None:
    """One that is among the arguments, or the one that is looked into around it."""
    given = _STRINGS.sub('""', " ".join(text(argument) for argument in arguments))
    if (match := GIVEN_SENTINEL.search(given)) and not reader.is_local(match[0], node):
        return Cause((match[0],), _how(node), first_line(node), match[0])
    wrapped = _wrapped(arguments)
    named = {wrapped} if wrapped else set(ERROR_VARIABLE.findall(given))
    around, child = node.parent, node
    while around is not None and around.type not in FUNCTIONS:
        condition = around.child_by_field_name("condition") if around.type == "if_statement" else None
        if condition is not None and child == around.child_by_field_name("consequence"):
            tested = error_tested(condition, True)
            if tested:
                return _from(tested, condition, _how(node) if tested in named else "during handling")
        child, around = around, around.parent
    return _from(min(named), node, _how(node)) if named else None


def _wrapped(arguments: Sequence[Node]) -> str:
    """What `%w` stands for."""
    if not arguments or not arguments[0].type.endswith("string_literal"):
        return ""
    parts = percent_parts(text(arguments[0])[1:-1], [one_line(text(each), 80) for each in arguments[1:]])
    return next((part.expression for part in parts if isinstance(part, Hole) and part.format.endswith("w")), "")


def _from(name: str, node: Node, how: str) -> Cause:
    origin = origin_of(name, node)
    call = called_in(origin) if origin is not None else None
    if origin is None or call is None:
        return Cause((), how, first_line(node), name)
    return Cause((), how, first_line(origin), one_line(text(call), 120))


def _how(node: Node) -> str:
    """`%w` where the format wraps."""
    return "%w" if re.search(r'"[^"]*%(?:\[\d+\])?w', text(node)) else "cause"
