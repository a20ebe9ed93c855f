"""What a name of Rust stands for, over the files of a tree: crates, modules, `use`, re-exports, aliases of `Result`.

A workspace has many enums that are called `Error`. A name is resolved as the compiler does it, as far as the facts go:
the file's own types, its imports, its glob imports, the module that a path names and what that hands on. What lies
outside of the tree keeps its full path; what is in doubt is empty.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from windtunnel.catalog.facts import ClassFacts, FileFacts, FunctionFacts

_MOST_STEPS = 8
_RESULT = re.compile(r"^(?:[\w:]+::)?(\w*Result)(?:<(.*)>)?$", re.DOTALL)
_FUTURE = re.compile(r"^(?:impl |Pin<Box<dyn )(?:\w+::)*Future<Output = (.+?)>(?:\s*\+.*)?$")
_WELL_KNOWN = {"anyhow::Result": "anyhow::Error", "eyre::Result": "eyre::Report", "color_eyre::Result": "eyre::Report",
               "std::io::Result": "std::io::Error", "tokio::io::Result": "std::io::Error",
               "std::fmt::Result": "std::fmt::Error", "serde_json::Result": "serde_json::Error",
               "rusqlite::Result": "rusqlite::Error", "reqwest::Result": "reqwest::Error"}  # fmt: skip
_SAME = {"tokio::io::Error": "std::io::Error", "std::io::error::Error": "std::io::Error",
         "io::Error": "std::io::Error", "serde_json::error::Error": "serde_json::Error"}  # fmt: skip


class Type(NamedTuple):
    """A type of the tree: the file that has it, and its name there."""

    file: int
    name: str


class Names:
    """The names of all Rust files."""

    def __init__(self, files: Sequence[FileFacts]) -> None:
        self._files = files
        self._places: list[tuple[str, tuple[str, ...]]] = [_place(facts.path) for facts in files]
        self._modules: dict[tuple[str, tuple[str, ...]], list[int]] = defaultdict(list)
        self._crates: dict[str, str] = {}
        self._classes: list[dict[str, ClassFacts]] = []
        self._imports: list[dict[str, str]] = []
        self._holders: dict[tuple[str, str], list[int]] = defaultdict(list)
        """Files of a crate that have a type of a name."""
        for index, facts in enumerate(files):
            is_rust = facts.language == "rust"
            self._classes.append({each.name: each for each in facts.classes} if is_rust else {})
            self._imports.append({name: path for name, path in facts.imports if name != "*"} if is_rust else {})
            if is_rust:
                self._note(index)

    def _note(self, index: int) -> None:
        crate, module = self._places[index]
        self._modules[crate, module].append(index)
        self._crates[crate.rpartition("/")[2].replace("-", "_")] = crate
        for name in self._classes[index]:
            if "::" not in name:
                self._holders[crate, name].append(index)

    def variant(self, file: int, path: str) -> tuple[int, ClassFacts] | None:
        """The facts of `Enum::Variant`, or of a struct, as a file writes it."""
        owner, _, last = path.rpartition("::")
        if owner and owner.rpartition("::")[2][:1].isupper():
            found = self.find(file, owner)
            name = f"{found.name}::{last}" if isinstance(found, Type) else ""
        else:
            found = self.find(file, path)
            name = found.name if isinstance(found, Type) else ""
        if not isinstance(found, Type) or name not in self._classes[found.file]:
            return None
        return found.file, self._classes[found.file][name]

    def find(self, file: int, path: str, steps: int = 0) -> Type | str:
        """What a path stands for in a file: a type of the tree, or the full path of one outside; empty: in doubt."""
        segments = path.split("::")
        head, name = segments[0], segments[-1]
        crate, module = self._places[file]
        if steps > _MOST_STEPS:
            return ""
        if len(segments) == 1:
            return self._single(file, name, steps)
        if head in ("crate", "self", "super", "$crate"):
            while segments[0] == "super":
                module, segments = module[:-1], segments[1:]
            if head != "super":
                module, segments = (module if head == "self" else ()), segments[1:]
            return self._below(crate, module, tuple(segments), steps)
        if (target := self._imports[file].get(head)) and target.partition("::")[0] != head:
            return self.find(file, "::".join((target, *segments[1:])), steps + 1)
        if (crate, (*module, head)) in self._modules:
            return self._below(crate, module, tuple(segments), steps)
        if head in self._crates and (self._crates[head], ()) in self._modules:
            return self._below(self._crates[head], (), tuple(segments[1:]), steps)
        if target:  # `use std::io` hands `io::Error` on
            path = "::".join((target, *segments[1:]))
        return _SAME.get(path, path)

    def _single(self, file: int, name: str, steps: int) -> Type | str:
        if name in self._classes[file] or f"={name}" in self._imports[file]:
            return Type(file, name)
        if (target := self._imports[file].get(name)) is not None and target != name:
            return self.find(file, target, steps + 1)
        for imported, target in self._files[file].imports:
            if imported == "*":
                found = self.find(file, f"{target.removesuffix('*')}{name}", steps + 2)
                if isinstance(found, Type):
                    return found
        return name

    def _below(self, crate: str, module: tuple[str, ...], segments: tuple[str, ...], steps: int) -> Type | str:
        """The type that a path names from a module on: in a file of its own, in a module of a file, or handed on."""
        for cut in range(len(segments) - 1, -1, -1):
            for index in self._modules.get((crate, module + segments[:cut]), ()):
                found = self._single(index, segments[-1], steps + 1)
                if isinstance(found, Type) or "::" in found:
                    return found
        holders = self._holders.get((crate, segments[-1]), []) if segments else []
        return Type(holders[0], segments[-1]) if len(holders) == 1 else ""

    # --- what functions fail with -------------------------------------------------------------------------------------

    def error_of(self, file: int, function: FunctionFacts) -> Type | str:
        """The error type of a function's result; empty: it gives no Result, or an unknown one."""
        returns = function.returns
        if future := _FUTURE.match(returns):
            returns = future[1]
        match = _RESULT.match(returns)
        if match is None:
            return ""
        arguments = top_level(match[2] or "")
        if len(arguments) == 2 and "dyn " not in arguments[1]:
            return self._error(file, re.sub(r"<.*", "", arguments[1]), function.owner)
        return self._alias(file, returns.partition("<")[0]) if len(arguments) < 2 else ""

    def _error(self, file: int, written: str, owner: str = "") -> Type | str:
        """An error type as a file writes it, aliases of types left aside."""
        name = owner if written == "Self" and owner else written.removeprefix("Self::")
        return self.find(file, name)

    def _alias(self, file: int, path: str) -> Type | str:
        """What a `Result<T>` with one argument stands for."""
        found = self.find(file, path)
        if isinstance(found, Type):
            error = self._imports[found.file].get(f"={found.name}")
            return self._error(found.file, re.sub(r"<.*", "", error)) if error else ""
        return _WELL_KNOWN.get(found, "")

    def file_of_module(self, file: int, path: str) -> list[int]:
        """Files that may have the function that a path names."""
        segments = path.split("::")
        crate, module = self._places[file]
        if len(segments) == 1:
            if (target := self._imports[file].get(path)) is None or target == path:
                return [file]
            segments = target.split("::")
        elif (target := self._imports[file].get(segments[0])) is not None:
            segments = [*target.split("::"), *segments[1:]]
        head = segments[0]
        if head in self._crates and (crate, (*module, head)) not in self._modules:
            return self._modules.get((self._crates[head], tuple(segments[1:-1])), [])
        while segments and segments[0] in ("crate", "self", "super"):
            module = () if segments[0] == "crate" else module[:-1] if segments[0] == "super" else module
            segments = segments[1:]
            head = ""
        if head and (crate, (*module, head)) not in self._modules:
            return []
        return self._modules.get((crate, module + tuple(segments[:-1])), [])


def top_level(text: str) -> list[str]:
    """What stands between commas, outside of brackets."""
    found, depth, current = list[str](), 0, ""
    for character in text.replace("->", "  "):
        depth += (character in "<([") - (character in ">)]")
        if character == "," and depth == 0:
            found.append(current.strip())
            current = ""
        else:
            current += character
    return [each for each in (*found, current.strip()) if each]


def _place(path: str) -> tuple[str, tuple[str, ...]]:
    """A file's crate, by its folder, and its module within it."""
    *folders, name = path.split("/")
    at = len(folders) - 1 - folders[::-1].index("src") if "src" in folders else -1
    crate, inside = "/".join(folders[: max(at, 0)]), folders[at + 1 :]
    stem = name.removesuffix(".rs")
    if inside[:1] == ["bin"]:
        crate, inside = f"{crate}/bin/{inside[1] if len(inside) > 1 else stem}", inside[2:]
        stem = "main" if not inside and stem != "main" else stem
    return crate, tuple(inside) if stem in ("lib", "main", "mod") else (*inside, stem)
