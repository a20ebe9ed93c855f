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
_CONTINUED = re.compile(r"\\\r?\n\s*")
_TOKEN = re.compile(r'r(#*)".*?"\1|"(?:[^"\\]|\\.)*"|\'(?:\\.[^\']*|[^\\\'])\'|[()\[\]{},]', re.DOTALL)
_QUERY = """
(enum_item) @enum
(struct_item) @struct
(impl_item trait: (_) @trait (#match? @trait "Display$")) @display
(impl_item trait: (generic_type) @source (#match? @source "From<")) @from
"""


def literal_of(source: str) -> tuple[str, str] | None:
    """The first string literal of a token tree, and what stands after it."""
    match = _LITERAL.search(source)
    if match is None:
        return None
    if match[3] is None:
        return match[2], source[match.end() :]
    return unescaped(_CONTINUED.sub("", match[3])), source[match.end() :]


def arguments_of(source: str) -> list[str]:
    """What a macro is given, each on one line."""
    return [one_line(each) for each in pieces_of(source)]


def pieces_of(rest: str) -> list[str]:
    """What stands between commas at the top level, as it is written, up to the bracket that closes the whole."""
    found, depth, start = list[str](), 0, 0
    end = len(rest)
    for match in _TOKEN.finditer(rest):
        depth += (match[0] in "([{") - (match[0] in ")]}")
        if depth < 0:
            end = match.start()
            break
        if match[0] == "," and depth == 0:
            found.append(rest[start : match.start()])
            start = match.end()
    return [piece for each in (*found, rest[start:end]) if (piece := each.strip())]


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
    made_from = dict(_made_from(found.get("from", ())))
    for enum in found.get("enum", ()):
        yield from _variants(reader, enum, displayed, made_from)
    for struct in found.get("struct", ()):
        name = text(struct.child_by_field_name("name"))
        docs, attributes = above(struct)
        template = _error_attribute(attributes) or displayed.get(name)
        if template is not None or name.endswith("Error"):
            fields, cause = _fields(struct.child_by_field_name("body"))
            yield ClassFacts(name, first_line(struct), last_line(struct), (), docs, fields, template, cause=cause)


def _variants(
    reader: FileReader, enum: Node, displayed: dict[str, tuple[Part, ...]], made_from: dict[str, Cause]
) -> Iterator[ClassFacts]:
    name, body = text(enum.child_by_field_name("name")), enum.child_by_field_name("body")
    is_documented = any("displaydoc" in text(each) or re.search(r"derive\(.*\bDisplay\b", text(each), re.DOTALL)
                        for each in above(enum)[1]) and b"displaydoc" in reader.data  # fmt: skip
    variants = [child for child in body.named_children if child.type == "enum_variant"] if body is not None else []
    is_error = (
        name.endswith(("Error", "Err"))
        or is_documented
        or any(
            _error_attribute(above(variant)[1]) or f"{name}::{text(variant.child_by_field_name('name'))}" in displayed
            for variant in variants
        )
    )
    if not is_error:
        return
    enum_docs, _ = above(enum)
    yield ClassFacts(name, first_line(enum), first_line(enum), (), enum_docs)
    for variant in variants:
        qualified = f"{name}::{text(variant.child_by_field_name('name'))}"
        docs, attributes = above(variant)
        fields, cause = _fields(variant.child_by_field_name("body"))
        cause = cause or made_from.get(qualified)
        template = _error_attribute(attributes) or displayed.get(qualified)
        if template is None and any("transparent" in text(attribute) for attribute in attributes):
            template = (Hole("0" if fields and fields[0][0] == "0" else "source"),)
        if template is None and is_documented and docs is not None:
            template = brace_parts(" ".join(docs.text.partition("\n\n")[0].split()), ())
        ranges = [(first_line(each), last_line(each)) for each in (*attributes, variant)]
        yield ClassFacts(
            qualified, first_line(variant), last_line(variant), (name,), docs, fields, template, cause=cause,
            excerpt=excerpt_of(reader.lines, ranges),
        )  # fmt: skip


def _made_from(impls: list[Node] | tuple[Node, ...]) -> Iterator[tuple[str, Cause]]:
    """`impl From<io::Error> for E`, where it makes one variant: that is what `#[from]` stands for."""
    for impl in impls:
        source = one_line(text(impl.child_by_field_name("trait")))
        match = re.match(r"(?:\w+::)*From<(.+)>$", source)
        owner, body = text(impl.child_by_field_name("type")), impl.child_by_field_name("body")
        if match is None or body is None:
            continue
        made = set(re.findall(rf"\b(?:Self|{re.escape(owner)})::([A-Z]\w*)", text(body)))
        if len(made) == 1:
            yield f"{owner}::{made.pop()}", Cause((match[1],), "impl From", first_line(impl))


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
    """Type or variant → what a `Display` writes for it, where that is one text."""
    for impl in impls:
        owner = re.sub(r"<.*", "", text(impl.child_by_field_name("type"))).rpartition("::")[2]
        arms = ordered_captures("rust", "(match_arm) @a", impl).get("a", ())
        for arm in arms:
            value = arm.child_by_field_name("value")
            match = _PATTERN.match(text(arm.child_by_field_name("pattern")))
            template = _told(value) if value is not None else None
            if template is not None and match:
                names = [name.strip() for name in (match[3] or "").split(",")]
                fields = {name: str(position) for position, name in enumerate(names) if match[3]}
                enum = owner if match[1] == "Self" else match[1]
                yield f"{enum}::{match[2]}", tuple(_of_field(part, fields) for part in template)
        body = impl.child_by_field_name("body")
        if not arms and body is not None and (template := _told(body)) is not None:
            yield owner, tuple(_own(part) for part in template)


def _told(node: Node) -> tuple[Part, ...] | None:
    """The text that is written below a node: by `write!`, by `write_str`, or a literal that something else writes."""
    if node.type == "string_literal":
        return formatted_plain(text(node))
    found = ordered_captures("rust", _WRITTEN, node)
    macros = [each for each in found.get("macro", ()) if text(each.child_by_field_name("macro")).endswith("write")]
    if len(macros) == 1 and not found.get("literal"):
        return formatted(text(macros[0].named_children[-1])[1:])
    literals = found.get("literal", [])
    return formatted_plain(text(literals[0])) if len(literals) == 1 and not macros else None


def formatted_plain(literal: str) -> tuple[Part, ...] | None:
    """A literal that is no format."""
    found = literal_of(literal)
    return (found[0],) if found else None


_WRITTEN = """
(macro_invocation) @macro
(call_expression function: (field_expression field: (field_identifier) @f (#match? @f "^(write_str|pad)$"))
  arguments: (arguments . (string_literal) @literal .))
"""
_PATTERN = re.compile(r"\s*&?(?:\w+::)*?(\w+)::(\w+)\s*(?:\(([^()]*)\))?")


def _of_field(part: Part, fields: dict[str, str]) -> Part:
    """A name that a pattern binds, as the number of the variant's field."""
    if isinstance(part, Hole):
        return Hole(fields.get(part.expression, part.expression), part.format)
    return part


def _own(part: Part) -> Part:
    return Hole(part.expression.removeprefix("self."), part.format) if isinstance(part, Hole) else part
