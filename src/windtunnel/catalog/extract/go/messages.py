"""What a message of Go says: literals, constants, `Sprintf`, sums, and variables whose value is beyond doubt."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tree_sitter import Node

from windtunnel.catalog.extract.formats import percent_parts, unescaped
from windtunnel.catalog.extract.go.values import origin_of, value_of
from windtunnel.catalog.extract.syntax import one_line, text
from windtunnel.catalog.template import Hole, Part, merged, says_something

_NUMBERED = re.compile(r"%([-+# 0-9.]*)\[(\d+)\]")
_MOST_DEPTH = 6


def hole(node: Node) -> Hole:
    """An expression as a hole."""
    return Hole(one_line(text(node), 80))


def arguments_of(call: Node) -> list[Node]:
    """Of a call, without comments."""
    listed = call.child_by_field_name("arguments")
    return [] if listed is None else [child for child in listed.named_children if child.type != "comment"]


def parts_of(node: Node, constants: dict[str, Node], depth: int = 0) -> tuple[Part, ...] | None:
    """The text that an expression gives; None: it is no text, or not known. `constants`: of the file, by name."""
    kind = node.type
    if depth > _MOST_DEPTH:
        return None
    if kind == "interpreted_string_literal":
        return (unescaped(text(node)[1:-1]),)
    if kind == "raw_string_literal":
        return (text(node)[1:-1],)
    if kind == "parenthesized_expression" and node.named_children:
        return parts_of(node.named_children[0], constants, depth)
    if kind == "binary_expression" and text(node.child_by_field_name("operator")) == "+":
        sides = [side for name in ("left", "right") if (side := node.child_by_field_name(name)) is not None]
        found = [parts_of(side, constants, depth + 1) for side in sides]
        if not any(found):
            return None
        return merged(p for side, parts in zip(sides, found, strict=True) for p in (parts or (hole(side),)))
    if kind == "call_expression":
        return _called(node, constants, depth)
    return _named(node, constants, depth) if kind == "identifier" else None


def _called(node: Node, constants: dict[str, Node], depth: int) -> tuple[Part, ...] | None:
    name, arguments = text(node.child_by_field_name("function")), arguments_of(node)
    if name == "fmt.Sprintf" and arguments:
        return formatted(arguments, constants, depth)
    if name in ("fmt.Sprint", "fmt.Sprintln"):
        return printed(arguments, constants, spaced=name.endswith("ln"))
    return parts_of(arguments[0], constants, depth + 1) if name == "string" and len(arguments) == 1 else None


def _named(node: Node, constants: dict[str, Node], depth: int) -> tuple[Part, ...] | None:
    """A variable whose value is beyond doubt, or a constant of the file."""
    origin = origin_of(text(node), node)
    if origin is None:
        constant = constants.get(text(node))
        return None if constant is None else parts_of(constant, constants, depth + 1)
    value, operator = value_of(origin), text(origin.child_by_field_name("operator"))
    return parts_of(value, constants, depth + 1) if value is not None and operator in ("", "=") else None


def formatted(arguments: Sequence[Node], constants: dict[str, Node], depth: int = 0) -> tuple[Part, ...] | None:
    """A format and what goes into it."""
    literal = parts_of(arguments[0], constants, depth + 1)
    if literal is None:
        return None
    values = [one_line(text(value), 80) for value in arguments[1:]]
    whole = "".join(part if isinstance(part, str) else "\0" for part in literal)
    holes = iter([part for part in literal if isinstance(part, Hole)])
    found: list[Part] = []
    for part in percent_parts(_NUMBERED.sub(r"%\2$\1", whole), values):
        if isinstance(part, Hole):
            found.append(part)
            continue
        first, *rest = part.split("\0")  # the format itself may be put together from parts
        found.append(first)
        for piece in rest:
            found += [*([known] if (known := next(holes, None)) else []), piece]
    return merged(found)


def printed(arguments: Sequence[Node], constants: dict[str, Node], *, spaced: bool) -> tuple[Part, ...] | None:
    """As `Print` puts its operands together: `Println` with a space between all, `Print` where neither is a text."""
    found: list[Part] = []
    previous_is_text = True
    for position, argument in enumerate(arguments):
        parts = parts_of(argument, constants)
        if position and (spaced or not (parts or previous_is_text)):
            found.append(" ")
        found += parts or (hole(argument),)
        previous_is_text = parts is not None
    result = merged(found)
    return result if says_something(result) else None
