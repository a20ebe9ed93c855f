"""The record: everything that the catalog says about one error, as it is stored, shown and published in JSON.

Its JSON Schema is docs/reference/error-record.schema.json, made from these types.

One record stands for (project, language, type, message template), however many places raise it. Lines count from 1;
ranges name their first and last line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Literal

import msgspec

from windtunnel.catalog.template import Part, identity_of, text_of

SCHEMA = "error-record/1"

NotAnalysed = Literal["not analysed"]
NOT_ANALYSED: NotAnalysed = "not analysed"
"""Stands where a fact is not looked for in a language: never an empty list, which would say that there is none."""

Language = Literal["python", "rust", "cpp", "go", "typescript", "javascript", "java"]
Kind = Literal[
    "raise", "assert", "exit", "usage", "log", "fatal log",  # Python; log, panic, exit also elsewhere
    "variant", "construct", "bail", "panic", "throw", "check", "error value", "reject",
]  # fmt: skip
"""`usage`: parser.error. `variant`: of a thiserror enum. `construct`: Err(Type::Variant(…)); in Python an error that is
made and handed on. `bail`: bail!, ensure!, anyhow!. `check`: a check macro of C++. `error value`: errors.New,
fmt.Errorf. `reject`: Promise.reject."""
MessageSource = Literal["message", "condition", "statement"]
Handled = Literal["all", "some", "none", "unknown"]
Severity = Literal["none", "warning", "error", "fatal"]
"""Expected impact, as OpenTelemetry has it: none never reaches a user; warning is told and gone on from; error ends
what was asked for; fatal ends the process."""
Origin = Literal["code", "doc comment", "test", "model", "person"]


class Citation(msgspec.Struct, frozen=True):
    """Lines that bear a claim out. Their text stands in the record (`Record.quoted`)."""

    path: str
    start: int
    end: int


class Claim(msgspec.Struct, frozen=True, omit_defaults=True):
    """One sentence about an error, with the lines that bear it out."""

    text: str
    citations: tuple[Citation, ...]
    origin: Origin
    code: str | None = None
    """A sample that goes with it, in a solution."""
    stale: bool = False
    """A cited line is no longer what it was when the claim was made."""


class Prose(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is said in words. Solutions are ordered: the first one is the first to try."""

    meaning: tuple[Claim, ...] = ()
    trigger: tuple[Claim, ...] = ()
    situations: tuple[Claim, ...] = ()
    solutions: tuple[Claim, ...] = ()

    def claims(self) -> Iterator[tuple[str, Claim]]:
        """Every claim with the name of its field."""
        for field in self.__struct_fields__:
            for claim in getattr(self, field):
                yield field, claim


class Line(msgspec.Struct, frozen=True):
    """A line of source."""

    number: int
    text: str


class Quote(msgspec.Struct, frozen=True):
    """Lines of a file that claims cite, beyond what the sites' excerpts show."""

    path: str
    lines: tuple[Line, ...]


class Guard(msgspec.Struct, frozen=True):
    """A condition on the way to the raising statement, outermost first."""

    condition: str
    """As the code writes it, on one line. Of a loop: its head; of an except clause: its types."""
    holds: bool
    """False: it must not hold: an else branch, or an early exit that was not taken."""
    kind: str
    """`if`, `while`, `for`, `except`, `case`, `early exit`, `assert`, `try else`, `cfg`; of Rust `failed` and `none`:
    an operation that gave an error, or None."""
    start: int
    end: int
    """Lines of the condition, without its body."""


class Cause(msgspec.Struct, frozen=True, omit_defaults=True):
    """The error that this one is made from."""

    types: tuple[str, ...]
    """What it can be: the except clause's types, or `#[from]`'s."""
    how: str
    """`from e`, `during handling`, `#[from]`, `#[source]`, `%w`, `cause`."""
    line: int
    expression: str = ""


class Caller(msgspec.Struct, frozen=True):
    """A call that may lead to the site: found by its name and what is known of its receiver."""

    path: str
    line: int
    function: str
    via: tuple[str, ...] = ()
    """The functions between it and the site, outermost first; empty: it calls the raising function itself."""


class Handler(msgspec.Struct, frozen=True):
    """An except clause, or what is like one, around the site or around a possible caller."""

    path: str
    start: int
    end: int
    """Lines of the clause's head and of what it does with the error."""
    function: str
    catches: tuple[str, ...]
    does: str
    """`logs`, `re-raises`, `wraps`, `returns`, `ignores`, `ends the process`, `warns`, `answers` with an error."""
    via: tuple[str, ...] = ()
    """The functions between it and the site, outermost first; empty: it stands around the site itself."""


class ProvokingTest(msgspec.Struct, frozen=True):
    """A test that provokes the error, and checks that it does."""

    path: str
    line: int
    function: str


class Doc(msgspec.Struct, frozen=True):
    """A doc comment or docstring: its text and where it stands."""

    path: str
    start: int
    end: int
    text: str
    of: str
    """`type`, `variant`, `function`, `class`, `comment`: a comment right above the statement."""


class Propagation(msgspec.Struct, frozen=True):
    """A `?` that makes this error from the one that it wraps."""

    path: str
    line: int
    function: str
    expression: str


class Site(msgspec.Struct, frozen=True):
    """A place that raises the error."""

    path: str
    start: int
    end: int
    function: str
    """Qualified within its file; empty at a module's top."""
    excerpt: tuple[Line, ...]
    """The raising statement and its guards; no text of neighbours."""
    permalink: str | None = None
    """Pinned to a commit or version; None where the source has no address."""
    guards: tuple[Guard, ...] = ()
    cause: Cause | None = None
    docs: tuple[Doc, ...] = ()
    callers: tuple[Caller, ...] | NotAnalysed = NOT_ANALYSED
    handlers: tuple[Handler, ...] | NotAnalysed = NOT_ANALYSED
    tests: tuple[ProvokingTest, ...] | NotAnalysed = NOT_ANALYSED
    propagations: tuple[Propagation, ...] = ()
    """Of a variant with `#[from]`."""
    since: str | None = None
    """The first tag that has it; without a tag the commit and its day. Found on demand."""


class Link(msgspec.Struct, frozen=True, omit_defaults=True):
    """Another error: a record (`id`), or a type outside of the catalog."""

    type: str
    text: str = ""
    id: str | None = None
    reason: str = ""
    """`same enum`, `same function`, `same guard`, `wraps`, `wrapped by`."""


class Provenance(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the record's facts and words come from."""

    tool: str
    """windtunnel's version."""
    version: str
    """Of the project: a package's version, a tag, or `working tree`."""
    commit: str | None = None
    indexed_at: str = ""
    """UTC, ISO 8601."""
    model: str | None = None
    explained_at: str | None = None
    checked: dict[str, int] = {}
    """Claims that the gate kept (`kept`), and that each of its rules dropped."""
    slice_ratio: float | None = None
    """Share of the explanation's symbols that lie in this error's slice of the code."""
    stale: bool = False


class Record(msgspec.Struct, frozen=True):
    """An error of a project."""

    schema: Literal["error-record/1"]
    id: str
    """16 hexadecimal digits of `record_id`."""
    project: str
    language: Language
    kind: Kind
    type: str
    """The exception's class, `Enum::Variant`, the macro, or the logging function; qualified as the code writes it."""
    template: tuple[Part, ...]
    message_source: MessageSource
    """What the template is: a message, or, where there is none, the condition or the statement, on one line."""
    sites: tuple[Site, ...]
    provenance: Provenance
    aliases: tuple[str, ...] = ()
    """Earlier ids; they redirect here."""
    handled: Handled | NotAnalysed = NOT_ANALYSED
    severity: Severity | NotAnalysed = NOT_ANALYSED
    severity_evidence: tuple[Claim, ...] = ()
    renders: tuple[Part, ...] | None = None
    """How its class shows the message, where that is more than the message; the hole `message` is the template."""
    wraps: tuple[Link, ...] = ()
    wrapped_by: tuple[Link, ...] = ()
    related: tuple[Link, ...] = ()
    prose: Prose = Prose()
    quotes: tuple[Quote, ...] = ()

    @property
    def text(self) -> str:
        """The template for people, with `{expression}` for holes."""
        return text_of(self.template)

    def quoted(self, citation: Citation) -> tuple[Line, ...]:
        """The lines that are cited, as far as the record has them."""
        known = {line.number: line for quote in self.quotes if quote.path == citation.path for line in quote.lines}
        known |= {line.number: line for site in self.sites if site.path == citation.path for line in site.excerpt}
        return tuple(known[number] for number in range(citation.start, citation.end + 1) if number in known)


def record_id(project: str, language: str, type_: str, template: tuple[Part, ...]) -> str:
    """The id of a record: a hash of who it is; never of a path or line."""
    identity = "\0".join((project, language, type_, identity_of(template)))
    return hashlib.blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
