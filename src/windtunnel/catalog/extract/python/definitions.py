"""Functions, docstrings and imports of a file."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterator, Mapping

from tree_sitter import Node

from windtunnel.catalog.extract.python.messages import unescape
from windtunnel.catalog.extract.python.outline import Frame, Outline
from windtunnel.catalog.extract.python.variables import parameters_of
from windtunnel.catalog.facts import Comment, FunctionFacts

_MOST_HEAD_CHARACTERS = 160
_MOST_TYPE_CHARACTERS = 120
_MOST_DOC_CHARACTERS = 600


def functions_of(outline: Outline, raised: Mapping[int, Collection[str]], is_test: bool) -> tuple[FunctionFacts, ...]:
    """All functions; those that `raised` names (function → types) with docstrings and all of their parameters."""
    return tuple(_function(outline, frame, raised.get(frame.index), is_test) for frame in outline.functions)


def _function(outline: Outline, frame: Frame, types: Collection[str] | None, is_test: bool) -> FunctionFacts:
    node = frame.node
    body, returns = node.child_by_field_name("body"), node.child_by_field_name("return_type")
    start = outline.line_at(frame.start)
    if types is not None:
        parameters = tuple(parameters_of(outline, frame).items())
    else:
        parameters = tuple(_typed(outline.data, frame.start, frame.end if body is None else body.start_byte))
    head = outline.line_text(start).strip()
    return FunctionFacts(
        name=frame.name,
        qualified=frame.qualified,
        start=start,
        end=outline.line_at(max(frame.end - 1, 0)),
        owner="" if frame.owner is None else frame.owner.qualified,
        doc=None if types is None else doc_of(outline, body, types),
        parameters=parameters,
        returns="" if returns is None else outline.one_line(returns, _MOST_TYPE_CHARACTERS),
        is_test=is_test and frame.name.startswith("test"),
        head=head if len(head) <= _MOST_HEAD_CHARACTERS else head[: _MOST_HEAD_CHARACTERS - 1] + "…",
    )


_TYPED = re.compile(rb":[ ]?([\"']?(?:Optional\[)?(?:\w+\.)*_*[A-Z]\w*\]?[\"']?(?: ?\| ?None)?)(?=\s*[,=)])")
_NAME = re.compile(rb"\w+\Z")


def _typed(data: bytes, start: int, end: int) -> Iterator[tuple[str, str]]:
    """Parameters of a head whose type may be a class: what calls are resolved by."""
    for match in _TYPED.finditer(data, start, end):
        if (name := _NAME.search(data[max(match.start() - 60, start) : match.start()])) is not None:
            yield name[0].decode("utf-8", "replace"), match[1].decode("utf-8", "replace")


def doc_of(outline: Outline, body: Node | None, types: Collection[str] = ()) -> Comment | None:
    """The docstring at the start of a body: its first paragraph, and what its `Raises:` section says of the types."""
    first = None if body is None else next((each for each in body.named_children if each.type != "comment"), None)
    if first is None or first.type != "expression_statement" or first.named_child_count != 1:
        return None
    node = first.named_children[0]
    if node.type != "string":
        return None
    match = re.fullmatch(r"([a-zA-Z]*)(\"\"\"|'''|\"|')(.*)\2", outline.source(node), re.DOTALL)
    if match is None or "b" in match[1].lower() or "f" in match[1].lower():
        return None
    text = inspect.cleandoc(match[3] if "r" in match[1].lower() else unescape(match[3]))
    paragraph = " ".join(re.split(r"\n\s*\n", text, maxsplit=1)[0].split())
    if len(paragraph) > _MOST_DOC_CHARACTERS:
        paragraph = paragraph[: _MOST_DOC_CHARACTERS - 1] + "…"
    raises = _raises(text, types)
    if not paragraph and not raises:
        return None
    start, end = outline.line_at(node.start_byte), outline.line_at(node.end_byte - 1)
    return Comment(start, end, "\n\n".join(filter(None, (paragraph, raises))))


_GOOGLE = re.compile(r"(?m)^Raises:[ \t]*\n((?:[ \t]+.*\n?|\n)+)")
_NUMPY = re.compile(r"(?m)^Raises[ \t]*\n-{3,}[ \t]*\n((?:.*\n?)*?)(?=^\w[^\n]*\n-{3,}|\Z)")
_SPHINX = re.compile(r"(?m)^[ \t]*:(?:raises?|exception)[ \t]+([\w.]+)[ \t]*:[ \t]*((?:.*\n?)(?:[ \t]+(?!:).*\n?)*)")


def _raises(text: str, types: Collection[str]) -> str:
    """The entries for the types, as `Raises Type: when`, one a line."""
    if not types or "aise" not in text:
        return ""
    entries = [(match[1], match[2]) for match in _SPHINX.finditer(text)]
    if google := _GOOGLE.search(text):
        entries += re.findall(r"(?m)^([`~\w.]+)[ \t]*:[ \t]*(.*\n?(?:[ \t]+.*\n?|\n)*)", inspect.cleandoc(google[1]))
    elif numpy := _NUMPY.search(text):
        entries += re.findall(r"(?m)^([`~\w.]+)[ \t]*\n((?:[ \t]+.*\n?)+)", numpy[1])
    names = {type_.rpartition(".")[2] for type_ in types}
    said = [
        f"Raises {name.strip('`~')}: {' '.join(when.split())[:300]}"
        for name, when in entries
        if name.strip("`~").rpartition(".")[2] in names
    ]
    return "\n".join(said)


def imports_of(outline: Outline, path: str) -> tuple[tuple[str, str], ...]:
    """Local name and what it stands for; relative imports are resolved by the file's path."""
    package = path.removesuffix(".py").split("/")[:-1]
    names: dict[str, str] = {}
    # in the file's order: of two under one name, as with imports by platform, it is always the same that counts
    for node in sorted(outline.found.get("import", ()), key=lambda each: each.start_byte):
        module_node = node.child_by_field_name("module_name")
        module = "" if module_node is None else outline.source(module_node)
        if module.startswith("."):
            rest = module.lstrip(".")
            ups = len(module) - len(rest) - 1
            base = package[: len(package) - ups] if ups else package
            module = ".".join((*base, *([rest] if rest else [])))
        for each in node.children_by_field_name("name"):
            if each.type == "aliased_import":
                name, alias = each.child_by_field_name("name"), each.child_by_field_name("alias")
                if name is not None and alias is not None:
                    target = outline.source(name)
                    names[outline.source(alias)] = f"{module}.{target}" if module_node is not None else target
            else:
                target = outline.source(each)
                if module_node is not None:
                    names[target] = f"{module}.{target}"
                else:
                    names[target.partition(".")[0]] = target.partition(".")[0]
    return tuple(names.items())
