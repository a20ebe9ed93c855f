"""A cursor over the lines of a text: what a traceback's parser takes is no longer there for the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from windtunnel.catalog.match.clean import margin_of

MOST_FOREIGN_LINES = 30
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

    def taken(self) -> list[int]:
        """The lines that belong to what was read."""
        return [index for index, is_taken in enumerate(self._taken) if is_taken]

    def number(self, index: int) -> int:
        """Its number in the file."""
        return self.first_number + index

    def block(self, start: int, prefix: str, most: int) -> Block:
        """Lines from `start` on, without what stands before `prefix`'s end on the first: index and text of each.

        Lines of other processes are left out, where each line has the prefix.
        """
        margin = self._margin(start, prefix)
        block = [(start, self.lines[start][len(prefix) :])]
        foreign = 0
        for index in range(start + 1, len(self.lines)):
            if len(block) >= most or foreign > MOST_FOREIGN_LINES:
                break
            if self._taken[index]:
                continue
            text = margin(self.lines[index])
            foreign = foreign + 1 if text is None else 0
            if text is not None:
                block.append((index, text))
        return block

    def _margin(self, start: int, prefix: str) -> Callable[[str], str | None]:
        """How the lines below begin: a logger repeats its prefix as it is, others with another time, or not at all."""
        if not prefix.strip():
            return margin_of(prefix)
        below = [
            self.lines[index] for index in range(start + 1, min(start + 6, len(self.lines))) if not self._taken[index]
        ]
        whole = prefix.rstrip()
        if any(line.startswith(whole) for line in below):
            return lambda line: line[len(prefix) :] if line.startswith(whole) else None
        margin = margin_of(prefix)
        return margin if any(margin(line) is not None for line in below) else lambda line: line

    def __iter__(self) -> Iterator[int]:
        """The indices of lines that were not taken yet, in order."""
        for index in range(len(self.lines)):
            if not self._taken[index]:
                yield index
