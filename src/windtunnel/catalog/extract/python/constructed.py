"""Errors that are made and handed on rather than raised where they are made: returned, kept, given to a future.

Which class is an error is known only when all files are. Here a call is taken for one by its name, or because the name
comes from a module of errors; `assemble` drops those whose class turns out to be none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tree_sitter import Node

from windtunnel.catalog.error_names import is_error_name
from windtunnel.catalog.extract.python.outline import Outline

_CLASS_NAME = re.compile(r"_*[A-Z]\w*[a-z]\w*")
_ERROR_MODULES = frozenset(("errors", "error", "exceptions", "exception", "exc"))


def names_from_error_modules(imports: Iterable[tuple[str, str]]) -> set[str]:
    """Of a file's imports (local name, what it stands for), those that come from a module of errors."""
    return {name for name, target in imports if target.rpartition(".")[0].rpartition(".")[2] in _ERROR_MODULES}


def may_make_error(name: str, receiver: str, from_error_modules: set[str]) -> bool:
    """Whether the call of a name, with what stands before its dot, may make an error."""
    if is_error_name(name):
        return True
    if _CLASS_NAME.fullmatch(name) is None:
        return False
    return receiver.rpartition(".")[2] in _ERROR_MODULES if receiver else name in from_error_modules


def raised_names(outline: Outline) -> set[tuple[int, str]]:
    """Variables that are raised, each with the function's index; what they hold is told where it is raised."""
    found = set()
    for node in outline.found.get("raise", ()):
        value = node.named_children[0] if node.named_children else None
        if value is not None and value.type == "identifier":
            function = outline.frame_at(node.start_byte).function
            found.add((-1 if function is None else function.index, outline.source(value)))
    return found


def is_handed_on(outline: Outline, call: Node, raised: set[tuple[int, str]]) -> bool:
    """Whether what a call makes is neither raised by its statement, nor as a variable, nor dropped at once."""
    for around in _around(call):
        if around.type in ("raise_statement", "assert_statement"):
            return False
        if around.type == "expression_statement":
            return around.named_children[0].id != call.id
        if around.type == "assignment":
            target = around.child_by_field_name("left")
            function = outline.frame_at(call.start_byte).function
            place = -1 if function is None else function.index
            return target is None or (place, outline.source(target)) not in raised
    return True


def _around(node: Node) -> Iterator[Node]:
    """What a node stands in, from the inside, up to its statement."""
    parent = node.parent
    while parent is not None and parent.type not in ("block", "module"):
        yield parent
        parent = parent.parent
