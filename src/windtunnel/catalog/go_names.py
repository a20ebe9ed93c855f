"""Which error type or sentinel of a Go tree a file means by a name: of its own package, or of one that it imports."""

from __future__ import annotations

import re
from collections.abc import Sequence

from windtunnel.catalog.facts import ClassFacts, FileFacts

Known = Sequence[tuple[int, ClassFacts]]


def class_of(files: Sequence[FileFacts], known: Known, file: int, name: str, imported: str) -> int | None:
    """The position in `known`, the types of that name, of the one that a file means; None: none, or in doubt.

    `imported`: the path of the package that stands before the dot.
    """
    here = next((at for at, (index, each) in enumerate(known) if index == file and each.name == name), None)
    if here is not None:
        return here
    folder = _folder(files[file])
    if "." not in name:
        own = [position for position, (index, _) in enumerate(known) if _folder(files[index]) == folder]
        return own[0] if own else None
    target = _segments(imported)
    lengths = [_num_shared(_folder(files[index]), target) for index, _ in known]
    most = max(lengths, default=0)
    return lengths.index(most) if most and lengths.count(most) == 1 else None


def _folder(facts: FileFacts) -> list[str]:
    return _segments(facts.path.rpartition("/")[0])


def _segments(path: str) -> list[str]:
    """Without major versions, which an import path has and a folder may not."""
    return [segment for segment in path.split("/") if segment and not re.fullmatch(r"v\d+", segment)]


def _num_shared(folder: list[str], target: list[str]) -> int:
    """How many segments both end with."""
    shared = 0
    for one, other in zip(reversed(folder), reversed(target), strict=False):
        if one != other:
            break
        shared += 1
    return shared
