"""What reading finds in a text: errors as somebody saw them, each with the errors that it was made from."""

from __future__ import annotations

from typing import Literal, NamedTuple

How = Literal["", "direct cause", "during handling", "caused by", "member", "validator", "logged"]
"""How an error came from the one before it in its chain: `direct cause` and `during handling` as Python says it;
`caused by` as Java and anyhow do; `member`: it is the group; `validator`: pydantic reports it; `logged`: the line of a
log above a traceback. Empty: it is the root."""


class Frame(NamedTuple):
    """A line of a traceback."""

    path: str
    line: int | None
    function: str
    """As the traceback has it, `module::f` and `pkg.(*Type).F` too; empty: it does not say."""
    source: str = ""
    """The source line, where the traceback shows it."""


class Seen(NamedTuple):
    """One error."""

    type: str
    """Empty: the text does not say."""
    message: str
    frames: tuple[Frame, ...] = ()
    """The last one is where it was raised."""
    how: How = ""
    first_line: int = 1
    last_line: int = 1
    is_type_certain: bool = True
    """False: what stands before the colon, or a field of a body, which may be no class."""
    hint: Frame | None = None
    """The place that a logger's prefix names."""
    is_grave: bool = False
    """A line that a logger marks as an error or worse."""
    is_benign: bool = False
    """A line that a logger marks as information."""
    has_trace: bool = False
    """It comes with a traceback, so its place is known, or known to be cut off."""
    language: str = ""
    """Of the traceback."""


Event = tuple[Seen, ...]
"""What belongs together: the root cause first, then what was made from it."""
