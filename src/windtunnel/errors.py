"""Every exception of windtunnel: a code, the facts as fields, what happened with its values, and the way out.

A failure of a request is a value before it is an exception: it is written into the journal as `(code, facts)` and
made again from them by `from_facts`, so what a report says is what the moment of failure knew.

Docs are generated from this module (`docs/reference/errors.md`); a class without a docstring or a way out fails a test.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, fields
from typing import Any, ClassVar

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INVALID = 3
EXIT_SIGINT = 130
EXIT_SIGTERM = 143


@dataclass(eq=False)
class WindtunnelError(Exception):
    """The root of the tree."""

    code: ClassVar[str] = ""
    family: ClassVar[str] = ""
    exit_code: ClassVar[int] = EXIT_FAILED
    happened: ClassVar[str] = ""
    """What happened, as a template over the fields."""
    way_out: ClassVar[str] = ""
    """What to do, as a template over the fields."""

    def __post_init__(self) -> None:
        super().__init__(self.message)

    @property
    def facts(self) -> dict[str, Any]:
        """The fields by name, as they go into a journal; absent ones are left out."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}

    @property
    def message(self) -> str:
        """What happened, with its values: one line, whatever a server put into them."""
        return " ".join(self.happened.format(**self._values()).split())

    @property
    def advice(self) -> str:
        """The way out, with its values."""
        return self.way_out.format(**self._values())

    def _values(self) -> dict[str, Any]:
        return {f.name: "?" if (value := getattr(self, f.name)) is None else value for f in fields(self)}

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return (from_facts, (self.code, self.facts))


# --- configuration ----------------------------------------------------------------------------------------------


@dataclass(eq=False)
class ConfigurationError(WindtunnelError):
    """A flag, file or combination makes no sense. It is found before any request is sent."""

    code: ClassVar[str] = "WT-CONFIG"
    family: ClassVar[str] = "configuration"
    exit_code: ClassVar[int] = EXIT_USAGE
    happened: ClassVar[str] = "{where}: {problem}"
    way_out: ClassVar[str] = "{remedy}"

    where: str
    """The flag, file or line that is wrong."""
    problem: str
    remedy: str


@dataclass(eq=False)
class UnknownFlag(WindtunnelError):
    """A flag is neither vLLM's nor windtunnel's."""

    code: ClassVar[str] = "WT-CONFIG-UNKNOWN-FLAG"
    family: ClassVar[str] = "configuration"
    exit_code: ClassVar[int] = EXIT_USAGE
    happened: ClassVar[str] = "unknown flag {flag}{suggestion}"
    way_out: ClassVar[str] = "`windtunnel {command} --help` lists all flags."

    flag: str
    command: str
    suggestion: str = ""


@dataclass(eq=False)
class NotYet(WindtunnelError):
    """A flag of vLLM's is known, but what it asks for is not built yet. Nothing was sent."""

    code: ClassVar[str] = "WT-CONFIG-NOT-YET"
    family: ClassVar[str] = "configuration"
    exit_code: ClassVar[int] = EXIT_USAGE
    happened: ClassVar[str] = "{what}: not yet"
    way_out: ClassVar[str] = "Nothing was sent. {instead}"

    what: str
    instead: str = "Leave it out, or use vLLM's own client for this run."


@dataclass(eq=False)
class DatasetError(WindtunnelError):
    """A dataset's file holds something that can't be used as a request. Names the line."""

    code: ClassVar[str] = "WT-CONFIG-DATASET"
    family: ClassVar[str] = "configuration"
    exit_code: ClassVar[int] = EXIT_USAGE
    happened: ClassVar[str] = "{path}{at}: {problem}"
    way_out: ClassVar[str] = "{remedy}"

    path: str
    problem: str
    remedy: str
    line: int | None = None

    def _values(self) -> dict[str, Any]:
        return super()._values() | {"at": "" if self.line is None else f", line {self.line}"}


@dataclass(eq=False)
class MissingExtra(WindtunnelError):
    """A feature needs a library that the base installation doesn't bring."""

    code: ClassVar[str] = "WT-CONFIG-EXTRA"
    family: ClassVar[str] = "configuration"
    exit_code: ClassVar[int] = EXIT_USAGE
    happened: ClassVar[str] = "{feature} needs the package {package}, which is not installed"
    way_out: ClassVar[str] = "pip install 'windtunnel[{extra}]'"

    feature: str
    package: str
    extra: str


# --- endpoint not ready -----------------------------------------------------------------------------------------


@dataclass(eq=False)
class EndpointNotReady(WindtunnelError):
    """The target did not answer as it should within the time allowed. Says for how long, and the last reason."""

    code: ClassVar[str] = "WT-NOT-READY"
    family: ClassVar[str] = "endpoint not ready"
    happened: ClassVar[str] = "{url} was not ready after {waited_s:.1f} s: {reason}"
    way_out: ClassVar[str] = (
        "Is the server up, and the address right? A server that is still loading its model needs a longer "
        "--ready-check-timeout-sec."
    )

    url: str
    waited_s: float
    reason: str


# --- http -------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class RequestFailure(WindtunnelError):
    """How a request can fail. `state` is the word for it in tables and result files."""

    family: ClassVar[str] = "http"
    state: ClassVar[str] = ""


@dataclass(eq=False)
class ConnectFailed(RequestFailure):
    """No connection to the server: refused, reset, unreachable, not found by DNS, or TLS did not agree."""

    code: ClassVar[str] = "WT-HTTP-CONNECT"
    state: ClassVar[str] = "connect"
    happened: ClassVar[str] = "no connection to {target} ({phase}): {reason}"
    way_out: ClassVar[str] = (
        "refused: is the server up on this address? dns: check the host's name. tls: --insecure skips the check of "
        "a self-signed certificate. reset: the server, or a proxy before it, drops connections under load."
    )

    target: str
    phase: str
    """`dns`, `refused`, `reset`, `unreachable`, `tls` or `proxy`."""
    reason: str


@dataclass(eq=False)
class HttpStatus(RequestFailure):
    """The server answered with a status other than 200. Keeps the body's first KB and Retry-After."""

    code: ClassVar[str] = "WT-HTTP-STATUS"
    state: ClassVar[str] = "http_status"
    happened: ClassVar[str] = "HTTP {status} {reason}: {body}"
    way_out: ClassVar[str] = (
        "4xx: the request is not what the server takes (model name, endpoint, key, context length): its body says "
        "which. 429 and 503: the server sheds load; lower --max-concurrency or --request-rate, or add --retries. "
        "Other 5xx: see the server's log."
    )

    status: int
    reason: str
    body: str
    retry_after_s: float | None = None


@dataclass(eq=False)
class TimedOut(RequestFailure):
    """Nothing came in the time allowed for a phase: connect, first_token, stall or total."""

    code: ClassVar[str] = "WT-HTTP-TIMEOUT"
    state: ClassVar[str] = "timeout"
    happened: ClassVar[str] = "{phase} timeout: {waited_s:.3g} s without {missing}, after {tokens} tokens"
    way_out: ClassVar[str] = (
        "If the server may be this slow, raise {flag}. Otherwise it hangs: see its log, and whether it answers others."
    )

    phase: str
    waited_s: float
    missing: str
    tokens: int
    flag: str


@dataclass(eq=False)
class Disconnected(RequestFailure):
    """The connection broke while an answer was due: before its first byte, or with an error in mid-stream."""

    code: ClassVar[str] = "WT-HTTP-DISCONNECT"
    state: ClassVar[str] = "disconnect"
    happened: ClassVar[str] = "the connection broke {where}: {reason}"
    way_out: ClassVar[str] = (
        "The server, or a proxy between, closed it: look for restarts, crashes and idle timeouts there."
    )

    where: str
    """`before the first byte`, or `after N tokens`."""
    reason: str


@dataclass(eq=False)
class Truncated(RequestFailure):
    """The stream ended without a finish reason: what came is a part of the answer, though the end looked clean."""

    code: ClassVar[str] = "WT-HTTP-TRUNCATED"
    state: ClassVar[str] = "truncated"
    happened: ClassVar[str] = "the stream ended without a finish reason after {tokens} tokens ({end})"
    way_out: ClassVar[str] = (
        "A server or proxy that dies or times out in mid-answer does this. Other clients count it as success."
    )

    tokens: int
    end: str
    """How the bytes ended: `[DONE]`, `end of message`, or `connection closed`."""


@dataclass(eq=False)
class Cancelled(RequestFailure):
    """We stopped the request ourselves: the run was interrupted."""

    code: ClassVar[str] = "WT-HTTP-CANCELLED"
    state: ClassVar[str] = "cancelled"
    happened: ClassVar[str] = "cancelled by {why} after {tokens} tokens"
    way_out: ClassVar[str] = "Let the run end by itself to have this request's figures."

    why: str
    tokens: int


@dataclass(eq=False)
class RedirectRefused(RequestFailure):
    """The server redirects in a way that can't be followed: too often, or to something that is no http address."""

    code: ClassVar[str] = "WT-HTTP-REDIRECT"
    state: ClassVar[str] = "http_status"
    happened: ClassVar[str] = "HTTP {status} to {location!r}: {problem}"
    way_out: ClassVar[str] = "Give the final address as --base-url."

    status: int
    location: str
    problem: str


# --- malformed response -----------------------------------------------------------------------------------------


@dataclass(eq=False)
class MalformedResponse(RequestFailure):
    """HTTP, SSE, JSON or schema of an answer is broken. Says what, where, and the bytes around it."""

    code: ClassVar[str] = "WT-MALFORMED"
    family: ClassVar[str] = "malformed response"
    state: ClassVar[str] = "malformed"
    happened: ClassVar[str] = "malformed {layer} at byte {offset} of the {part}: {problem}; near {excerpt}"
    way_out: ClassVar[str] = (
        "Is --endpoint the right one for this --backend? If so, the server or a proxy between sends what OpenAI's API "
        "does not."
    )

    layer: str
    """`http`, `sse`, `json` or `schema`."""
    part: str
    """`response`, or `event N`."""
    offset: int
    problem: str
    excerpt: str


# --- backend ----------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class BackendError(RequestFailure):
    """The server answered 200 and then said in the answer itself that it failed."""

    code: ClassVar[str] = "WT-BACKEND"
    family: ClassVar[str] = "backend"
    state: ClassVar[str] = "in_band_error"
    happened: ClassVar[str] = "the server reported after {tokens} tokens: {error}"
    way_out: ClassVar[str] = "The words are the server's: its log has the rest."

    error: str
    tokens: int


# --- tokenizer --------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class TokenizerError(WindtunnelError):
    """The tokenizer can't be loaded or used."""

    code: ClassVar[str] = "WT-TOKENIZER"
    family: ClassVar[str] = "tokenizer"
    exit_code: ClassVar[int] = EXIT_USAGE
    happened: ClassVar[str] = "tokenizer {tokenizer}: {problem}"
    way_out: ClassVar[str] = "{remedy}"

    tokenizer: str
    problem: str
    remedy: str


@dataclass(eq=False)
class TokenCountMismatch(WindtunnelError):
    """The server counts a prompt's tokens otherwise than the tokenizer that made it."""

    code: ClassVar[str] = "WT-TOKENIZER-MISMATCH"
    family: ClassVar[str] = "tokenizer"
    happened: ClassVar[str] = (
        "the server counts other lengths than {tokenizer} for {mismatched} of {checked} prompts: "
        "{expected} were asked, the server counts {counted}"
    )
    way_out: ClassVar[str] = "Give the server's tokenizer with --tokenizer, or send token ids with --prompt-token-ids."

    tokenizer: str
    checked: int
    mismatched: int
    expected: int
    counted: int


@dataclass(eq=False)
class TokenizeUnavailable(WindtunnelError):
    """The server has no usable /tokenize or /detokenize: any 4xx, since a gateway may say 400 for 404."""

    code: ClassVar[str] = "WT-TOKENIZE-UNAVAILABLE"
    family: ClassVar[str] = "tokenize unavailable"
    exit_code: ClassVar[int] = EXIT_USAGE
    happened: ClassVar[str] = "{url} is not available: {reason}"
    way_out: ClassVar[str] = (
        "Prompt lengths are not verified against the server; the usage that it reports is compared after the run."
    )

    url: str
    reason: str


# --- io ---------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class FileError(WindtunnelError):
    """A result, journal or dataset can't be read or written: what, where, why, and where the data is safe."""

    code: ClassVar[str] = "WT-IO"
    family: ClassVar[str] = "io"
    happened: ClassVar[str] = "can't {operation} {path}: {reason}"
    way_out: ClassVar[str] = "{remedy}"

    operation: str
    path: str
    reason: str
    remedy: str


@dataclass(eq=False)
class RunNotFound(WindtunnelError):
    """No run of that name is in the runs folder."""

    code: ClassVar[str] = "WT-IO-NO-RUN"
    family: ClassVar[str] = "io"
    exit_code: ClassVar[int] = EXIT_USAGE
    happened: ClassVar[str] = "no run {run} in {folder}{suggestion}"
    way_out: ClassVar[str] = "`windtunnel runs list` shows what is there."

    run: str
    folder: str
    suggestion: str = ""


@dataclass(eq=False)
class JournalError(WindtunnelError):
    """A journal can't be understood: not ours, newer than we are, or without a header."""

    code: ClassVar[str] = "WT-IO-JOURNAL"
    family: ClassVar[str] = "io"
    happened: ClassVar[str] = "{path}, line {line}: {problem}"
    way_out: ClassVar[str] = "{remedy}"

    path: str
    line: int
    problem: str
    remedy: str


# --- our own processes ------------------------------------------------------------------------------------------


@dataclass(eq=False)
class WorkerLost(WindtunnelError):
    """A worker process of the load generator ended before its work was done."""

    code: ClassVar[str] = "WT-WORKER-LOST"
    family: ClassVar[str] = "io"
    happened: ClassVar[str] = "load worker {worker} ended early ({how}); {lost} of its requests have no result"
    way_out: ClassVar[str] = (
        "What finished is in the journal: {journal}. Out of memory? Fewer --workers, or a lower --max-concurrency."
    )

    worker: int
    how: str
    lost: int
    journal: str


@dataclass(eq=False)
class TargetLost(WindtunnelError):
    """The embedded target did not start, or ended."""

    code: ClassVar[str] = "WT-TARGET-LOST"
    family: ClassVar[str] = "endpoint not ready"
    happened: ClassVar[str] = "the embedded target {what}: {reason}"
    way_out: ClassVar[str] = (
        "Its own words stand above. `windtunnel bench serve --help` shows how --embedded is written."
    )

    what: str
    reason: str


@dataclass(eq=False)
class UnsupportedPlatform(WindtunnelError):
    """windtunnel's load generator needs Linux (epoll, kernel receive stamps)."""

    code: ClassVar[str] = "WT-PLATFORM"
    family: ClassVar[str] = "configuration"
    exit_code: ClassVar[int] = EXIT_USAGE
    happened: ClassVar[str] = "windtunnel runs on Linux; this is {platform}"
    way_out: ClassVar[str] = "Run it in a Linux machine or container near the server."

    platform: str


def classes() -> list[type[WindtunnelError]]:
    """Every class that has a code, in the order of this file."""

    def below(cls: type[WindtunnelError]) -> list[type[WindtunnelError]]:
        return [c for sub in cls.__subclasses__() for c in (sub, *below(sub))]

    found = [c for c in below(WindtunnelError) if c.code]
    return sorted(found, key=lambda c: list(globals()).index(c.__name__) if c.__name__ in globals() else 10**6)


def from_facts(code: str, facts: dict[str, Any]) -> WindtunnelError:
    """The error that was written as `(code, facts)`; facts of a newer version that we don't know are left out."""
    by_code = {c.code: c for c in classes()}
    cls = by_code[code]
    known = {f.name for f in dataclasses.fields(cls)}
    return cls(**{name: value for name, value in facts.items() if name in known})
