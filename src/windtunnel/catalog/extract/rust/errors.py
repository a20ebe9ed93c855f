"""Error types of Rust: `thiserror`'s enums and structs, and those that write their own `Display`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from windtunnel.catalog.extract.braces import FileReader
from windtunnel.catalog.extract.formats import brace_parts, unescaped
from windtunnel.catalog.extract.syntax import excerpt_of, first_line, last_line, one_line, ordered_captures, text
from windtunnel.catalog.facts import ClassFacts, Comment
from windtunnel.catalog.record import Cause
from windtunnel.catalog.template import Hole, Part, merged

_LITERAL = re.compile(r'r(#*)"(.*?)"\1|"((?:[^"\\]|\\.)*)"', re.DOTALL)
_QUERY = """
(enum_item) @enum
(struct_item) @struct
(impl_item trait: (_) @trait (#match? @trait "Display$")) @display
"""


def literal_of(source: str) -> tuple[str, str] | None:
    """The first string literal of a token tree, and what stands after it."""
    match = _LITERAL.search(source)
    if match is None:
        return None
    return (match[2] if match[3] is None else unescaped(match[3])), source[match.end() :]


def arguments_of(rest: str) -> list[str]:
    """What stands after a format string, between commas at the top level."""
    found, depth, current, quote = list[str](), 0, "", False
    for character in rest.strip().removesuffix(")").removesuffix("]").removesuffix("}"):
        if character == '"':
            quote = not quote
        if not quote:
            depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0 and not quote:
            found.append(current)
            current = ""
        else:
            current += character
    return [argument for each in (*found, current) if (argument := one_line(each))]


def formatted(source: str) -> tuple[Part, ...] | None:
    """A format string with its arguments, as macros take them; None: there is no literal."""
    found = literal_of(source)
    if found is None:
        return None
    literal, rest = found
    named: dict[str, str] = {}
    plain: list[str] = []
    for argument in arguments_of(rest):
        match = re.match(r"(\w+)\s*=\s*([^=].*)$", argument, re.DOTALL)
        if match:
            named[match[1]] = match[2]
        else:
            plain.append(argument)
    parts = brace_parts(literal, plain)
    return merged(
        Hole(named.get(part.expression, part.expression), part.format) if isinstance(part, Hole) else part
        for part in parts
    )


def classes_of(reader: FileReader) -> Iterator[ClassFacts]:
    """The error types of a file."""
    found = ordered_captures("rust", _QUERY, reader.root)
    displayed = dict(_displayed(found.get("display", ())))
    for enum in found.get("enum", ()):
        yield from _variants(reader, enum, displayed)
    for struct in found.get("struct", ()):
        name = text(struct.child_by_field_name("name"))
        docs, attributes = above(struct)
        template = _error_attribute(attributes) or displayed.get(name)
        if template is not None or name.endswith("Error"):
            fields, cause = _fields(struct.child_by_field_name("body"))
            yield ClassFacts(name, first_line(struct), last_line(struct), (), docs, fields, template, cause=cause)


def _variants(reader: FileReader, enum: Node, displayed: dict[str, tuple[Part, ...]]) -> Iterator[ClassFacts]:
    name, body = text(enum.child_by_field_name("name")), enum.child_by_field_name("body")
    variants = [child for child in body.named_children if child.type == "enum_variant"] if body is not None else []
    is_error = name.endswith(("Error", "Err")) or any(
        _error_attribute(above(variant)[1]) or f"{name}::{text(variant.child_by_field_name('name'))}" in displayed
        for variant in variants
    )
    if not is_error:
        return
    enum_docs, _ = above(enum)
    yield ClassFacts(name, first_line(enum), first_line(enum), (), enum_docs)
    for variant in variants:
        qualified = f"{name}::{text(variant.child_by_field_name('name'))}"
        docs, attributes = above(variant)
        fields, cause = _fields(variant.child_by_field_name("body"))
        template = _error_attribute(attributes) or displayed.get(qualified)
        if template is None and any("transparent" in text(attribute) for attribute in attributes):
            template = (Hole("0" if fields and fields[0][0] == "0" else "source"),)
        ranges = [(first_line(each), last_line(each)) for each in (*attributes, variant)]
        yield ClassFacts(
            qualified, first_line(variant), last_line(variant), (name,), docs, fields, template, cause=cause,
            excerpt=excerpt_of(reader.lines, ranges),
        )  # fmt: skip


def above(item: Node) -> tuple[Comment | None, list[Node]]:
    """The doc comment and the attributes of an item."""
    attributes: list[Node] = []
    lines: list[tuple[int, str]] = []
    before = item.prev_named_sibling
    while before is not None and before.type in ("attribute_item", "line_comment", "block_comment"):
        source = text(before)
        if before.type == "attribute_item":
            attributes.append(before)
        elif source.startswith(("///", "/**")):
            lines.append((first_line(before), re.sub(r"^///\s?|^/\*\*\s*|\s*\*/$", "", source.strip())))
        before = before.prev_named_sibling
    lines.reverse()
    comment = Comment(lines[0][0], lines[-1][0], "\n".join(line for _, line in lines).strip()) if lines else None
    return comment, attributes[::-1]


def _error_attribute(attributes: list[Node]) -> tuple[Part, ...] | None:
    """`#[error("…", …)]`, `#[display("…")]`."""
    for attribute in attributes:
        match = re.match(r"#\[(?:error|display|snafu\(display)\s*\((.*)\)\s*\)?\]$", text(attribute), re.DOTALL)
        if match and not match[1].strip().startswith("transparent"):
            return formatted(match[1])
    return None


def _fields(body: Node | None) -> tuple[tuple[tuple[str, str], ...], Cause | None]:
    """Names (or numbers) of the fields, and the one that it is made from."""
    if body is None:
        return (), None
    names: list[tuple[str, str]] = []
    cause, how = None, ""
    for child in body.named_children:
        if child.type == "attribute_item":
            how = one_line(text(child)) if re.match(r"#\[(?:from|source)\]", one_line(text(child))) else how
            continue
        if "comment" in child.type or child.type == "visibility_modifier":
            continue
        name = text(child.child_by_field_name("name")) if child.type == "field_declaration" else str(len(names))
        type_ = child.child_by_field_name("type") if child.type == "field_declaration" else child
        if how:
            cause = Cause((re.sub(r"^Box<(.+)>$", r"\1", one_line(text(type_))),), how, first_line(child), name)
        names.append((name, ""))
        how = ""
    return tuple(names), cause


def _displayed(impls: list[Node] | tuple[Node, ...]) -> Iterator[tuple[str, tuple[Part, ...]]]:
    """Type or variant → what its `Display` writes, where that is one format string."""
    for impl in impls:
        owner = re.sub(r"<.*", "", text(impl.child_by_field_name("type")))
        for macro in ordered_captures("rust", "(macro_invocation) @m", impl).get("m", ()):
            if not text(macro.child_by_field_name("macro")).endswith("write"):
                continue
            template = formatted(text(macro.named_children[-1]))
            arm = macro.parent
            while arm is not None and arm != impl and arm.type != "match_arm":
                arm = arm.parent
            if template is None or arm is None:
                continue
            if arm == impl:
                yield owner, tuple(_own(part) for part in template)
            elif match := _PATTERN.match(text(arm.child_by_field_name("pattern"))):
                names = [name.strip() for name in (match[2] or "").split(",")]
                fields = {name: str(position) for position, name in enumerate(names) if match[2]}
                yield f"{owner}::{match[1]}", tuple(_of_field(part, fields) for part in template)


_PATTERN = re.compile(r"\s*(?:\w+::)*?(?:Self|\w+)::(\w+)\s*(?:\(([^()]*)\))?")


def _of_field(part: Part, fields: dict[str, str]) -> Part:
    """A name that a pattern binds, as the number of the variant's field."""
    if isinstance(part, Hole):
        return Hole(fields.get(part.expression, part.expression), part.format)
    return part


def _own(part: Part) -> Part:
    return Hole(part.expression.removeprefix("self."), part.format) if isinstance(part, Hole) else part
