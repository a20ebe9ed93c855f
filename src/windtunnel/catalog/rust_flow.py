"""Which `?` make an error of a variant with `#[from]`: where the function gives the enum, and the operand fails so."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from windtunnel.catalog.facts import FileFacts, FunctionFacts
from windtunnel.catalog.record import Propagation

_RESULT = re.compile(r"^(?:[\w:]+::)?(\w*Result)(?:<(.*)>)?$", re.DOTALL)


def propagations_of(files: Sequence[FileFacts]) -> dict[str, list[Propagation]]:
    """By the variant's name, in the order of files and lines."""
    variants = list(_converting(files))
    returns = _errors_by_function(files)
    found: dict[str, list[Propagation]] = defaultdict(list)
    for index, facts in enumerate(files):
        for each in facts.propagations:
            function = facts.functions[each.function] if each.function >= 0 else None
            if function is None or function.is_test:
                continue
            error = returns.get(each.error[1:], "") if each.error.startswith("?") else each.error
            enum = error_type_of(files, index, function)
            for name, from_type in variants:
                if error and _same(error, from_type) and enum == name.partition("::")[0]:
                    found[name].append(Propagation(facts.path, each.line, function.qualified, each.expression))
    return found


def _converting(files: Sequence[FileFacts]) -> Iterator[tuple[str, str]]:
    for facts in files:
        imports = dict(facts.imports)
        for each in facts.classes if facts.language == "rust" else ():
            if each.cause is not None and each.cause.how.startswith("#[from]"):
                type_ = each.cause.types[0]
                head, separator, rest = type_.partition("::")
                yield each.name, f"{imports.get(head, head)}{separator}{rest}"


def _errors_by_function(files: Sequence[FileFacts]) -> dict[str, str]:
    """What functions of the tree fail with, by their name, where all of that name agree."""
    found: dict[str, set[str]] = defaultdict(set)
    for index, facts in enumerate(files):
        for function in facts.functions if facts.language == "rust" else ():
            if "Result" in function.returns:
                found[function.name].add(error_type_of(files, index, function, qualified=True))
    return {name: next(iter(types)) for name, types in found.items() if len(types) == 1}


def error_type_of(files: Sequence[FileFacts], file: int, function: FunctionFacts, *, qualified: bool = False) -> str:
    """The error type of a function's result, its alias resolved; empty: it gives no Result, or an unknown one."""
    match = _RESULT.match(re.sub(r"^impl Future<Output = (.+)>$", r"\1", function.returns))
    if match is None:
        return ""
    arguments = _top_level(match[2] or "")
    facts = files[file]
    imports = dict(facts.imports)
    if len(arguments) == 2:
        error = arguments[1]
    else:
        path = function.returns.partition("<")[0]
        error = _alias(files, file, path, imports)
    head, separator, rest = error.partition("::")
    full = f"{imports.get(head, head)}{separator}{rest}"
    return full if qualified else full.rpartition("::")[2]


def _alias(files: Sequence[FileFacts], file: int, path: str, imports: dict[str, str]) -> str:
    """What `Result<T>` stands for here: the file's own alias, or that of the module that it is imported from."""
    name = path.rpartition("::")[2]
    if "::" not in path and (own := imports.get(f"={name}")) is not None:
        return own
    target = path if "::" in path else imports.get(name, "")
    if target.startswith(("anyhow::", "eyre::", "color_eyre::")):
        return "anyhow::Error"
    if target.startswith(("std::io::", "io::", "tokio::io::")):
        return "std::io::Error"
    module = target.rpartition("::")[0].rpartition("::")[2]
    for facts in files:
        stem = re.sub(r"(?:/mod)?\.rs$", "", facts.path).rpartition("/")[2]
        if stem == module or (module in ("crate", "") and stem == "lib"):
            alias = dict(facts.imports).get(f"={name}")
            if alias is not None:
                return alias
    return ""


def _top_level(text: str) -> list[str]:
    found, depth, current = list[str](), 0, ""
    for character in text:
        depth += (character in "<([") - (character in ">)]")
        if character == "," and depth == 0:
            found.append(current.strip())
            current = ""
        else:
            current += character
    return [each for each in (*found, current.strip()) if each]


def _same(one: str, other: str) -> bool:
    """`io::Error` and `std::io::Error` are one type."""
    a, b = one.split("::"), other.split("::")
    length = min(len(a), len(b), 2)
    return a[-length:] == b[-length:]
