"""One request from its first attempt to its record: bytes and instants in, a `Record` out. No I/O.

Theory of operation. While an answer streams in, `receive` only keeps the bytes with their stamp and looks whether they
may be the end of the HTTP message. HTTP, events and JSON are read by `decode`: when the answer is over, when much has
piled up, or when a time-out has to know whether tokens came. So the hot path costs microseconds, and a stamp is never
late because a neighbour was being parsed.
"""

from __future__ import annotations

from windtunnel import errors
from windtunnel.measure.record import Fault, Record
from windtunnel.units import NS_PER_S
from windtunnel.wire.answer import AnswerReader
from windtunnel.wire.control import Timeouts, Work
from windtunnel.wire.http1 import ProtocolError, Response
from windtunnel.wire.openai import Dialect

END_GRACE_NS = NS_PER_S
"""How long the end of the HTTP message may follow the end of the answer."""
USAGE_GRACE_NS = 5 * NS_PER_S
"""How long the usage, which every stream is asked for, may follow the finish reason."""
_BODY_EXCERPT_BYTES = 1024
_MESSAGE_END = b"\r\n\r\n"
"""How every chunked message ends, with or without trailers."""
RETRIED_STATUSES = frozenset((408, 429, 500, 502, 503, 504))


class Exchange:
    """What is going on for one request."""

    __slots__ = (
        "_bodies",
        "_decoded",
        "_kernel",
        "_next_check_ns",
        "_raw",
        "_read_lag_ns",
        "_reader",
        "_waits_for_end",
        "attempt_ns",
        "attempts",
        "connected_ns",
        "dialect",
        "done_ns",
        "due_ns",
        "failure",
        "first_byte_ns",
        "last_read_ns",
        "num_reads",
        "ready_ns",
        "reconnects",
        "redirects",
        "response",
        "retry_wait_ns",
        "sent_ns",
        "streamed",
        "work",
    )

    def __init__(self, work: Work, dialect: Dialect, streamed: bool, due_ns: int, ready_ns: int | None) -> None:
        self.work = work
        self.dialect = dialect
        self.streamed = streamed
        self.due_ns = due_ns
        self.ready_ns = ready_ns
        self.sent_ns: int | None = None
        self.attempt_ns = 0
        self.attempts = 0
        self.retry_wait_ns = 0
        self.redirects = 0
        self.reconnects = 0
        self.failure: errors.RequestFailure | None = None
        self._reset()

    def _reset(self) -> None:
        """Forget the attempt before."""
        self.response = Response()
        self.connected_ns: int | None = None
        self.first_byte_ns: int | None = None
        self.last_read_ns: int | None = None
        self.done_ns: int | None = None
        self.num_reads = 0
        self._raw: list[tuple[int, int | None, bytes]] = []
        self._waits_for_end = False
        self._bodies: list[tuple[int, bytes]] = []
        self._decoded = 0
        self._read_lag_ns = 0
        self._kernel = True
        self._next_check_ns = 0
        self._reader: AnswerReader | None = None

    # --- what happens to it -----------------------------------------------------------------------------------

    def begin_attempt(self, now_ns: int) -> None:
        """An attempt begins, the first or another."""
        if self.attempts:
            self._reset()
        self.failure = None
        self.attempts += 1
        self.attempt_ns = now_ns
        if self.sent_ns is None:
            self.sent_ns = now_ns

    def begin_again(self) -> None:
        """The same attempt goes out once more: a kept connection turned out closed, or the server redirects."""
        self._reset()

    def receive(self, data: bytes, stamp_ns: int, lag_ns: int | None) -> bool:
        """Take bytes that arrived at `stamp_ns`; True when the answer's HTTP message is complete, or no HTTP.

        `lag_ns` is how much later the client looked, None where the stamp is the client's own.
        """
        self._raw.append((stamp_ns, lag_ns, data))
        self.last_read_ns = stamp_ns
        # the last piece of a message holds its end whole, or is shorter than it
        if self._waits_for_end and not data.endswith(_MESSAGE_END) and len(data) >= len(_MESSAGE_END):
            return False
        return self._parse()

    def _parse(self) -> bool:
        """Read HTTP as far as bytes have come; True when the message is complete, or no HTTP."""
        response = self.response
        parts = response.parts
        for stamp_ns, lag_ns, data in self._raw:
            if self.first_byte_ns is None:
                self.first_byte_ns = stamp_ns
            if lag_ns is None:
                self._kernel = False
            elif lag_ns > self._read_lag_ns:
                self._read_lag_ns = lag_ns
            try:
                response.feed(data)
            except ProtocolError as error:
                self._raw.clear()
                excerpt = repr(data[:120].decode("utf-8", "backslashreplace"))
                self.fail(errors.MalformedResponse("http", "response", error.offset, error.problem, excerpt), stamp_ns)
                return True
            if parts:
                self._bodies.append((stamp_ns, parts[0] if len(parts) == 1 else b"".join(parts)))
                self.num_reads += 1
                parts.clear()
            if response.complete and self.done_ns is None:
                self.done_ns = stamp_ns
        self._raw.clear()
        self._waits_for_end = response.head_complete and response.is_chunked
        return response.complete

    def fail(self, failure: errors.RequestFailure, now_ns: int) -> None:
        """It is over, and not well."""
        self.failure = failure
        self.done_ns = now_ns

    def connection_ended(self, reason: str | None, now_ns: int) -> None:
        """The connection is gone: closed by the server (reason None) or broken."""
        if self._parse():
            return
        if reason is None and self.response.finish():
            self.done_ns = now_ns
        elif self.response.status not in (0, 200) and self.response.head_complete:
            self.done_ns = now_ns  # the status says more than that its body is cut off
        elif self.first_byte_ns is None:
            self.fail(errors.Disconnected("before the first byte", reason or "closed by the server"), now_ns)
        else:
            self.decode()
            if self.reader.whole:
                self.done_ns = self.last_read_ns
            else:
                where = f"after {self.reader.tokens} tokens" if self.response.head_complete else "in the answer's head"
                self.fail(errors.Disconnected(where, reason or "closed by the server"), now_ns)

    # --- time-outs --------------------------------------------------------------------------------------------

    def expire(self, now_ns: int, timeouts: Timeouts, connecting: bool) -> bool:
        """Judge the time-outs at `now_ns`; True when the request is over by one of them, or by the end's grace."""
        if self.sent_ns is not None and now_ns - self.sent_ns > timeouts.request_ns:
            self._time_out("total", now_ns - self.sent_ns, "the answer's end", "--request-timeout-s", now_ns)
            return True
        if connecting:
            if now_ns - self.attempt_ns > timeouts.connect_ns:
                waited = now_ns - self.attempt_ns
                self._time_out("connect", waited, "a connection", "--connect-timeout-s", now_ns)
                return True
            return False
        quiet_since_ns = self.last_read_ns or self.attempt_ns
        if self.last_read_ns is not None and now_ns - quiet_since_ns > END_GRACE_NS:
            self.decode()
            if self.done_ns is None and self._is_over(now_ns - quiet_since_ns):
                self.done_ns = self.last_read_ns
            if self.done_ns is not None:
                return True
        if now_ns <= (self._next_check_ns or self.attempt_ns + min(timeouts.first_token_ns, timeouts.stall_ns)):
            return False
        self.decode()
        last_token_ns = self.reader.last_token_ns
        if last_token_ns is None:
            self._next_check_ns = self.attempt_ns + timeouts.first_token_ns
            if now_ns > self._next_check_ns:
                waited = now_ns - self.attempt_ns
                self._time_out("first_token", waited, "a first token", "--first-token-timeout-s", now_ns)
                return True
        else:
            self._next_check_ns = last_token_ns + timeouts.stall_ns
            if now_ns > self._next_check_ns:
                self._time_out("stall", now_ns - last_token_ns, "another token", "--stall-timeout-s", now_ns)
                return True
        return False

    def _is_over(self, quiet_ns: int) -> bool:
        """All that matters has come, though the message's end has not."""
        if self.response.head_complete and self.response.status != 200:
            return True
        reader = self.reader
        if reader.saw_done or reader.error is not None:
            return True
        return reader.whole and (reader.usage is not None or quiet_ns > USAGE_GRACE_NS)

    def _time_out(self, phase: str, waited_ns: int, missing: str, flag: str, now_ns: int) -> None:
        self.decode()
        self.fail(errors.TimedOut(phase, waited_ns / NS_PER_S, missing, self.reader.tokens, flag), now_ns)

    # --- reading ----------------------------------------------------------------------------------------------

    @property
    def reader(self) -> AnswerReader:
        """What the answer's body says, as far as it is decoded."""
        if self._reader is None:
            self._reader = AnswerReader(self.dialect, self.response.header("content-type"), streamed=self.streamed)
        return self._reader

    @property
    def num_undecoded(self) -> int:
        """Reads that wait to be decoded."""
        return len(self._raw) + len(self._bodies) - self._decoded

    def decode(self, most_reads: int | None = None) -> bool:
        """Decode what has come, `most_reads` reads at most; True when nothing is left to decode."""
        if self._raw:
            self._parse()
        if self.response.status != 200:
            return True
        feed = self.reader.feed
        bodies = self._bodies
        end = len(bodies) if most_reads is None else min(len(bodies), self._decoded + most_reads)
        for stamp_ns, body in bodies[self._decoded : end]:
            feed(body, stamp_ns)
        if end == len(bodies):
            bodies.clear()
            self._decoded = 0
            return True
        self._decoded = end
        return False

    def settle(self) -> None:
        """Judge an answer that is over: decode the rest, and find the failure that it amounts to, if any."""
        if self.failure is not None or self.done_ns is None:
            self.decode()
            if self.reader.error is not None:  # what the server said of itself explains what came after it
                self.failure = errors.BackendError(self.reader.error, self.reader.tokens)
            return
        status = self.response.status
        if status != 200:
            words = self.body[:_BODY_EXCERPT_BYTES].decode("utf-8", "backslashreplace")
            self.failure = errors.HttpStatus(status, self.response.reason, words, self.retry_after_s())
            return
        encoding = self.response.header("content-encoding")
        if encoding not in (None, "", "identity"):
            problem = f"the answer is encoded ({encoding}), which was not asked for"
            self.failure = errors.MalformedResponse("http", "response", 0, problem, repr(self.body[:20]))
            return
        self.decode()
        reader = self.reader
        reader.finish(self.last_read_ns or self.done_ns)
        if reader.error is not None:
            self.failure = errors.BackendError(reader.error, reader.tokens)
        elif not reader.whole:
            self.failure = reader.problems[0] if reader.problems else errors.Truncated(reader.tokens, self._how_ended())

    def _how_ended(self) -> str:
        if self.reader.saw_done:
            return "[DONE]"
        return "end of message" if self.response.has_length else "connection closed"

    @property
    def body(self) -> bytes:
        """The answer's body, as far as it is not decoded."""
        return b"".join(body for _, body in self._bodies[self._decoded :])

    def retry_after_s(self) -> float | None:
        """The server's Retry-After, where it is a number of seconds."""
        value = self.response.header("retry-after")
        try:
            seconds = float(value) if value is not None else None
        except ValueError:
            return None
        return seconds if seconds is not None and 0 <= seconds < 1e9 else None

    @property
    def retryable(self) -> bool:
        """Another attempt may end otherwise: the server could not be reached, was busy, or broke before a token."""
        failure = self.failure
        if isinstance(failure, errors.HttpStatus):
            return failure.status in RETRIED_STATUSES
        if isinstance(failure, errors.Disconnected):
            return self.num_reads == 0
        if isinstance(failure, errors.TimedOut):
            return failure.phase == "connect"
        return isinstance(failure, errors.ConnectFailed)

    def record(self, worker: int) -> Record:
        """The request as it goes into the journal."""
        reader = self.reader
        usage = reader.usage
        told = usage.completion_tokens if usage is not None else None
        failed_status = self.response.status not in (0, 200)
        record = Record(
            index=self.work.index,
            request_id=self.work.request_id,
            worker=worker,
            model=self.work.model,
            scheduled_ns=self.due_ns,
            ready_ns=self.ready_ns,
            sent_ns=self.sent_ns,
            connected_ns=self.connected_ns,
            first_byte_ns=self.first_byte_ns,
            first_token_ns=reader.first_token_ns,
            first_output_ns=reader.first_output_ns,
            last_token_ns=reader.last_token_ns,
            done_ns=self.done_ns,
            gaps_ns=reader.gaps_ns,
            chunk_tokens=reader.chunk_tokens if reader.counted and any(n != 1 for n in reader.chunk_tokens) else None,
            prompt_tokens_asked=self.work.prompt_tokens,
            prompt_tokens=usage.prompt_tokens if usage is not None else None,
            output_tokens_asked=self.work.output_tokens,
            output_tokens=told if told is not None else (reader.tokens if reader.counted else None),
            output_tokens_from="usage" if told is not None else ("counted" if reader.counted else None),
            reasoning_chunks=reader.reasoning_chunks,
            finish_reason=reader.finish_reason,
            text=reader.text,
            streamed=self.streamed,
            attempts=max(self.attempts, 1),
            retry_wait_ns=self.retry_wait_ns,
            reconnects=self.reconnects,
            redirects=self.redirects,
            reads=self.num_reads,
            read_lag_ns=self._read_lag_ns,
            stamped_by="kernel" if self._kernel and self.num_reads else "client",
            keep_alives=reader.keep_alives,
            num_warnings=reader.num_problems,
            warnings=[Fault.of(problem) for problem in reader.problems if problem is not self.failure],
        )
        if self.failure is not None:
            record.failure = Fault.of(self.failure)
        if (self.failure is not None or reader.problems or not told) and not failed_status:
            record.transcript = reader.transcript or None
        return record
