"""What extraction finds in one file, before anything is known of the others. Kept per file, so indexing is incremental.

The same shapes serve every language; what a language does not have stays empty. Lines count from 1. Functions are named
by their index in `FileFacts.functions`; -1 is the file's top level.
"""

from __future__ import annotations

import msgspec

from windtunnel.catalog.record import Cause, Guard, Kind, Language, Line, MessageSource
from windtunnel.catalog.template import Part


class Comment(msgspec.Struct, frozen=True, array_like=True):
    """A docstring, doc comment, or comment: text without its marks, and its lines."""

    start: int
    end: int
    text: str


class FunctionFacts(msgspec.Struct, frozen=True, array_like=True):
    """A function that something was found in, or that is called somewhere."""

    name: str
    qualified: str
    """With its classes, modules of the file, or impl's type: `Communicator.execute`."""
    start: int
    end: int
    owner: str = ""
    """The class or impl's type."""
    doc: Comment | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    """Name and annotated type (empty: none)."""
    returns: str = ""
    """The annotated type; in Rust with its error type, as far as the file's aliases tell."""
    is_test: bool = False
    head: str = ""
    """Its first line, on one line: `def execute(self) -> None:`; for quotes."""


class ClassFacts(msgspec.Struct, frozen=True, array_like=True):
    """A class, struct, enum, or an enum's variant that is an error or may be the receiver of a call."""

    name: str
    """Of a variant: `Enum::Variant`."""
    start: int
    end: int
    bases: tuple[str, ...] = ()
    doc: Comment | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    """Of its constructor: name and default as the code writes it (empty: none); for binding arguments to holes."""
    template: tuple[Part, ...] | None = None
    """The message that the class itself makes, over its parameters or fields (constructor, `#[error]`)."""
    texts: dict[str, tuple[Part, ...]] = {}
    """Class attributes that are texts: `happened = "…"`."""
    uses_text: str = ""
    """The attribute of `texts` that it, or a class below it, shows as message (`self.happened.format(…)`)."""
    renders: tuple[Part, ...] | None = None
    """What `__str__` puts around the message, with a hole `message`."""
    attributes: tuple[tuple[str, str], ...] = ()
    """Attributes of instances and their types, where annotated or assigned from a constructor."""
    cause: Cause | None = None
    """`#[from]`, `#[source]`."""
    excerpt: tuple[Line, ...] = ()
    """Of a variant: its attributes and head."""


class RaiseFacts(msgspec.Struct, frozen=True, array_like=True):
    """A statement that raises, or tells, an error."""

    kind: Kind
    start: int
    end: int
    function: int
    type: str
    """As the code writes it: `pkg.Type`, `BenchError::Io`, `RuntimeError`; of a log the function: `logger.error`."""
    template: tuple[Part, ...] | None
    """None: there is none at the site; the class may have one, else the condition or statement stands for it."""
    statement: str
    """The statement, or of an assert its condition, on one line; at most 400 characters."""
    excerpt: tuple[Line, ...]
    guards: tuple[Guard, ...] = ()
    cause: Cause | None = None
    arguments: tuple[tuple[str, tuple[Part, ...]], ...] = ()
    """Of the constructor: keyword (empty: positional) and value as parts; a hole where it is no text."""
    comment: Comment | None = None
    """Right above the statement, or at its end."""
    message_source: MessageSource = "message"
    """`statement` without a template: it is a site only where its class has a message."""


class HandlerFacts(msgspec.Struct, frozen=True, array_like=True):
    """An except clause, and the lines of the body that it guards."""

    body_start: int
    body_end: int
    start: int
    end: int
    """Of the clause's head and the statements that decide what it does; at most 6 lines."""
    function: int
    catches: tuple[str, ...]
    does: str
    """A word of `record.Handler.does`."""
    lines: tuple[Line, ...] = ()
    """Those of `start` to `end`, for quotes."""


class CallFacts(msgspec.Struct, frozen=True, array_like=True):
    """Calls of one name."""

    name: str
    lines: tuple[int, ...]
    receivers: tuple[str, ...]
    """What stands before the dot, for each line: `self.communicator`; empty: nothing."""


class Expectation(msgspec.Struct, frozen=True, array_like=True):
    """A test's statement that it expects an error."""

    type: str
    pattern: str
    """The text looked for; empty: any."""
    is_regex: bool
    function: int
    line: int


class PropagationFacts(msgspec.Struct, frozen=True, array_like=True):
    """A `?` of Rust, and what it stands behind."""

    line: int
    function: int
    expression: str
    error: str
    """The error type of what it is applied to, where it can be told: `std::io::Error`; else empty."""


class FileFacts(msgspec.Struct, frozen=True, array_like=True):
    """Everything found in one file."""

    path: str
    """Within the source, with `/`."""
    language: Language
    digest: str
    """Of its bytes."""
    num_lines: int
    is_test: bool = False
    problem: str | None = None
    """Why it could not be parsed, or could in part only, and where."""
    functions: tuple[FunctionFacts, ...] = ()
    classes: tuple[ClassFacts, ...] = ()
    raises: tuple[RaiseFacts, ...] = ()
    handlers: tuple[HandlerFacts, ...] = ()
    calls: tuple[CallFacts, ...] = ()
    expectations: tuple[Expectation, ...] = ()
    propagations: tuple[PropagationFacts, ...] = ()
    imports: tuple[tuple[str, str], ...] = ()
    """Local name and what it stands for: `np` → `numpy`, `Store` → `windtunnel.catalog.store.Store`."""
