"""Which `?` make an error of a variant with `#[from]`: where the function gives the enum, and the operand fails so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from windtunnel.catalog.facts import FileFacts, FunctionFacts, PropagationFacts
from windtunnel.catalog.record import Propagation
from windtunnel.catalog.rust_names import Names, Type


def propagations_of(files: Sequence[FileFacts], names: Names | None = None) -> dict[tuple[int, str], list[Propagation]]:
    """By the variant's file and name, in the order of files and lines.

    A `?` is claimed only where both are known: the error type of the function around it, and what its operand fails
    with. So it may leave some out, and never names one that does something else.
    """
    names = names or Names(files)
    converting = dict(_converting(files, names))
    functions = _Functions(files, names)
    found: dict[tuple[int, str], list[Propagation]] = defaultdict(list)
    for index, facts in enumerate(files):
        for each in facts.propagations:
            function = facts.functions[each.function] if each.function >= 0 else None
            if function is None or function.is_test:
                continue
            enum = functions.error_of(index, each.function)
            error = functions.error_of_operand(index, each)
            if isinstance(enum, Type) and error and (variant := converting.get((enum, error))):
                found[enum.file, variant].append(
                    Propagation(facts.path, each.line, function.qualified, each.expression)
                )
    return found


def _converting(files: Sequence[FileFacts], names: Names) -> Iterator[tuple[tuple[Type, Type | str], str]]:
    """Enum and error that it is made from → variant."""
    for index, facts in enumerate(files):
        for each in facts.classes if facts.language == "rust" else ():
            if each.cause is not None and each.cause.how.startswith(("#[from]", "impl From")):
                enum = Type(index, each.name.partition("::")[0])
                yield (enum, names.find(index, each.cause.types[0].partition("<")[0])), each.name


class _Functions:
    """What the functions of a tree fail with."""

    def __init__(self, files: Sequence[FileFacts], names: Names) -> None:
        self._files = files
        self._names = names
        self._errors: dict[tuple[int, int], Type | str] = {}
        self._plain: dict[tuple[int, str], list[int]] = defaultdict(list)
        self._methods: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        for index, facts in enumerate(files):
            for number, function in enumerate(facts.functions if facts.language == "rust" else ()):
                self._note(index, number, function)

    def _note(self, file: int, number: int, function: FunctionFacts) -> None:
        if function.owner:
            self._methods[function.owner, function.name].append((file, number))
        else:
            self._plain[file, function.name].append(number)

    def error_of(self, file: int, number: int) -> Type | str:
        """Of a function, by its file and number."""
        if (file, number) not in self._errors:
            self._errors[file, number] = self._names.error_of(file, self._files[file].functions[number])
        return self._errors[file, number]

    def error_of_operand(self, file: int, operand: PropagationFacts) -> Type | str:
        """Of what a `?` stands behind: told by the file, or by the function of the tree that it calls."""
        told = operand.error
        if not told.startswith("?"):
            return self._names.find(file, told) if told else ""
        if "." in told:
            owner, _, method = told[1:].partition(".")
            return self._agreed(self._methods.get((owner, method), [])) if owner else ""
        owner, _, name = told[1:].rpartition("::")
        last = owner.rpartition("::")[2]
        if last[:1].isupper():
            return self._agreed(self._methods.get((last, name), []))
        candidates = self._names.file_of_module(file, told[1:])
        return self._agreed([(each, number) for each in candidates for number in self._plain.get((each, name), ())])

    def _agreed(self, functions: Sequence[tuple[int, int]]) -> Type | str:
        """What all of them fail with; empty: they differ, or one is not known."""
        errors = {self.error_of(file, number) for file, number in functions}
        return next(iter(errors)) if len(errors) == 1 else ""
