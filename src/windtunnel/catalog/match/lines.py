"""A cursor over the lines of a text: what a traceback's parser takes is no longer there for the others."""

from __future__ import annotations

from collections.abc import Iterator

from windtunnel.catalog.match.clean import margin_of

_MOST_FOREIGN_LINES = 200
"""Of other processes, between two lines of a traceback."""


Block = list[tuple[int, str]]
"""Lines that belong together: the index of each, and its text without what a logger put before it."""


class Lines:
    """The lines of a text, and which of them were taken."""

    def __init__(self, lines: list[str], first_number: int = 1) -> None:
        self.lines = lines
        self.first_number = first_number
        self._taken = bytearray(len(lines))

    def take(self, block: Block) -> None:
        """The lines belong to what was read."""
        for index, _ in block:
            self._taken[index] = 1

    def first_taken(self) -> int | None:
        """The first line that belongs to what was read."""
        index = self._taken.find(1)
        return index if index >= 0 else None

    def last_taken(self) -> int | None:
        """The last line that belongs to what was read."""
        index = self._taken.rfind(1)
        return index if index >= 0 else None

    def number(self, index: int) -> int:
        """Its number in the file."""
        return self.first_number + index

    def block(self, start: int, prefix: str, most: int) -> Block:
        """Lines from `start` on, without what stands before `prefix`'s end on the first: index and text of each.

        Lines of other processes are left out, where each line has the prefix.
        """
        margin = margin_of(prefix)
        block = [(start, self.lines[start][len(prefix) :])]
        has_prefix = self._goes_on(start, prefix)
        foreign = 0
        for index in range(start + 1, len(self.lines)):
            if len(block) >= most or foreign > _MOST_FOREIGN_LINES:
                break
            if self._taken[index]:
                continue
            text = margin(self.lines[index]) if has_prefix else self.lines[index]
            if text is None:
                foreign += 1
                continue
            foreign = 0
            block.append((index, text))
        return block

    def _goes_on(self, start: int, prefix: str) -> bool:
        """Whether one of the next lines has the prefix too; else it stood on the first line only."""
        if not prefix.strip():
            return bool(prefix)
        margin = margin_of(prefix)
        return any(margin(line) is not None for line in self.lines[start + 1 : start + 6])

    def __iter__(self) -> Iterator[int]:
        """The indices of lines that were not taken yet, in order."""
        for index in range(len(self.lines)):
            if not self._taken[index]:
                yield index
