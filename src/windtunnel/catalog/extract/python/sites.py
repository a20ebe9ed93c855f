"""Statements that raise or tell an error: raise, assert, exit, parser.error, logging at error and above."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from tree_sitter import Node

from windtunnel.catalog.extract.python.calls import Call
from windtunnel.catalog.extract.python.constructed import is_handed_on, raised_names
from windtunnel.catalog.extract.python.guards import Head, cause_of, expression_head, heads_around
from windtunnel.catalog.extract.python.outline import Outline
from windtunnel.catalog.extract.python.thrown import arguments_of, thrown_by, unwrapped
from windtunnel.catalog.extract.python.told import Arguments, Told, bound, logged, told_by
from windtunnel.catalog.extract.python.variables import Scope
from windtunnel.catalog.facts import Comment, RaiseFacts
from windtunnel.catalog.record import Guard, Kind, Line, MessageSource

_MOST_LINES = 24
"""Of a statement in an excerpt."""
_LOGGERS = re.compile(r"(?i)(?:.*[._])?_*(?:log|logger|logging)\d*(?:\(\))?|.*get_?logger\(\)|.*init_logger\(\)")
_LOGGER_MADE = re.compile(
    rb"(?m)^[ \t]*(?:\w+\.)*(\w+)[ \t]*(?::[^=\n]*)?=[ \t]*[\w.]*(?:[gG]et_?[lL]ogger|init_logger|Logger)\("
)
_PARSERS = re.compile(r"(?i)(?:.*[._])?(?:\w*parser|ap|argp)\d*")
_PARSER_MADE = re.compile(rb"(?m)^[ \t]*(?:\w+\.)*(\w+)[ \t]*=[ \t]*[\w.]*(?:ArgumentParser|OptionParser|add_parser)\(")
_LOG_METHODS: dict[str, Kind] = {"error": "log", "exception": "log", "critical": "fatal log", "fatal": "fatal log"}
_EXITS = ("sys.exit", "os._exit", "exit", "quit", "_exit")
_TO_DO = re.compile(r"(?:TODO|FIXME|XXX|HACK)\b")
_PRAGMA = re.compile(r"(?i)(?:noqa|type:|pylint:|fmt:|pragma:|mypy:|ruff:|pyright:|nosec|isort:|yapf:)")


class Sites:
    """The sites of one file."""

    def __init__(self, outline: Outline, imported: Iterable[str]) -> None:
        """`imported`: local names of what the file imports."""
        self._outline = outline
        self._known = {*imported, *(frame.name for frame in outline.classes)}

    @cached_property
    def _loggers(self) -> set[str]:
        return _assigned_names(_LOGGER_MADE, self._outline.data)

    @cached_property
    def _parsers(self) -> set[str]:
        return _assigned_names(_PARSER_MADE, self._outline.data)

    def facts(self, special: list[Call]) -> tuple[RaiseFacts, ...]:
        """All of them, in the order of the file; `special`: calls whose name may tell an error."""
        outline = self._outline
        found: list[tuple[int, RaiseFacts]] = []
        for node in outline.found.get("raise", ()):
            found.extend((node.start_byte, each) for each in self._raised(node))
        for node in outline.found.get("assert", ()):
            found.extend((node.start_byte, each) for each in self._asserted(node))
        raised = raised_names(outline)
        for call in special:
            if (kind := self._kind(call)) is not None:
                found.extend((call.node.start_byte, each) for each in self._called(call, kind))
            elif call.name[:1].isupper() or call.name[:1] == "_":
                found.extend((call.node.start_byte, each) for each in self._constructed(call, raised))
        found.sort(key=lambda entry: entry[0])
        return tuple(facts for _, facts in found)

    # --- raise, assert ---

    def _raised(self, node: Node) -> Iterator[RaiseFacts]:
        scope = Scope(self._outline, node)
        thrown = thrown_by(node, scope, self._known)
        if thrown is None:
            return
        kind: Kind = "exit" if thrown.type == "SystemExit" else "raise"
        values = bound(thrown.arguments, thrown.scope)
        told = told_by(values, thrown.arguments, thrown.scope)
        if thrown.scope is not scope:  # made in an earlier statement
            made = self._outline.line_at(thrown.scope.position)
            told = [each._replace(lines=(*each.lines, made)) for each in told]
        cause = node.child_by_field_name("cause")
        yield from self._sites(_Site(node, node, scope, kind, thrown.type), told, values, cause=cause)

    def _asserted(self, node: Node) -> Iterator[RaiseFacts]:
        values = [child for child in node.named_children if child.type != "comment"]
        if not values:
            return
        outline, scope = self._outline, Scope(self._outline, node)
        condition = outline.one_line(unwrapped(values[0]))
        start, end = outline.line_at(values[0].start_byte), outline.line_at(values[0].end_byte - 1)
        own = Head(Guard(condition, False, "assert", start, end), ())
        message = values[1:2]
        told = told_by(bound(message, scope), message, scope)
        yield from self._sites(_Site(node, node, scope, "assert", "AssertionError"), told, (), own=own)

    # --- calls ---

    def _kind(self, call: Call) -> Kind | None:
        name, receiver = call.name, call.receiver
        if name in _LOG_METHODS:
            if receiver and (_LOGGERS.fullmatch(receiver) or receiver.rpartition(".")[2] in self._loggers):
                return _LOG_METHODS[name]
            if name != "error":
                return None
            if receiver and (_PARSERS.fullmatch(receiver) or receiver in self._parsers):
                return "usage"
            return "usage" if receiver == "self" and self._in_parser(call) else None
        if f"{receiver}.{name}" in _EXITS or (not receiver and name in _EXITS):
            return "exit"
        return None

    def _in_parser(self, call: Call) -> bool:
        function = self._outline.frame_at(call.node.start_byte).function
        owner = None if function is None else function.owner
        if owner is None:
            return False
        bases = owner.node.child_by_field_name("superclasses")
        return "Parser" in owner.name and (
            owner.name == "ArgumentParser" or (bases is not None and "ArgumentParser" in self._outline.source(bases))
        )

    def _called(self, call: Call, kind: Kind) -> Iterator[RaiseFacts]:
        outline, node = self._outline, call.node.parent
        if node is None:
            return
        statement, scope, arguments = _statement(node), Scope(outline, call.node), arguments_of(node)
        if kind in ("log", "fatal log"):
            told = logged(arguments, scope)
            yield from self._sites(_Site(statement, node, scope, kind, f"logger.{call.name}"), told, ())
            return
        if kind == "exit" and not (arguments and _is_failure(arguments[0], outline)):
            return
        values = bound(arguments, scope)
        told = told_by(values, arguments, scope)
        if kind == "exit" and told[0].template is None:
            told = _printed_before(statement, scope) or told
        type_ = "SystemExit" if kind == "exit" else "parser.error"
        yield from self._sites(_Site(statement, node, scope, kind, type_), told, values)

    def _constructed(self, call: Call, raised: set[tuple[int, str]]) -> Iterator[RaiseFacts]:
        """An error that is made and handed on."""
        outline, node = self._outline, call.node.parent
        if node is None or call.name in _EXITS or not is_handed_on(outline, node, raised):
            return
        scope, arguments = Scope(outline, call.node), arguments_of(node)
        values = bound(arguments, scope)
        type_ = f"{call.receiver}.{call.name}" if call.receiver else call.name
        site = _Site(_statement(node), node, scope, "construct", type_)
        yield from self._sites(site, told_by(values, arguments, scope), values)

    # --- common ---

    def _sites(
        self, site: _Site, told: list[Told], arguments: Arguments, *, cause: Node | None = None, own: Head | None = None
    ) -> Iterator[RaiseFacts]:
        """The facts of a statement, once for each of its messages."""
        outline, statement, scope = self._outline, site.statement, site.scope
        position = site.node.start_byte
        heads = heads_around(outline, scope.frame, position)
        if statement.id != site.node.id:
            heads.extend(_within(outline, statement, site.node))
        start, end = outline.line_at(statement.start_byte), outline.line_at(max(statement.end_byte - 1, 0))
        text = own.guard.condition if own is not None else outline.one_line(statement)
        wrapped = cause_of(outline, scope.frame, position, cause)
        comment = comment_at(outline, statement)
        nothing: MessageSource = "condition" if site.kind == "assert" else "statement"
        for each in told:
            around = heads if not each.heads else sorted((*heads, *each.heads), key=lambda head: head.guard.start)
            if own is not None:
                around = [*around, own]
            yield RaiseFacts(
                kind=site.kind,
                start=start,
                end=end,
                function=-1 if scope.frame.function is None else scope.frame.function.index,
                type=site.type,
                template=each.template,
                statement=text,
                excerpt=_excerpt(outline, (*each.lines, *range(start, min(end, start + _MOST_LINES - 1) + 1)), around),
                guards=tuple(head.guard for head in around),
                cause=wrapped,
                arguments=arguments,
                comment=comment,
                message_source=nothing if each.template is None else "message",
            )


class _Site(NamedTuple):
    statement: Node
    node: Node
    """The statement itself, or the call in it that tells the error."""
    scope: Scope
    kind: Kind
    type: str


def _assigned_names(pattern: re.Pattern[bytes], data: bytes) -> set[str]:
    return {name.decode("utf-8", "replace") for name in pattern.findall(data)}


_PRINTED = re.compile(rb"(?:print\(.*\bfile\s*=\s*(?:sys\.)?stderr\b|(?:sys\.)?stderr\.write\()", re.DOTALL)


def _printed_before(statement: Node, scope: Scope) -> list[Told]:
    """What is written to stderr right before the process ends."""
    before = statement.prev_named_sibling
    if before is None or before.type != "expression_statement" or not before.named_children:
        return []
    call = before.named_children[0]
    if call.type != "call" or _PRINTED.match(scope.outline.data[call.start_byte : call.end_byte]) is None:
        return []
    given = [each for each in arguments_of(call) if each.type != "keyword_argument"]
    told = told_by(bound(given, scope), given, scope)
    lines = range(scope.outline.line_at(before.start_byte), scope.outline.line_at(before.end_byte - 1) + 1)
    return [each._replace(lines=(*each.lines, *lines)) for each in told if each.template is not None]


def _is_failure(argument: Node, outline: Outline) -> bool:
    """Whether an exit tells an error: a text, or a number other than 0; not what a call gives."""
    if argument.type in ("string", "concatenated_string", "binary_operator", "unary_operator"):
        return True
    if argument.type == "integer":
        return outline.source(argument) != "0"
    if argument.type == "call":
        function = argument.child_by_field_name("function")
        return function is not None and function.type == "attribute" and outline.source(function).endswith("format")
    return argument.type == "identifier" and bool(re.search(r"(?i)me?ss?a?ge?|err", outline.source(argument)))


_HEADS = ("lambda", "if_statement", "while_statement", "for_statement", "with_statement", "elif_clause")


def _statement(node: Node) -> Node:
    """The statement that an expression stands in."""
    current = node
    while (parent := current.parent) is not None and parent.type not in ("block", "module"):
        if parent.type in _HEADS:
            return current
        current = parent
    return current


def _within(outline: Outline, statement: Node, node: Node) -> list[Head]:
    """Guards within an expression: `x if condition else fail()`, `condition and fail()`."""
    heads: list[Head] = []
    current = node
    while current.id != statement.id and (parent := current.parent) is not None:
        children = parent.named_children
        condition, holds = None, True
        if parent.type == "conditional_expression" and len(children) == 3 and current.id != children[1].id:
            condition, holds = children[1], current.id == children[0].id
        elif parent.type == "boolean_operator" and len(children) == 2 and current.id == children[1].id:
            operator = parent.child_by_field_name("operator")
            condition, holds = children[0], operator is not None and operator.type == "and"
        if condition is not None:
            heads.append(expression_head(outline, condition, holds))
        current = parent
    return heads[::-1]


def _excerpt(outline: Outline, lines: Iterable[int], heads: list[Head]) -> tuple[Line, ...]:
    texts = {number: text for head in heads for number, text in head.lines}
    for number in lines:
        texts[number] = outline.line_text(number)
    return tuple(Line(number, texts[number]) for number in sorted(texts))


def comment_at(outline: Outline, statement: Node) -> Comment | None:
    """The comment right above a statement, or at the end of its last line."""
    last = outline.line_at(max(statement.end_byte - 1, 0))
    rest = outline.data[statement.end_byte : outline.line_starts[last] if last < len(outline.line_starts) else None]
    texts = []
    if rest.lstrip().startswith(b"#"):
        texts.append((last, rest.decode("utf-8", "replace")))
    else:
        number = outline.line_at(statement.start_byte) - 1
        while number >= 1 and (text := outline.line_text(number).lstrip()).startswith("#"):
            texts.append((number, text))
            number -= 1
        texts.reverse()
    bare = [(number, line.strip().lstrip("#: ").strip()) for number, line in texts]
    kept = [(number, text) for number, text in bare if text and not _PRAGMA.match(text)]
    if not kept or _TO_DO.match(kept[0][1]):
        return None
    return Comment(kept[0][0], kept[-1][0], " ".join(text for _, text in kept)[:600])
