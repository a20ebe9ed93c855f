"""Error types of Go, and sentinels: variables of a package that stand for one error each."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from windtunnel.catalog.extract.braces import comment_above
from windtunnel.catalog.extract.go.messages import parts_of
from windtunnel.catalog.extract.go.reader import GoReader, receiver_of
from windtunnel.catalog.extract.syntax import excerpt_of, first_line, last_line, ordered_captures, text
from windtunnel.catalog.facts import ClassFacts, Comment
from windtunnel.catalog.template import Hole, Part, says_something

_METHODS = '(method_declaration name: (field_identifier) @n (#eq? @n "Error")) @method'


def find_error_types(reader: GoReader) -> None:
    """Note every type that has a method `Error() string`, with the message that the method makes."""
    types = {
        text(spec.child_by_field_name("name")): spec
        for spec in ordered_captures("go", "(type_spec) @t", reader.root).get("t", ())
    }
    for method in ordered_captures("go", _METHODS, reader.root).get("method", ()):
        receiver = method.child_by_field_name("receiver")
        if receiver is None or text(method.child_by_field_name("result")) != "string":
            continue
        name, type_ = receiver_of(receiver)
        reader.error_types.add(type_)
        spec = types.get(type_)
        declared = method if spec is None else spec
        doc = None if spec is None else _doc(spec)
        fields = () if spec is None else tuple((field, "") for field in _fields(spec))
        template = _message(reader, method, name)
        reader.classes.append(ClassFacts(type_, first_line(declared), last_line(declared), (), doc, fields, template))


def _doc(spec: Node) -> Comment | None:
    """The comment above a declaration, or above the keyword before it."""
    own = comment_above(spec)
    return comment_above(spec.parent) if own is None and spec.parent is not None else own


def _fields(spec: Node) -> Iterator[str]:
    """Of a struct, in order; of another type its value."""
    type_ = spec.child_by_field_name("type")
    if type_ is None or type_.type != "struct_type":
        yield "0"
        return
    for field in ordered_captures("go", "(field_declaration) @f", type_).get("f", ()):
        if field.parent is not None and field.parent.parent == type_:
            names = [text(name) for name in field.children_by_field_name("name")]
            yield from names or [text(field.child_by_field_name("type")).lstrip("*").rpartition(".")[2]]


def _message(reader: GoReader, method: Node, receiver: str) -> tuple[Part, ...] | None:
    """What `Error` returns, where just one of its returns gives a text."""
    returned = ordered_captures("go", "(return_statement (expression_list) @e)", method).get("e", ())
    found = [parts for each in returned if (parts := parts_of(each.named_children[0], reader.constants))]
    if len(found) != 1 or not says_something(found[0]):
        return None
    return tuple(_of_field(part, receiver) if isinstance(part, Hole) else part for part in found[0])


def _of_field(part: Hole, receiver: str) -> Hole:
    """A field of the receiver by its name; the receiver itself, of a type that is no struct, as 0."""
    words = part.expression
    is_value = bool(receiver) and words in (receiver, f"*{receiver}", f"string({receiver})", f"string(*{receiver})")
    return Hole("0" if is_value else words.removeprefix(f"{receiver}."), part.format)


def note_sentinel(reader: GoReader, spec: Node, template: tuple[Part, ...] | None, base: str = "") -> str:
    """Note a variable of the package that holds an error; its name."""
    name = text(spec.child_by_field_name("name"))
    start, end = first_line(spec), last_line(spec)
    declaration = spec.parent if spec.parent is not None and spec.parent.type == "var_declaration" else spec
    bases, excerpt = (base,) if base else (), excerpt_of(reader.lines, [(start, end)])
    doc = comment_above(declaration)
    reader.classes.append(ClassFacts(name, start, end, bases, doc, (), template, excerpt=excerpt))
    return name
