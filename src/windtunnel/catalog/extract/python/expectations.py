"""What a test file expects to be raised."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from windtunnel.catalog.extract.python.calls import Call
from windtunnel.catalog.extract.python.messages import literal_of
from windtunnel.catalog.extract.python.outline import Outline
from windtunnel.catalog.extract.python.variables import Scope
from windtunnel.catalog.facts import Expectation

_EXPECT = ("raises", "assertRaises", "assertRaisesRegex")
_IN_TEXT = re.compile(rb"(?m)^[ \t]*assert[ \t]+(f?r?[\"'](?:[^\"'\\\n]|\\.)+[\"'])[ \t]+in[ \t]+(?:str\()?(\w+)")
_MOST_BYTES_AFTER = 600
"""Behind a `with raises(…) as name:`, for an assertion on the name's text."""


def expectations_of(outline: Outline, special: list[Call]) -> tuple[Expectation, ...]:
    """`pytest.raises`, `assertRaises`, `assertRaisesRegex`, with the text that they look for."""
    return tuple(found for call in special if call.name in _EXPECT for found in _expected(outline, call))


def _expected(outline: Outline, call: Call) -> Iterator[Expectation]:
    node = call.node.parent
    arguments = None if node is None else node.child_by_field_name("arguments")
    if node is None or arguments is None or arguments.type != "argument_list":
        return
    frame = outline.frame_at(node.start_byte)
    scope = Scope(outline, node)
    positional: list[Node] = []
    match: Node | None = None
    for each in arguments.named_children:
        if each.type == "keyword_argument":
            key = each.child_by_field_name("name")
            if key is not None and outline.source(key) in ("match", "expected_regex"):
                match = each.child_by_field_name("value")
        elif each.type != "comment":
            positional.append(each)
    if not positional:
        return
    if call.name == "assertRaisesRegex" and len(positional) > 1:
        match = positional[1]
    pattern, is_regex = "", False
    if match is not None:
        pattern, is_regex = _pattern(match, scope)
    if not pattern:
        pattern = _asserted_text(outline, node, scope)
    types = positional[0].named_children if positional[0].type == "tuple" else [positional[0]]
    for type_ in types:
        yield Expectation(
            type=outline.one_line(type_, 120),
            pattern=pattern,
            is_regex=is_regex,
            function=-1 if frame.function is None else frame.function.index,
            line=outline.line_at(node.start_byte),
        )


def _pattern(node: Node, scope: Scope) -> tuple[str, bool]:
    """The text that is looked for, and whether it is a regular expression."""
    if node.type == "call":
        function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        if function is not None and arguments is not None and scope.outline.source(function).endswith("escape"):
            given = arguments.named_children
            return ((literal_of(given[0], scope) or "") if given else "", False)
    text = literal_of(node, scope) or ""
    return text, bool(re.search(r"[\\^$.|?*+()\[\]{}]", text))


def _asserted_text(outline: Outline, call: Node, scope: Scope) -> str:
    """The text that an assertion right after `with raises(…) as name:` finds in the error."""
    after = outline.data[call.end_byte : call.end_byte + _MOST_BYTES_AFTER]
    alias = re.match(rb"\s+as\s+(\w+)\s*:", after)
    if alias is None:
        return ""
    for match in _IN_TEXT.finditer(after):
        if match[2] == alias[1]:
            start = call.end_byte + match.start(1)
            node = outline.root.named_descendant_for_byte_range(start, start + len(match[1]))
            if node is not None and node.type == "string":
                return literal_of(node, scope) or ""
    return ""
