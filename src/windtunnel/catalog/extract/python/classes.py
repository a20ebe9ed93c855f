"""Classes: bases, constructor, the message that the class itself makes, attributes' types."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from windtunnel.catalog.extract.python.calls import Call
from windtunnel.catalog.extract.python.definitions import doc_of
from windtunnel.catalog.extract.python.messages import Parts, format_fields, literal_of, value_of
from windtunnel.catalog.extract.python.outline import Frame, Outline
from windtunnel.catalog.extract.python.variables import Scope, parameters_of
from windtunnel.catalog.facts import ClassFacts
from windtunnel.catalog.template import Hole, Part, merged, says_something

_ERROR_LIKE = re.compile(r"(?:Error|Exception|Exit|Interrupt|Warning|Failure|Fault|Timeout|Abort(?:ed)?)$")
_TEXTS = ("string", "concatenated_string", "parenthesized_expression", "binary_operator")
_MOST_TEXTS = 12
_USES = re.compile(
    rb"(?:self|cls)\.(\w+)\s*(?:\.format(?:_map)?\(|%)|(?:__init__\(|return )(?:self|cls)\.(\w+)(?=\s*(?:[,)\n]|$))"
)
_MESSAGE = re.compile(r"super\(.*\)\.__str__\(\)|\w+\.__str__\(self\)|(?:str\()?self\.args(?:\[0\])?\)?")
_FIELD_NAME = re.compile(r"\w+(?:[.\[].*)?")


class Classes:
    """The classes of one file."""

    def __init__(self, outline: Outline, special: list[Call]) -> None:
        self._outline = outline
        self._methods: dict[int, dict[str, Frame]] = {}
        for function in outline.functions:
            if (owner := function.owner) is not None:
                self._methods.setdefault(owner.index, {})[function.name] = function
        self._initialised = [call for call in special if call.name == "__init__"]
        self._assigned: dict[int, list[tuple[Frame, str, Node]]] = {}
        for node in sorted(outline.found.get("attribute", ()), key=lambda each: each.start_byte):
            self._note(node)

    def _note(self, node: Node) -> None:
        """Remember an assignment to an attribute of `self`."""
        outline = self._outline
        source = outline.data[node.start_byte : node.end_byte]
        if source[:5] != b"self." or b"." in source[5:]:
            return
        function = outline.frame_at(node.start_byte).function
        owner = None if function is None else function.owner
        if owner is not None and function is not None:
            self._assigned.setdefault(owner.index, []).append((function, source[5:].decode("utf-8", "replace"), node))

    def facts(self) -> tuple[ClassFacts, ...]:
        """All classes, in the order of the file."""
        return tuple(self._class(frame) for frame in self._outline.classes)

    def _class(self, frame: Frame) -> ClassFacts:
        outline, node = self._outline, frame.node
        bases = tuple(self._bases(node))
        body = node.child_by_field_name("body")
        methods = self._methods.get(frame.index, {})
        names = _Body(outline, frame, body)
        constructor = methods.get("__init__")
        is_error = bool(_ERROR_LIKE.search(frame.name)) or any(_ERROR_LIKE.search(base) for base in bases)
        template = renders = None
        if is_error or "__str__" in methods:
            template, renders = self._message(frame, methods, is_error)
        return ClassFacts(
            name=frame.qualified,
            start=outline.line_at(frame.start),
            end=outline.line_at(max(frame.end - 1, 0)),
            bases=bases,
            doc=doc_of(outline, body),
            parameters=tuple(names.fields) if constructor is None else tuple(_parameters(outline, constructor)),
            template=template,
            texts=names.texts,
            uses_text=self._uses_text(frame, methods, names) if is_error or "__str__" in methods else "",
            renders=renders,
            attributes=tuple(self._attributes(frame, names).items()),
        )

    def _bases(self, node: Node) -> Iterator[str]:
        given = node.child_by_field_name("superclasses")
        for each in () if given is None else given.named_children:
            if each.type not in ("keyword_argument", "comment", "list_splat", "dictionary_splat"):
                yield self._outline.one_line(each, 120)

    # --- the message ---

    def _message(self, frame: Frame, methods: dict[str, Frame], is_error: bool) -> tuple[Parts | None, Parts | None]:
        """The template over the constructor's parameters, and what `__str__` puts around the message."""
        own = self._given_to_base(methods) if is_error else None
        shown = self._returned(methods.get("__str__"))
        if shown is None:
            if own is None and is_error:
                own = self._set_attribute(frame, ("message", "msg", "args"))
            return own, None
        shown = self._over_parameters(frame, shown)
        renders: Parts = tuple(Hole("message") if _is_message(part) else part for part in shown)
        if renders != shown:
            return own, renders if len(renders) > 1 else None
        return (shown if _says(shown) and is_error else own), None

    def _given_to_base(self, methods: dict[str, Frame]) -> Parts | None:
        """What the constructor gives to the base class's as its message."""
        outline = self._outline
        for name in ("__init__", "__post_init__"):
            constructor = methods.get(name)
            if constructor is None:
                continue
            for call in self._initialised:
                node = call.node.parent
                if node is None or not constructor.start <= call.node.start_byte < constructor.end:
                    continue
                arguments = node.child_by_field_name("arguments")
                given = [] if arguments is None else [c for c in arguments.named_children if c.type != "comment"]
                if not call.receiver.startswith("super(") and given and outline.source(given[0]) == "self":
                    given = given[1:]
                scope = Scope(outline, node)
                for each in given:
                    value = each.child_by_field_name("value") if each.type == "keyword_argument" else each
                    parts = None if value is None else value_of(value, scope)
                    if parts is not None and _says(parts):
                        owner = constructor.owner
                        return parts if owner is None else self._over_parameters(owner, parts)
        return None

    def _set_attribute(self, frame: Frame, names: tuple[str, ...]) -> Parts | None:
        for function, name, node in self._assigned.get(frame.index, ()):
            if name not in names or function.name != "__init__" or node.parent is None:
                continue
            value = node.parent.child_by_field_name("right")
            while value is not None and name == "args" and value.type == "tuple" and value.named_children:
                value = value.named_children[0]
            if value is not None:
                parts = value_of(value, Scope(self._outline, node))
                if _says(parts):
                    return parts
        return None

    def _returned(self, method: Frame | None) -> Parts | None:
        """What a method returns, where it is one text."""
        if method is None:
            return None
        body = method.node.child_by_field_name("body")
        last = None if body is None else next((c for c in reversed(body.named_children) if c.type != "comment"), None)
        if last is None or last.type != "return_statement" or not last.named_children:
            return None
        scope = Scope(self._outline, last)
        return value_of(last.named_children[0], scope)

    def _over_parameters(self, frame: Frame, parts: Parts) -> Parts:
        """The parts with `self.x` as what the constructor made it from."""
        known = {}
        for function, name, node in self._assigned.get(frame.index, ()):
            if function.name == "__init__" and node.parent is not None and name not in known:
                value = node.parent.child_by_field_name("right")
                if value is not None:
                    known[name] = (value, Scope(self._outline, node))
        result: list[Part] = []
        for part in parts:
            name = part.expression.removeprefix("self.") if isinstance(part, Hole) else ""
            if isinstance(part, str) or not part.expression.startswith("self."):
                result.append(part)
            elif name in known and known[name][0].type == "identifier":
                result.append(Hole(self._outline.source(known[name][0]), part.format, part.values))
            elif name in known and not part.format and says_something(text := value_of(*known[name])):
                result.extend(text)
            elif name.isidentifier() and name != "args":
                result.append(Hole(name, part.format, part.values))
            else:
                result.append(part)
        return merged(result)

    def _uses_text(self, frame: Frame, methods: dict[str, Frame], names: _Body) -> str:
        """The attribute that `__str__` or the constructor shows as the message, directly or through one property."""
        outline = self._outline
        own = {name for _, name, _ in self._assigned.get(frame.index, ())} | names.annotated.keys()
        for method in (methods[name] for name in ("__str__", "__init__", "__post_init__") if name in methods):
            words = re.findall(r"self\.(\w+)", outline.source(method.node))
            through = [methods[word] for word in words if word in methods and methods[word] is not method]
            for each in (method, *through):
                for match in _USES.finditer(outline.data, each.start, each.end):
                    name = (match[1] or match[2]).decode("utf-8", "replace")
                    if name in names.named and name not in own:
                        return name
        return ""

    # --- attributes ---

    def _attributes(self, frame: Frame, names: _Body) -> dict[str, str]:
        attributes = dict(names.annotated)
        for function, name, node in self._assigned.get(frame.index, ()):
            parent = node.parent
            if parent is None:
                continue
            annotation = parent.child_by_field_name("type")
            if annotation is not None:
                attributes[name] = self._outline.one_line(annotation, 120)
            elif name not in attributes and (type_ := self._type_of(parent.child_by_field_name("right"), function)):
                attributes[name] = type_
        return attributes

    def _type_of(self, value: Node | None, function: Frame) -> str:
        """The class that a value is made from, or that its parameter is annotated with."""
        if value is None:
            return ""
        if value.type == "identifier":
            return parameters_of(self._outline, function).get(self._outline.source(value), "")
        if value.type != "call":
            return ""
        called = value.child_by_field_name("function")
        name = "" if called is None else self._outline.source(called)
        return name if re.fullmatch(r"(?:\w+\.)*_*[A-Z]\w*", name) else ""


class _Body:
    """What a class's body assigns."""

    def __init__(self, outline: Outline, frame: Frame, body: Node | None) -> None:
        self.texts: dict[str, Parts] = {}
        self.annotated: dict[str, str] = {}
        self.fields: list[tuple[str, str]] = []
        """Of a dataclass or a model: name and default."""
        self.named: set[str] = set()
        for child in () if body is None else body.named_children:
            if child.type != "expression_statement" or child.named_child_count != 1:
                continue
            node = child.named_children[0]
            if node.type == "assignment":
                self._assignment(outline, frame, node)

    def _assignment(self, outline: Outline, frame: Frame, node: Node) -> None:
        left, right, annotation = (node.child_by_field_name(name) for name in ("left", "right", "type"))
        if left is None or left.type != "identifier":
            return
        name = outline.source(left)
        self.named.add(name)
        type_ = "" if annotation is None else outline.one_line(annotation, 120)
        if annotation is not None and "ClassVar" not in type_:
            self.annotated[name] = type_
            self.fields.append((name, "" if right is None else outline.one_line(right, 80)))
        if right is not None and right.type in _TEXTS and len(self.texts) < _MOST_TEXTS:
            text = literal_of(right, Scope(outline, node))
            if text:
                self.texts[name] = _fields(text)


def _fields(text: str) -> Parts:
    """A text with `{name}` as holes, where it reads as a template."""
    parts = format_fields(text) if "{" in text else None
    if parts is None or not all(isinstance(part, str) or _FIELD_NAME.fullmatch(part.expression) for part in parts):
        return (text,)
    return parts


def _is_message(part: Part) -> bool:
    return isinstance(part, Hole) and _MESSAGE.fullmatch(part.expression) is not None


def _says(parts: Parts) -> bool:
    """Whether parts are more than one value passed through."""
    return says_something(parts) or len(parts) > 1


def _parameters(outline: Outline, constructor: Frame) -> Iterator[tuple[str, str]]:
    """Names and defaults, without `self`."""
    node = constructor.node.child_by_field_name("parameters")
    for number, each in enumerate(() if node is None else node.named_children):
        if number == 0 or each.type in ("comment", "keyword_separator", "positional_separator"):
            continue
        name, value = each.child_by_field_name("name"), each.child_by_field_name("value")
        if name is None:
            name = each.named_children[0] if each.type == "typed_parameter" else each
        yield outline.source(name), "" if value is None else outline.one_line(value, 80)
