"""What a name stands for where a message is built: assignments that reach it, constants, closed sets of values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tree_sitter import Node

from windtunnel.catalog.extract.python.outline import Frame, Outline


class Assigned(NamedTuple):
    """An assignment to a name, before the place that is looked at."""

    value: Node | None
    """None: it can't be told (unpacking)."""
    position: int
    augmented: bool
    """`+=`."""
    certain: bool
    """It lies on every way to the place; else in a branch of its own."""


class Scope:
    """A place in a file, for looking up names."""

    __slots__ = ("depth", "frame", "known", "outline", "position")

    def __init__(self, outline: Outline, node: Node, depth: int = 0) -> None:
        """The place of a node; `depth`: how many names were followed to get here."""
        self.outline = outline
        self.position = node.start_byte
        self.frame: Frame = outline.frame_at(self.position)
        """The innermost statement around it."""
        self.depth = depth
        self.known: dict[str, list[Assigned]] = {}
        """What `reaching` found."""

    def at(self, node: Node) -> Scope:
        """The scope of an assignment that was followed."""
        return Scope(self.outline, node, self.depth + 1)

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters of the function and their annotations."""
        return {} if self.frame.function is None else parameters_of(self.outline, self.frame.function)


_GIVEN = re.compile(rb"\s*(?:,[^=\n()]*|:[^=\n]*)?(?:[-+*/|&%]|//)?=(?!=)")
_WORD = re.compile(rb"[\w.]")
_LOOPED = re.compile(rb"[\w, \t)]*[ \t]in\b")
_ALIASED = re.compile(rb"\b(?:as|for)[ \t]+[\w, \t(]*\Z")


def _given(outline: Outline, name: str, start: int, end: int) -> Iterator[tuple[int, Node]]:
    """Each place between that may assign to the name: position, and the node around the name's."""
    data, sought = outline.data, name.encode()
    position = data.find(sought, start, end)
    while position >= 0:
        after = position + len(sought)
        if _GIVEN.match(data, after) and not _WORD.match(data, position - 1):
            node = outline.root.named_descendant_for_byte_range(position, after)
            if node is not None and node.type in ("identifier", "attribute") and (parent := node.parent) is not None:
                yield position, parent
        position = data.find(sought, after, end)


def bindings(outline: Outline, function: Frame, name: str) -> list[int]:
    """Where a function binds a name or attribute: assignments, loops, `as`."""
    data, sought = outline.data, name.encode()
    found = [
        position
        for position, parent in _given(outline, name, function.start, function.end)
        if parent.type in ("assignment", "augmented_assignment", "pattern_list", "tuple_pattern", "named_expression")
    ]
    for word in (b"for " + sought, b", " + sought, b"as " + sought):
        position = data.find(word, function.start, function.end)
        while position >= 0:
            after = position + len(word)
            line = data.rfind(b"\n", 0, position) + 1
            looped = word[:1] == b"a" or _LOOPED.match(data, after)
            if looped and not _WORD.match(data, after) and _ALIASED.search(data[line : after - len(sought)]):
                found.append(after - len(sought))
            position = data.find(word, after, function.end)
    return found


def assignments(scope: Scope, name: str) -> list[Assigned]:
    """Assignments to the name in the same function (or at the top) that can reach the place, in order."""
    outline, around = scope.outline, scope.frame.function or scope.outline.top
    result = []
    for start, parent in _given(outline, name, around.start, scope.position):
        unpacked = parent.type in ("pattern_list", "tuple_pattern")
        if not unpacked and (parent.type not in ("assignment", "augmented_assignment") or parent.start_byte != start):
            continue
        frame = outline.frame_at(start)
        if (frame.function or outline.top) is not around or _class_around(frame) is not _class_around(scope.frame):
            continue
        reach = _reach(frame, start, scope)
        if reach is not None and (unpacked or parent.end_byte <= scope.position):
            value = None if unpacked else parent.child_by_field_name("right")
            if value is not None or unpacked:
                result.append(Assigned(value, start, parent.type == "augmented_assignment", reach))
    return result


def reaching(scope: Scope, name: str) -> list[Assigned]:
    """The assignments of which one gave the name its value: the last certain one, and those of branches after it."""
    known = scope.known.get(name)
    if known is None:
        known = scope.known[name] = _reaching(scope, name)
    return known


def _reaching(scope: Scope, name: str) -> list[Assigned]:
    found = assignments(scope, name)
    plain = [index for index, each in enumerate(found) if not each.augmented]
    certain = [index for index in plain if found[index].certain]
    if not certain and name in scope.parameters:
        return [*found, Assigned(None, scope.position, False, False)]
    first = certain[-1] if certain else 0
    kept = [each for each in found[first:] if each.augmented or not _is_blank(each.value, scope.outline)]
    return kept or found[first:]


def _is_blank(value: Node | None, outline: Outline) -> bool:
    return value is not None and outline.source(value) in ("None", '""', "''")


def _class_around(frame: Frame) -> Frame | None:
    current: Frame | None = frame
    while current is not None and current.kind not in ("class", "function"):
        current = current.parent
    return current


def _reach(frame: Frame, position: int, scope: Scope) -> bool | None:
    """True: on every way to the place; False: on some; None: on none, as it lies in another branch."""
    certain = True
    current: Frame | None = frame
    while current is not None and current.kind not in ("function", "module"):
        mine = current.branch_at(position)
        if current.start <= scope.position < current.end:
            theirs = current.branch_at(scope.position)
            if mine == theirs:
                return certain
            if current.kind in ("if", "match"):
                return None
        certain = False
        current = current.parent
    return certain


def constant(outline: Outline, name: str) -> Node | None:
    """The value of a name that the file's top level assigns once, and that no function sets."""
    data, sought = outline.data, name.encode()
    if data.find(b"global " + sought) >= 0:
        return None
    found = None
    for position in _beginnings(data, sought):
        after = position + len(sought)
        node = outline.root.named_descendant_for_byte_range(position, after) if _GIVEN.match(data, after) else None
        parent = None if node is None or node.type != "identifier" else node.parent
        if parent is not None and parent.type in ("assignment", "augmented_assignment", "pattern_list"):
            if found is not None or parent.type != "assignment":
                return None
            found = parent.child_by_field_name("right")
    return found


def _beginnings(data: bytes, sought: bytes) -> Iterator[int]:
    """Lines that begin with the text."""
    if data.startswith(sought):
        yield 0
    position = data.find(b"\n" + sought)
    while position >= 0:
        yield position + 1
        position = data.find(b"\n" + sought, position + 1)


def class_attribute(outline: Outline, owner: Frame, name: str) -> Node | None:
    """The value that the class's body gives to a name."""
    for start, parent in _given(outline, name, owner.start, owner.end):
        if parent.type == "assignment" and parent.start_byte == start and outline.frame_at(start) is owner:
            return parent.child_by_field_name("right")
    return None


def class_around(scope: Scope) -> Frame | None:
    """The class that `self` is of."""
    function = scope.frame.function
    while function is not None:
        if (owner := function.owner) is not None:
            return owner
        function = function.parent.function if function.parent is not None else None
    return None


def returned_by(name: str, scope: Scope) -> Node | None:
    """What a function, method of `self` or property of the file returns, where it has a single `return`, at its end."""
    outline = scope.outline
    receiver, _, last = name.rpartition(".")
    owner = class_around(scope) if receiver in ("self", "cls") else None
    found = [frame for frame in outline.functions if frame.name == last and frame.owner is owner]
    if len(found) != 1 or (receiver and owner is None):
        return None
    body = found[0].node.child_by_field_name("body")
    if body is None or outline.data.count(b"return ", body.start_byte, body.end_byte) != 1:
        return None
    end = body.named_children[-1]
    return end.named_children[0] if end.type == "return_statement" and end.named_children else None


def arguments_given(scope: Scope, parameter: str) -> list[Node]:
    """What all calls give to a parameter of the function around; nothing, where not all are known.

    All are known of a function within another, and of one whose name begins with one underscore, where the file
    only calls it and never passes it on.
    """
    outline, function = scope.outline, scope.frame.function
    names = list(scope.parameters)
    if function is None or parameter not in names or not _is_private(function):
        return []
    index = names.index(parameter) - (names[0] in ("self", "cls"))
    data, sought = outline.data, function.name.encode()
    given: list[Node] = []
    position = data.find(sought)
    while position >= 0:
        after = position + len(sought)
        node = outline.root.named_descendant_for_byte_range(position, after)
        if node is not None and node.type == "identifier" and node.end_byte == after and node.start_byte == position:
            value = _argument(outline, node, index, parameter)
            if value is not None:
                given.append(value)
            elif node.parent is None or node.parent.type != "function_definition":
                return []
        position = data.find(sought, after)
    return given


def _is_private(function: Frame) -> bool:
    name = function.name
    within = function.parent is not None and function.parent.function is not None
    return within or (name.startswith("_") and not name.startswith("__"))


def _argument(outline: Outline, name: Node, index: int, parameter: str) -> Node | None:
    """What a call of the name gives to a parameter."""
    called = name.parent if name.parent is not None and name.parent.type == "attribute" else name
    call = called.parent
    if call is None or call.type != "call" or call.child_by_field_name("function") != called:
        return None
    arguments = call.child_by_field_name("arguments")
    positional: list[Node] = []
    for each in () if arguments is None else arguments.named_children:
        if each.type == "keyword_argument":
            key = each.child_by_field_name("name")
            if key is not None and outline.source(key) == parameter:
                return each.child_by_field_name("value")
        elif each.type not in ("comment", "dictionary_splat"):
            positional.append(each)
    found = positional[index] if 0 <= index < len(positional) else None
    return None if found is None or any(each.type == "list_splat" for each in positional) else found


_BRACKETS = re.compile(rb"[\[({\"'#]")


def parameters_of(outline: Outline, function: Frame) -> dict[str, str]:
    """Names of a function's parameters and their annotations (empty: none), in order."""
    known = outline.parameters.get(function.index)
    if known is None:
        node = function.node.child_by_field_name("parameters")
        known = outline.parameters[function.index] = {} if node is None else dict(_parameters(outline, node))
    return known


def _parameters(outline: Outline, node: Node) -> Iterator[tuple[str, str]]:
    raw = outline.data[node.start_byte + 1 : node.end_byte - 1]
    if _BRACKETS.search(raw):
        yield from _from_nodes(outline, node)
        return
    for piece in raw.decode("utf-8", "replace").split(","):
        name, _, annotation = piece.partition("=")[0].partition(":")
        name = name.strip()
        if name and name not in ("*", "/"):
            yield name, annotation.strip()


def _from_nodes(outline: Outline, parameters: Node) -> Iterator[tuple[str, str]]:
    for node in parameters.named_children:
        kind = node.type
        if kind in ("comment", "keyword_separator", "positional_separator", "ERROR"):
            continue
        annotation = node.child_by_field_name("type") if kind.startswith("typed") else None
        name = node.child_by_field_name("name") if "default" in kind else node
        if kind == "typed_parameter":
            name = node.named_children[0]
        if name is not None:
            yield outline.source(name), "" if annotation is None else outline.one_line(annotation, 120)
