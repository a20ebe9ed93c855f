"""Tracebacks of Python: chained, of exception groups, with notes, of syntax errors, cut off at either end."""

from __future__ import annotations

import re

from windtunnel.catalog.match.clean import is_log_line
from windtunnel.catalog.match.lines import Block, Lines
from windtunnel.catalog.match.seen import Event, Frame, How, Seen

HEAD = "Traceback (most recent call last):"
_GROUP_HEAD = "Exception Group Traceback (most recent call last):"
_FRAME = re.compile(r'\s*File "(?P<path>[^"\n]{1,1000})", line (?P<line>\d{1,9})(?:, in (?P<function>.*))?\s*$')
FRAME_START = re.compile(r'^(?P<prefix>.*?)(?P<indent> {2})File "[^"\n]{1,1000}", line \d{1,9}, in \S')
_CHAINS: dict[str, How] = {
    "The above exception was the direct cause of the following exception:": "direct cause",
    "During handling of the above exception, another exception occurred:": "during handling",
}
_TYPE = re.compile(r"(?P<type>[A-Za-z_][\w.]*(?:\.<locals>\.[\w.]+)*)(?:: ?(?P<message>.*))?$", re.DOTALL)
_CARETS = re.compile(r"[\s~^]+$")
_REPEATED = re.compile(r"\s*\[Previous line repeated \d+ more times?\]")
_RULE = re.compile(r"\s*\+(?P<first>-\+)?-{4,}(?P<number> (?:\d+|\.\.\.) -{4,})?$")
_MARGIN = re.compile(r"(?P<indent>\s*)[|+]")
_MOST_MESSAGE_LINES = 200
_MOST_MEMBERS = 50


def read_python(lines: Lines, block: Block) -> tuple[list[Event], int]:
    """The tracebacks that a block begins with: one event, or one for each member of a group; and where they end."""
    reader = _Reader(lines, block)
    return reader.chains(), reader.position


class _Reader:
    """Reads a block of lines; `position` is the first one that no traceback has."""

    def __init__(self, lines: Lines, block: Block, column: int | None = None) -> None:
        self.lines = lines
        self.block = block
        self.column = column
        """Of the margin that its lines have in a group."""
        self.position = 0

    def chains(self) -> list[Event]:
        """One chain, or those of a group's members, each with what is above it."""
        chains: list[list[Seen]] = [[]]
        how: How = ""
        while self.position < len(self.block):
            members: list[Event] = []
            if self._is_group():
                seen, members = self._group(how)
            else:
                seen = self._one(how)
            if seen is None:
                break
            if members:
                chains += [list(member) for member in members[:_MOST_MEMBERS]]
            for position, chain in enumerate(chains):
                if chain or not members:
                    is_member = members and position
                    chain.append(seen._replace(how="member") if is_member else seen)
            how = self._chain_word()
            if not how:
                break
        return [tuple(chain) for chain in chains if chain]

    def _is_group(self) -> bool:
        head, found, _ = self._text().partition(_GROUP_HEAD)
        return bool(found) and (self.column is not None or "+" in head)

    def _text(self, ahead: int = 0) -> str:
        at = self.position + ahead
        if at >= len(self.block):
            return ""
        text = self.block[at][1]
        return text if self.column is None else text[self.column + 2 :]

    def _number(self, at: int) -> int:
        return self.lines.number(self.block[at][0])

    def _one(self, how: How) -> Seen | None:
        """A traceback: its head, frames, and the error with its message."""
        start = self.position
        if self._text().strip().endswith(HEAD):
            self.position += 1
        frames = self._frames()
        type_, message = self._error(bool(frames))
        if not frames and not type_:
            return None
        end = self._number(max(start, self.position - 1))
        return Seen(type_, message, frames, how, self._number(start), end, has_trace=True, language="python")

    def _frames(self) -> tuple[Frame, ...]:
        frames: list[Frame] = []
        while self.position < len(self.block):
            match = _FRAME.match(self._text())
            if match is None:
                if not _REPEATED.match(self._text()):
                    break
                self.position += 1
                continue
            self.position += 1
            source = []
            indent = len(match[0]) - len(match[0].lstrip())
            while self._is_source(indent):
                if not _CARETS.fullmatch(self._text()):
                    source.append(self._text().strip())
                self.position += 1
            if match["function"] is not None:  # else it is a SyntaxError's place
                frames.append(Frame(match["path"], int(match["line"]), match["function"].strip(), " ".join(source)))
        return tuple(frames)

    def _is_source(self, indent: int) -> bool:
        text = self._text()
        stripped = text.lstrip()
        return (
            bool(stripped)
            and len(text) - len(stripped) > indent
            and not _FRAME.match(text)
            and not _REPEATED.match(text)
        )

    def _error(self, is_expected: bool) -> tuple[str, str]:
        """The last line of a traceback, and those that its message goes on over."""
        first = self._text()
        match = _TYPE.match(first) if first[:1].strip() else None
        if match is None or not (is_expected or self.position):
            return "", ""
        if is_log_line(first) and ("." not in match["type"] and not match["type"].endswith(("Error", "Exception"))):
            return "", ""
        self.position += 1
        message = [match["message"] or ""]
        while self.position < len(self.block) and len(message) < _MOST_MESSAGE_LINES and self._is_message():
            message.append(self._text())
            self.position += 1
        while len(message) > 1 and not message[-1].strip():
            message.pop()
            self.position -= 1
        return match["type"], "\n".join(message)

    def _is_message(self) -> bool:
        text = self._text()
        if HEAD in text or text.strip() in _CHAINS or is_log_line(text) or FRAME_START.match(text):
            return False
        if text.strip():
            return True
        following = next((t for ahead in range(1, 4) if (t := self._text(ahead)).strip()), "")
        return bool(following) and following.strip() not in _CHAINS and self._text(1).strip() != ""

    def _chain_word(self) -> How:
        """Goes to the next traceback of the chain, where there is one."""
        ahead = 0
        while ahead < 3 and not self._text(ahead).strip() and self.position + ahead < len(self.block):
            ahead += 1
        how = _CHAINS.get(self._text(ahead).strip(), "")
        if how:
            self.position += ahead + 1
            while self.position < len(self.block) and not self._text().strip():
                self.position += 1
        return how

    def _group(self, how: How) -> tuple[Seen | None, list[Event]]:
        """An exception group: its own traceback stands at one margin, its members deeper, between rules."""
        raw = self.block[self.position][1]
        column = self.column if self.column is not None else raw.index("+")
        own: Block = [(self.block[self.position][0], " " * column + "| " + HEAD)]
        members: list[Block] = []
        self.position += 1
        while self.position < len(self.block):
            index, raw = self.block[self.position]
            rule, margin = _RULE.match(raw), _MARGIN.match(raw)
            indent = len(margin["indent"]) if margin else -1
            if indent < column:
                break
            self.position += 1
            is_first = rule is not None and rule["first"] is not None and indent == column
            is_next = rule is not None and rule["first"] is None and indent == column + 2
            if is_first or (is_next and rule is not None and rule["number"]):
                members.append([])
            elif is_next:
                break
            else:
                (members[-1] if members else own).append((index, raw))
        seen = _Reader(self.lines, own, column)._one(how)
        return seen, [chain for member in members for chain in _member_chains(self.lines, member, column + 2)]


def _member_chains(lines: Lines, block: Block, column: int) -> list[Event]:
    """A member that was never raised has no traceback, only its line."""
    reader = _Reader(lines, block, column)
    if block and HEAD not in block[0][1]:
        type_, message = reader._error(is_expected=True)
        seen = Seen(type_, message, has_trace=True, language="python")
        seen = seen._replace(first_line=reader._number(0), last_line=reader._number(len(block) - 1))
        return [(seen,)] if type_ else []
    return reader.chains()
