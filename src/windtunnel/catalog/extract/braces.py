"""What C++, TypeScript, JavaScript and Java have in common: statements of the same shapes under other names.

A site's guards are found by going up from it, statement by statement, to the function around it. A function without a
name (a lambda, a callback) is passed through: what had to hold where it is written had to hold.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tree_sitter import Node

from windtunnel.catalog.extract import digest_of
from windtunnel.catalog.extract.syntax import excerpt_of, first_line, last_line, one_line, parse, text
from windtunnel.catalog.facts import ClassFacts, Comment, FileFacts, FunctionFacts, RaiseFacts
from windtunnel.catalog.record import Cause, Guard, Kind, Language, MessageSource
from windtunnel.catalog.template import Part

_BLOCKS = frozenset(("compound_statement", "statement_block", "block", "constructor_body", "program", "switch_case",
                     "switch_default", "case_statement", "switch_block_statement_group"))  # fmt: skip
_LOOPS = frozenset(("while_statement", "for_statement", "for_range_loop", "enhanced_for_statement", "for_in_statement"))
_LEAVES = frozenset(("return_statement", "throw_statement", "break_statement", "continue_statement", "goto_statement",
                     "yield_statement"))  # fmt: skip
_CASES = frozenset(("case_statement", "switch_case", "switch_default", "switch_block_statement_group", "switch_rule"))
_COMMENTS = frozenset(("comment", "line_comment", "block_comment"))
_MOST_CASES = 8


def guards_of(node: Node, functions: frozenset[str]) -> tuple[Guard, ...]:
    """What had to hold, or not to hold, for `node` to be reached within its function; outermost first.

    Conditions of the preprocessor count beyond the function too.
    """
    guards: list[Guard] = []
    child, parent, inside = node, node.parent, True
    while parent is not None:
        inside = inside and not (child.type in functions and _is_named_function(child))
        if parent.type.startswith("preproc_"):
            guards += [*reversed(list(_early_exits(child, parent)))] if inside else []
            guards += _preprocessed(child, parent)
        elif inside:
            guards += reversed(list(_guards_between(child, parent)))
        child, parent = parent, parent.parent
    return _latest(reversed(guards))


def _latest(guards: Iterable[Guard]) -> tuple[Guard, ...]:
    """Without early exits whose condition is asked again later: what it is about has changed since (`rc != 0`)."""
    every = list(guards)
    again = {guard.condition: position for position, guard in enumerate(every)}
    return tuple(g for position, g in enumerate(every) if g.kind != "early exit" or again[g.condition] == position)


def _preprocessed(child: Node, parent: Node) -> list[Guard]:
    """`#if`, `#ifdef`, and their `#else`; not the guard around a header."""
    condition, name = parent.child_by_field_name("condition"), parent.child_by_field_name("name")
    subject = condition or name
    if parent.type not in ("preproc_if", "preproc_ifdef", "preproc_elif") or subject is None or child == subject:
        return []
    negated = text(parent.child(0)) == "#ifndef"
    if negated and re.search(r"_(?:H|HH|HPP|CUH|INCLUDED)_*$", text(subject).upper()):
        return []
    holds = negated == (child == parent.child_by_field_name("alternative"))
    words = one_line(text(condition)) if condition is not None else f"defined({text(name)})"
    return [Guard(words, holds, "cfg", first_line(subject), first_line(subject))]


def _is_named_function(node: Node) -> bool:
    without = ("arrow_function", "function_expression", "lambda_expression", "func_literal")
    return node.type not in without or _holder(node) is not None


def _holder(node: Node) -> Node | None:
    """The name that a function without one is given at once: `const f = () => …`, `{f: () => …}`."""
    parent = node.parent
    if parent is None:
        return None
    for name, value in (("name", "value"), ("key", "value"), ("left", "right")):
        if parent.child_by_field_name(value) == node:
            return parent.child_by_field_name(name)
    return None


def _guards_between(child: Node, parent: Node) -> Iterator[Guard]:
    """Of one step up, in the order of the source."""
    kind = parent.type
    condition = parent.child_by_field_name("condition")
    if kind in _CASES:
        yield from _case(child, parent)
    if kind in _BLOCKS:
        yield from _early_exits(child, parent)
    elif kind in ("if_statement", "conditional_expression", "ternary_expression") and condition is not None:
        if child == parent.child_by_field_name("consequence"):
            yield _guard(condition, True, "if")
        elif child == parent.child_by_field_name("alternative"):
            yield _guard(condition, False, "if")
    elif kind in _LOOPS and child == parent.child_by_field_name("body"):
        yield from _loop(parent, child)
    elif kind == "catch_clause" and child == parent.child_by_field_name("body"):
        yield Guard(", ".join(caught(parent)) or "anything", True, "except", first_line(parent), first_line(parent))


def _guard(condition: Node, holds: bool, kind: str) -> Guard:
    return Guard(_bare(condition), holds, kind, first_line(condition), last_line(condition))


def _bare(condition: Node) -> str:
    """A condition without the parentheses around it."""
    source = one_line(text(condition))
    if condition.type in ("parenthesized_expression", "condition_clause"):
        source = source[1:-1].strip()
    return source


def _loop(parent: Node, body: Node) -> Iterator[Guard]:
    """A loop's head."""
    condition = parent.child_by_field_name("condition")
    if parent.type == "while_statement" and condition is not None:
        yield Guard(f"while {_bare(condition)}", True, "while", first_line(condition), last_line(condition))
        return
    head = (parent.text or b"")[: body.start_byte - parent.start_byte].decode("utf-8", "replace")
    inside = one_line(head).removeprefix("for").strip()
    inside = inside[1:-1].strip() if inside.startswith("(") and inside.endswith(")") else inside
    yield Guard(f"for {inside}", True, "for", first_line(parent), max(first_line(parent), first_line(body) - 1))


def _case(child: Node, case: Node) -> Iterator[Guard]:
    """The value of a switch, and the labels that lead here; at `default`, all that don't."""
    switch = case.parent.parent if case.parent is not None else None
    in_label = child == case.child_by_field_name("value") or child.type == "switch_label"
    if switch is None or case.parent is None or in_label:
        return
    subject = switch.child_by_field_name("condition") or switch.child_by_field_name("value")
    if subject is None:
        return
    labels, default = _labels(case)
    before = case.prev_named_sibling
    while before is not None and before.type in _CASES and _is_empty(before):  # it falls through to this one
        more, is_default = _labels(before)
        labels, default = more + labels, default or is_default
        before = before.prev_named_sibling
    line = first_line(case)
    if default:
        cases = case.parent.named_children
        others = [label for other in cases if other.type in _CASES for label in _labels(other)[0]]
        for label in [other for other in others if other not in labels][:_MOST_CASES]:
            yield Guard(f"{_bare(subject)} == {label}", False, "case", line, line)
    elif labels:
        yield Guard(" || ".join(f"{_bare(subject)} == {label}" for label in labels), True, "case", line, line)


def _labels(case: Node) -> tuple[list[str], bool]:
    """The values of a case, and whether it is the default."""
    value = case.child_by_field_name("value")
    if value is not None:
        return [one_line(text(value))], False
    labels = [child for child in case.named_children if child.type == "switch_label"]
    values = [one_line(text(child)) for label in labels for child in label.named_children]
    is_default = not values and (not labels or any(text(label).startswith("default") for label in labels))
    return values, is_default


def _is_empty(case: Node) -> bool:
    value = case.child_by_field_name("value")
    return all(
        child == value or child.type == "switch_label" or child.type in _COMMENTS for child in case.named_children
    )


def _early_exits(child: Node, block: Node) -> Iterator[Guard]:
    """An `if` before `child` one side of which leaves the block: what leads to that side did not hold."""
    for statement in block.named_children:
        if statement == child:
            return
        if statement.type == "if_statement":
            yield from _left_by(statement)


def _left_by(statement: Node) -> Iterator[Guard]:
    """Of an `if` with its `else if`: the conditions of those branches that leave, none of which held."""
    stayed: list[Node] = []
    branch: Node | None = statement
    while branch is not None and (condition := branch.child_by_field_name("condition")) is not None:
        alternative = branch.child_by_field_name("alternative")
        if _leaves(branch.child_by_field_name("consequence")):
            if not stayed:
                yield _guard(condition, False, "early exit")
            else:
                words = " && ".join([*(f"!({_bare(each)})" for each in stayed), f"({_bare(condition)})"])
                yield Guard(words, False, "early exit", first_line(condition), last_line(condition))
        elif _leaves(alternative) and not stayed:
            yield _guard(condition, True, "early exit")
            return
        else:
            stayed.append(condition)
        branch = _else_if(alternative)


def _else_if(alternative: Node | None) -> Node | None:
    if alternative is not None and alternative.type == "else_clause":
        alternative = next(iter(alternative.named_children), None)
    return alternative if alternative is not None and alternative.type == "if_statement" else None


def _leaves(body: Node | None) -> bool:
    if body is None:
        return False
    if body.type in _LEAVES:
        return True
    statements = [child for child in body.named_children if child.type not in _COMMENTS]
    return (body.type in _BLOCKS or body.type == "else_clause") and bool(statements) and _leaves(statements[-1])


def caught(clause: Node) -> tuple[str, ...]:
    """The types of a catch clause; none where it takes all."""
    for child in clause.named_children:
        if child.type == "catch_formal_parameter":
            types = next(part for part in child.named_children if part.type == "catch_type")
            return tuple(text(part) for part in types.named_children)
        if child.type == "parameter_list" and child.named_children:
            return (text(child.named_children[0].child_by_field_name("type")),)
    return ()


def caught_variable(clause: Node) -> str:
    """What a catch clause calls the error."""
    names = [child for child in _descendants(clause) if child.type == "identifier"]
    body = clause.child_by_field_name("body")
    heads = [name for name in names if body is None or name.start_byte < body.start_byte]
    return text(heads[-1]) if heads else ""


def _descendants(node: Node) -> Iterator[Node]:
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        pending += reversed(current.children)


def around(node: Node, types: Iterable[str]) -> Node | None:
    """The nearest node of one of the types that `node` lies in."""
    types, parent = frozenset(types), node.parent
    while parent is not None and parent.type not in types:
        parent = parent.parent
    return parent


def cause_of(node: Node, arguments: Iterable[Node]) -> Cause | None:
    """Where the error is raised in a catch clause: what was caught, and whether it is handed on."""
    clause = around(node, ("catch_clause", "function_definition", "method_declaration", "method_definition"))
    if clause is None or clause.type != "catch_clause":
        return None
    variable = caught_variable(clause)
    types = caught(clause) or (variable or "anything",)
    handed = bool(variable) and any(re.search(rf"\b{re.escape(variable)}\b", text(argument)) for argument in arguments)
    return Cause(types, "cause" if handed else "during handling", first_line(clause), variable)


def comment_above(node: Node) -> Comment | None:
    """The comment that ends on the line before `node`, several lines of `//` as one."""
    end = first_line(node)
    start, texts, before = end, list[str](), node.prev_named_sibling
    while before is not None and before.type in _COMMENTS and last_line(before) == start - 1:
        texts.append(uncommented(text(before)))
        start, before = first_line(before), before.prev_named_sibling
    return Comment(start, end - 1, "\n".join(reversed(texts)).strip()) if texts else None


_TAG = re.compile(r"^\s*(?:@[a-zA-Z]|\\(?:param|throws?|returns?|see|since|tparam)\b)", re.MULTILINE)
_INLINE = re.compile(
    r"\{@(?:code|literal|value)\s+([^{}]*)\}|\{@link(?:plain|code)?\s+([^\s{}|]+)(?:[\s|]+([^{}]*))?\}"
)
_MARKUP = re.compile(
    r"</?(?:p|pre|b|i|em|strong|ul|ol|li|br|a|tt|div|span|table|tr|td|th|h\d|blockquote|d[ltd]|su[bp]|u)\b[^<>]*>"
)


def uncommented(source: str) -> str:
    """A comment's text without its marks; of a doc comment what stands before its first tag, without its markup."""
    body = re.sub(r"^\s*(///?|/\*+|\*/|\*(?!/))[!<]?[ \t]?|\s*\*/\s*$", "", source, flags=re.MULTILINE).strip()
    body = re.sub(r"^[@\\](?:brief|short)\s+", "", body)
    body = _TAG.split(body, maxsplit=1)[0].strip()
    if not source.lstrip().startswith(("/**", "///", "/*!", "//!")):
        return body
    body = _MARKUP.sub("", re.sub(r"</?code>", "`", body))
    body = _INLINE.sub(lambda match: f"`{(match[1] or match[3] or match[2].lstrip('#')).strip()}`", body)
    return html.unescape(body).strip()


@dataclass
class FileReader:
    """A file under extraction: its tree, and the facts that are gathered."""

    path: str
    data: bytes
    language: Language
    grammar: str
    functions: frozenset[str]
    owners: frozenset[str]
    is_test: bool
    root: Node = field(init=False)
    lines: list[bytes] = field(init=False)
    raises: list[tuple[int, RaiseFacts]] = field(default_factory=list)
    classes: list[ClassFacts] = field(default_factory=list)
    _functions: dict[int, tuple[int, FunctionFacts]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.root = parse(self.grammar, self.data)
        self.lines = self.data.split(b"\n")

    def named_function(self, node: Node) -> Node | None:
        """The function with a name that `node` lies in."""
        function = around(node, self.functions)
        while function is not None and not _is_named_function(function):
            function = around(function, self.functions)
        return function

    def guards(self, node: Node) -> tuple[Guard, ...]:
        """What had to hold for `node` to be reached within its function."""
        return guards_of(node, self.functions)

    def function_index(self, node: Node) -> int:
        """Of the function that `node` lies in; -1: none."""
        function = self.named_function(node)
        if function is None:
            return -1
        if function.id not in self._functions:
            self._functions[function.id] = (len(self._functions), self._function_facts(function))
        return self._functions[function.id][0]

    def _function_facts(self, function: Node) -> FunctionFacts:
        qualified = function_name(function)
        owner = self.owner_of(function)
        if owner and not qualified.startswith(f"{owner}."):
            qualified = f"{owner}.{qualified}"
        first, body = first_line(function), function.child_by_field_name("body")
        head = text(function) if body is None else text(function)[: -len(text(body)) or None]
        statement = (
            function.parent if function.parent is not None and function.parent.type == "export_statement" else function
        )
        scope, _, name = qualified.rpartition(".")
        doc, head = comment_above(statement), one_line(head, 200)
        return FunctionFacts(name, qualified, first, last_line(function), owner or scope, doc, head=head)

    def owner_of(self, node: Node) -> str:
        """The class or struct that `node` lies in, with those around it."""
        names: list[str] = []
        owner = around(node, self.owners)
        while owner is not None:
            if name := text(owner.child_by_field_name("name")):
                names.append(name)
            owner = around(owner, self.owners)
        return ".".join(reversed(names))

    def add(
        self,
        kind: Kind,
        node: Node,
        type_: str,
        template: tuple[Part, ...] | None,
        *,
        guards: tuple[Guard, ...] = (),
        cause: Cause | None = None,
        arguments: tuple[tuple[str, tuple[Part, ...]], ...] = (),
        otherwise: tuple[MessageSource, str] | None = None,
        statement: Node | None = None,
        is_sure: bool = True,
    ) -> None:
        """Note a site.

        `guards` are its own, beyond those on the way to it. `otherwise` stands for the message where there is none;
        where that is None too, the class may have one. A site that is not sure is one only where its class has.
        """
        source: MessageSource = "message" if is_sure else "statement"
        if template is None and otherwise is not None:
            source, template = otherwise[0], (otherwise[1],)
        statement = statement or node
        every = self.guards(node) + guards
        start, end = first_line(statement), last_line(statement)
        ranges = [(start, min(end, start + 29)), *((guard.start, guard.end) for guard in every)]
        excerpt, comment = excerpt_of(self.lines, ranges), comment_above(statement)
        function, words = self.function_index(node), one_line(text(statement))
        site = RaiseFacts(
            kind, start, end, function, type_, template, words, excerpt, every, cause, arguments, comment, source
        )
        self.raises.append((node.start_byte, site))

    def facts(self) -> FileFacts:
        """Everything that was noted."""
        functions = tuple(facts for _, facts in sorted(self._functions.values(), key=lambda pair: pair[0]))
        raises = tuple(site for _, site in sorted(self.raises, key=lambda pair: pair[0]))
        digest, problem, classes = digest_of(self.data), problem_of(self.root, self.language), tuple(self.classes)
        return FileFacts(
            self.path, self.language, digest, len(self.lines), self.is_test, problem, functions, classes, raises
        )


def problem_of(root: Node, language: Language) -> str | None:
    """What the grammar made nothing of. Macros of C++ are no reason to complain, as long as there is a tree."""
    if not root.has_error or (language == "cpp" and root.type != "ERROR"):
        return None
    node = root
    while node.type != "ERROR" and (inner := next((child for child in node.children if child.has_error), None)):
        node = inner
    return f"line {first_line(node)} is not understood; what stands around it may be missing"


def function_name(function: Node) -> str:
    """As its own language qualifies it, with dots: `Agent.connect`."""
    name = function.child_by_field_name("name") or _holder(function)
    declarator = function.child_by_field_name("declarator")
    while name is None and declarator is not None:
        inner = declarator.child_by_field_name("declarator")
        if declarator.type == "function_declarator":
            name = inner
        declarator = inner
    return one_line(re.sub(r"<[^<>]*>", "", text(name))).replace("this.", "").replace("::", ".")
