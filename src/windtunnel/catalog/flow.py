"""Who may call a function that raises, and who catches what comes out of it.

Calls are resolved by name and by what is known of the receiver: `self` and the class hierarchy, annotations of
parameters, types of attributes, imports. Where nothing is known, a name counts only if few functions have it. So
callers are *possible* callers; and what lies beyond the bounds of the search is said to be unknown.
"""

from __future__ import annotations

import builtins
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from windtunnel.catalog.error_names import is_error_name
from windtunnel.catalog.facts import ClassFacts, FileFacts, FunctionFacts, HandlerFacts

_MOST_DEPTH = 7
_MOST_VISITED = 60
_MOST_CALLS = 400
"""Call sites of one name beyond which it says nothing."""
_FEW_DEFINITIONS = 2
_MOST_KIN = 24
_TYPE_NAME = re.compile(r"\b(?:[A-Za-z_]\w*\.)*([A-Z]\w*)")
_NO_TYPES = frozenset(("None", "Optional", "Union", "Any", "Callable", "Literal", "ClassVar", "Final", "Self", "Type"))


class Place(NamedTuple):
    """A function, by its file's and its own index; -1: a module's top."""

    file: int
    function: int


class Call(NamedTuple):
    """A call that may lead to a function."""

    caller: Place
    line: int


class Caught(NamedTuple):
    """A handler on a way."""

    file: int
    handler: HandlerFacts
    via: tuple[Place, ...]
    """The functions that the error came through, the one that raises it first."""


class Ways(NamedTuple):
    """The ways on which an error leaves a function."""

    calls: tuple[Call, ...]
    """That call the function itself."""
    ends: tuple[tuple[Place, ...], ...]
    """Ways that no known handler ends, from the raising function to the one that nobody is known to call."""
    caught: tuple[Caught, ...]
    is_complete: bool
    """Whether nothing was cut off by the search's bounds."""


class Flow:
    """The calls and handlers of all files."""

    def __init__(self, files: Sequence[FileFacts]) -> None:
        self.files = files
        self._definitions: dict[str, list[Place]] = defaultdict(list)
        self._classes: dict[str, list[tuple[int, ClassFacts]]] = defaultdict(list)
        for index, facts in enumerate(files):
            for number, function in enumerate(facts.functions):
                self._definitions[function.name].append(Place(index, number))
            for each in facts.classes:
                self._classes[each.name.rpartition(".")[2]].append((index, each))
        self._starts: dict[int, tuple[list[int], list[int]]] = {}
        self._imports: dict[int, dict[str, str]] = {}
        self._families: dict[str, frozenset[str]] = {}
        self._callers: dict[Place, tuple[tuple[Call, ...], bool]] = {}
        self._enclosing: dict[tuple[int, int], Place] = {}
        self._types: dict[tuple[Place, str], list[str]] = {}
        self._modules = [_module(facts.path) for facts in files]

    @cached_property
    def _calls(self) -> dict[str, list[tuple[int, int, str]]]:
        """File, line and receiver of the calls of each name that is defined somewhere."""
        found: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
        for index, facts in enumerate(self.files):
            if facts.is_test:
                continue
            for call in facts.calls:
                if call.name in self._definitions or call.name in self._classes:
                    found[call.name] += [
                        (index, line, receiver) for line, receiver in zip(call.lines, call.receivers, strict=True)
                    ]
        return found

    def function(self, place: Place) -> FunctionFacts | None:
        """None: a module's top."""
        return self.files[place.file].functions[place.function] if place.function >= 0 else None

    def name(self, place: Place) -> str:
        """Of the function, as its file qualifies it."""
        function = self.function(place)
        return "" if function is None else function.qualified

    # --- classes --------------------------------------------------------------------------------------------------

    @cached_property
    def _bases(self) -> dict[str, set[str]]:
        bases: dict[str, set[str]] = defaultdict(set)
        for name, known in self._classes.items():
            for _, facts in known:
                bases[name] |= {base.partition("[")[0].rpartition(".")[2] for base in facts.bases}
        return bases

    @cached_property
    def _below(self) -> dict[str, set[str]]:
        below: dict[str, set[str]] = defaultdict(set)
        for name, bases in self._bases.items():
            for base in bases:
                below[base].add(name)
        return below

    def family(self, name: str) -> frozenset[str]:
        """The class, all above it and all below it, by their simple names."""
        if name not in self._families:
            self._families[name] = frozenset(_reached(name, self._bases) | _reached(name, self._below))
        return self._families[name]

    def is_subclass(self, name: str, base: str) -> bool:
        """Whether `name` is `base` or below it, as far as the tree and the built-in exceptions tell."""
        name, base = (re.sub(r"^.*(?:\.|::)", "", text) if "::" not in text else text for text in (name, base))
        if name == base or base in ("BaseException", "anything") or name.startswith(f"{base}::"):
            return True
        above = _reached(name, self._bases)
        if base in above:
            return True
        known = getattr(builtins, base, None)
        classes = [cls for each in above if isinstance(cls := getattr(builtins, each, None), type)]
        if isinstance(known, type) and any(issubclass(cls, known) for cls in classes):
            return True
        # an error class of another package is an Exception in all likelihood
        return base == "Exception" and not any(issubclass(cls, BaseException) for cls in classes)

    def is_error(self, name: str) -> bool:
        """Whether a class of the tree is below an error: a built-in one, or one whose name says so."""
        return any(is_error_name(above) for above in _reached(name, self._bases) - {name})

    # --- calls ----------------------------------------------------------------------------------------------------

    def enclosing(self, file: int, line: int) -> Place:
        """The innermost function around a line."""
        known = self._enclosing.get((file, line))
        if known is None:
            known = self._enclosing[file, line] = self._find_enclosing(file, line)
        return known

    def _find_enclosing(self, file: int, line: int) -> Place:
        if file not in self._starts:
            functions = self.files[file].functions
            order = sorted(range(len(functions)), key=lambda i: (functions[i].start, -functions[i].end))
            self._starts[file] = ([functions[i].start for i in order], order)
        starts, order = self._starts[file]
        functions = self.files[file].functions
        for position in range(bisect_right(starts, line) - 1, -1, -1):
            if functions[order[position]].end >= line:
                return Place(file, order[position])
        return Place(file, -1)

    def callers(self, place: Place) -> tuple[tuple[Call, ...], bool]:
        """Possible calls of a function, and whether they are all that the tree has."""
        if place not in self._callers:
            self._callers[place] = self._find_callers(place)
        return self._callers[place]

    def _find_callers(self, place: Place) -> tuple[tuple[Call, ...], bool]:
        function = self.function(place)
        if function is None:
            return (), True
        owner = function.owner.rpartition(".")[2]
        name = owner if function.name in ("__init__", "__post_init__", "__new__") and owner else function.name
        calls = self._calls.get(name, [])
        if len(calls) > _MOST_CALLS:
            calls = [call for call in calls if call[0] == place.file]
            complete = False
        else:
            complete = True
        found = [
            Call(self.enclosing(file, line), line)
            for file, line, receiver in calls
            if self._may_reach(place, function, owner, file, line, receiver)
        ]
        return tuple(call for call in found if call.caller != place), complete

    def _may_reach(
        self, place: Place, function: FunctionFacts, owner: str, file: int, line: int, receiver: str
    ) -> bool:
        if receiver in ("self", "cls", "super()", "Self", "this"):
            around = self.function(self.enclosing(file, line))
            around_owner = around.owner.rpartition(".")[2] if around else ""
            return bool(owner) and (around_owner == owner or around_owner in self.family(owner))
        if not receiver:
            return self._plain_call(place, function, owner, file)
        root = receiver.partition(".")[0]
        if (target := self._import(file).get(receiver)) is not None:
            return self._is_module(place, target) if not owner else target.rpartition(".")[2] == owner
        types = self._types_of(file, line, receiver)
        if types:
            return bool(owner) and any(owner == t or self._is_kin(owner, t) for t in types)
        if receiver.rpartition(".")[2] == owner:  # called on the class itself
            return True
        if root in self._import(file):  # a module, or something of another package
            return self._is_module(place, self._import(file)[root])
        return bool(owner) and len(self._definitions[function.name]) <= _FEW_DEFINITIONS

    def _is_kin(self, owner: str, annotated: str) -> bool:
        """Whether the annotated class may be `owner`; a base of very many (`nn.Module`) says nothing."""
        family = self.family(annotated)
        return owner in family and len(family) <= _MOST_KIN

    def _plain_call(self, place: Place, function: FunctionFacts, owner: str, file: int) -> bool:
        if function.name in ("__init__", "__post_init__", "__new__") and owner:
            target = self._import(file).get(owner, "")
            if file == place.file or target.rpartition(".")[2] == owner:
                return file == place.file or self._is_module(place, target.rpartition(".")[0])
            return any(name.rpartition(".")[2] == owner for name in self._import(file).values())
        if owner and "." not in function.qualified.removeprefix(f"{owner}."):
            return False  # a method is not called by its name alone
        if file == place.file:
            return True
        target = self._import(file).get(function.name, "")
        if self.files[file].language != "python":
            return len(self._definitions[function.name]) <= _FEW_DEFINITIONS
        return target.rpartition(".")[2] == function.name and self._is_module(place, target.rpartition(".")[0])

    def imported(self, file: int, name: str) -> str:
        """What a file has imported under a name; empty: nothing."""
        return self._import(file).get(name, "")

    def is_in_module(self, file: int, target: str) -> bool:
        """Whether something imported as `target` may stand in the file."""
        return self._is_module(Place(file, -1), target) or self._is_module(Place(file, -1), target.rpartition(".")[0])

    def _import(self, file: int) -> dict[str, str]:
        if file not in self._imports:
            self._imports[file] = dict(self.files[file].imports)
        return self._imports[file]

    def _is_module(self, place: Place, target: str) -> bool:
        """Whether an imported name stands for the module of `place`, or a package that hands it on."""
        module = self._modules[place.file]
        return bool(target) and (module == target or module.endswith(f".{target}") or module.startswith(f"{target}."))

    def _types_of(self, file: int, line: int, receiver: str) -> list[str]:
        """The classes that a receiver may have, by annotations; none: nothing is known."""
        place = self.enclosing(file, line)
        known = self._types.get((place, receiver))
        if known is None:
            known = self._types[place, receiver] = self._find_types(place, receiver)
        return known

    def _find_types(self, place: Place, receiver: str) -> list[str]:
        function = self.function(place)
        if function is None:
            return []
        first, *rest = receiver.split(".")
        if first in ("self", "cls", "this"):
            types = [function.owner.rpartition(".")[2]]
        else:
            annotation = dict(function.parameters).get(first, "")
            types = _types_in(annotation)
        for attribute in rest:
            types = [
                found
                for name in types
                for base in (name, *sorted(_reached(name, self._bases) - {name}))
                for _, facts in self._classes.get(base, [])
                for known, annotation in facts.attributes
                if known == attribute
                for found in _types_in(annotation)
            ]
        return types

    # --- ways out -------------------------------------------------------------------------------------------------

    def catching(self, file: int, line: int, function: int, type_: str) -> Iterator[HandlerFacts]:
        """Handlers around a line that catch `type_`, the innermost first."""
        around = [
            handler
            for handler in self.files[file].handlers
            if handler.body_start <= line <= handler.body_end and handler.function == function
        ]
        around.sort(key=lambda handler: handler.body_end - handler.body_start)
        for handler in around:
            if not handler.catches or any(self.is_subclass(type_, caught) for caught in handler.catches):
                yield handler

    def ways(self, place: Place, line: int, type_: str) -> Ways:
        """Follow an error out of the line that raises it."""
        caught: list[Caught] = []
        ends: list[tuple[Place, ...]] = []
        if self._stopped(place, line, type_, (place,), caught):
            return Ways(self.callers(place)[0], (), tuple(caught), True)
        calls, complete = self.callers(place)
        pending: list[tuple[Place, ...]] = [(place,)]
        seen = {place}
        while pending:
            way = pending.pop(0)
            callers, is_all = self.callers(way[-1])
            complete = complete and is_all
            if not callers or len(way) > _MOST_DEPTH:
                complete = complete and not callers
                ends.append(way)
                continue
            for call in callers:
                if self._stopped(call.caller, call.line, type_, (*way, call.caller), caught):
                    continue
                if call.caller in seen:
                    continue
                if len(seen) >= _MOST_VISITED:
                    complete = False
                    break
                seen.add(call.caller)
                pending.append((*way, call.caller))
        return Ways(calls, tuple(ends), tuple(_unique(caught)), complete)

    def _stopped(self, place: Place, line: int, type_: str, via: tuple[Place, ...], caught: list[Caught]) -> bool:
        """Note the handlers around a line; whether one of them lets the error go no further."""
        for handler in self.catching(place.file, line, place.function, type_):
            caught.append(Caught(place.file, handler, via))
            if handler.does != "re-raises":
                return True
        return False


def _unique(caught: Iterable[Caught]) -> Iterator[Caught]:
    known: set[tuple[int, int, int]] = set()
    for one in caught:
        key = (one.file, one.handler.start, one.handler.body_start)
        if key not in known:
            known.add(key)
            yield one


def _reached(name: str, edges: dict[str, set[str]]) -> set[str]:
    found = {name}
    pending = [name]
    while pending:
        for other in edges.get(pending.pop(), ()):
            if other not in found:
                found.add(other)
                pending.append(other)
    return found


def _types_in(annotation: str) -> list[str]:
    """The class names in an annotation: of `"Channel" | None` Channel; of containers what they hold counts too."""
    return [name for name in _TYPE_NAME.findall(annotation) if name not in _NO_TYPES]


def _module(path: str) -> str:
    stem = re.sub(r"\.\w+$", "", path).removesuffix("/__init__")
    return stem.removeprefix("src/").replace("/", ".")
