"""What is kept of one request: instants, counts, how it ended. One record is one line of a run's journal.

Instants are CLOCK_MONOTONIC nanoseconds (the journal's header pairs that clock with CLOCK_REALTIME). What is absent is
None, never 0. A record holds what was observed; what it is worth (`ok`, `short`, …) is decided by `ending`, from the
record alone, so that a run that is recovered from its journal is judged like one that was not interrupted.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from windtunnel import errors

TokenSource = Literal["usage", "counted", "tokenizer", "chunks"]
"""Where a number of output tokens comes from: the server's usage; the chunks' own token ids or log probabilities; our
tokenizer over the text; the bare number of chunks that carried something."""


class Fault(Struct, frozen=True):
    """An error of `windtunnel.errors` as a value."""

    code: str
    facts: dict[str, Any]

    @classmethod
    def of(cls, error: errors.WindtunnelError) -> Fault:
        """The error's value."""
        return cls(error.code, error.facts)

    @property
    def error(self) -> errors.WindtunnelError:
        """The value's error."""
        return errors.from_facts(self.code, self.facts)


class Record(Struct, kw_only=True, omit_defaults=True):
    """One request of a run."""

    index: int
    """Its place in the run's order, from 0."""
    request_id: str
    """As it was sent in x-request-id."""
    worker: int = 0
    model: str | None = None
    """The model it was sent to, where requests of one run differ in it (LoRA)."""

    # when
    scheduled_ns: int
    """When it was due. In a closed loop, which has no schedule: the run's start."""
    ready_ns: int | None = None
    """When the load's rules let it go: it was due, and a slot under --max-concurrency was free. None in the opening
    burst of a closed loop, which is sent as fast as it can be."""
    sent_ns: int | None = None
    """When its first attempt began: before connecting, where a new connection was needed. None: it never was sent."""
    connected_ns: int | None = None
    """When the last attempt's new connection stood (TLS included). None: a connection was reused, or never stood."""
    first_byte_ns: int | None = None
    """When the answer's first byte came."""
    first_token_ns: int | None = None
    """When the first token of any kind came, reasoning included."""
    first_output_ns: int | None = None
    """When the first token came that is no reasoning."""
    last_token_ns: int | None = None
    """When the last chunk that carries tokens came."""
    done_ns: int | None = None
    """When it was over: the answer complete, or the failure noticed."""
    gaps_ns: list[int] = []
    """From each chunk that carries tokens to the next; one less than such chunks."""
    chunk_tokens: list[int] | None = None
    """Tokens in each such chunk, where the server tells; None where it doesn't, or where each has one."""

    # what
    prompt_tokens_asked: int
    prompt_tokens: int | None = None
    """By the server's usage."""
    output_tokens_asked: int | None = None
    output_tokens: int | None = None
    """None: the server did not count them; a report then does."""
    output_tokens_from: TokenSource | None = None
    """Who counted: `usage`, `counted` (by chunks' token ids or log probabilities), `tokenizer` or `chunks`."""
    reasoning_chunks: int = 0
    finish_reason: str | None = None
    text: str = ""
    """What the answer says: reasoning, then output."""

    # how
    streamed: bool = True
    """Asked for as a stream."""
    attempts: int = 1
    retry_wait_ns: int = 0
    """Time spent waiting between attempts."""
    reconnects: int = 0
    """How often a kept connection turned out to be closed, so that the request went out on a new one."""
    redirects: int = 0
    """How often it was sent on to another address."""
    reads: int = 0
    """Reads from the socket that brought bytes of the answer's body."""
    read_lag_ns: int = 0
    """The longest time from the kernel's stamp of a read to our own: how late the client was to look."""
    stamped_by: Literal["kernel", "client"] = "client"
    keep_alives: int = 0
    """Comments in the stream."""
    warnings: list[Fault] = []
    num_warnings: int = 0
    """How many there were; the first few are kept."""
    failure: Fault | None = None
    transcript: str | None = None
    """The last bytes of the answer, where it did not end well."""


COMPLETED_ENDINGS = ("ok", "short", "zero_tokens", "not_streamed")
FAILED_ENDINGS = (
    "truncated",
    "in_band_error",
    "http_status",
    "connect",
    "disconnect",
    "timeout",
    "malformed",
    "cancelled",
)


_STATES = {cls.code: cls.state for cls in errors.classes() if issubclass(cls, errors.RequestFailure)}


def ending(record: Record, *, ignore_eos: bool) -> str:
    """The word for how a request ended, of `COMPLETED_ENDINGS` or `FAILED_ENDINGS`.

    Completed requests are told apart by what they lack: `zero_tokens`; `short`, fewer tokens than were asked for
    though the end-of-sequence token was to be ignored; `not_streamed`, several tokens that all came in one piece.
    """
    if record.failure is not None:
        return _STATES.get(record.failure.code, "malformed")
    if not record.output_tokens:
        return "zero_tokens"
    if ignore_eos and record.output_tokens_asked is not None and record.output_tokens < record.output_tokens_asked:
        return "short"
    if record.streamed and record.output_tokens > 1 and not any(record.gaps_ns):
        return "not_streamed"
    return "ok"
