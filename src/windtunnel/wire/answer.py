"""The body of one answer, read as it came: which bytes were tokens, when they arrived, what the server said of itself.

Rules, each of them from a server that does it:
- A chunk carries tokens when it has text (content, reasoning, tool calls), or says so by token ids, log probabilities
  or a growing usage; and when its text is the empty string though nothing else explains the chunk: a detokenizer that
  holds text back. The chunk that only names the role, the one that only brings the finish reason, and the one that
  only brings the usage carry none.
- An answer is whole when a finish reason came, or when `[DONE]` came together with the server's usage.
- One bad event in a stream that goes on is kept as a problem, not as the end.
"""

from __future__ import annotations

from collections import deque

import msgspec

from windtunnel.errors import MalformedResponse
from windtunnel.wire.openai import Answer, Choice, Delta, Dialect, Usage, decode_answer, error_text
from windtunnel.wire.sse import Event, EventStream, Stray

_EVENT_STREAM = "text/event-stream"
_MAX_PROBLEMS = 5
_EXCERPT_BYTES = 120
_TRANSCRIPT_BYTES = 1024


class AnswerReader:
    """Takes the pieces of a body with their stamps; what it has understood so far is in its fields."""

    def __init__(self, dialect: Dialect, content_type: str | None, *, streamed: bool) -> None:
        self.dialect = dialect
        self.first_token_ns: int | None = None
        self.first_output_ns: int | None = None
        self.last_token_ns: int | None = None
        self.gaps_ns: list[int] = []
        self.chunk_tokens: list[int] = []
        """Tokens of each chunk that carries some; 1 where the server doesn't tell."""
        self.counted = False
        """Some chunk told how many tokens it has."""
        self.reasoning_chunks = 0
        self.finish_reason: str | None = None
        self.usage: Usage | None = None
        self.error: str | None = None
        self.saw_done = False
        self.problems: list[MalformedResponse] = []
        self.num_problems = 0
        self._reasoning: list[str] = []
        self._output: list[str] = []
        self._events = EventStream()
        self._num_events = 0
        self._usage_so_far: int | None = None
        self._unfinished: set[int] = set()
        """Choices that have begun and not ended."""
        self._json: list[bytes] | None = None
        self._tail: deque[bytes] = deque(maxlen=16)
        self._kind = (content_type or "").partition(";")[0].strip().lower()
        self._streamed = streamed

    def feed(self, data: bytes, stamp_ns: int) -> None:
        """Take the next bytes of the body, which arrived at `stamp_ns`."""
        if not self._tail and self._is_document(data):
            self._json = []
        self._tail.append(data)
        if self._json is not None:
            self._json.append(data)
            return
        for event in self._events.feed(data, stamp_ns):
            self._take(event)

    def _is_document(self, first: bytes) -> bool:
        """One document, no event stream: by its name, and where that may be wrong by its first bytes."""
        if self._kind == _EVENT_STREAM:
            return False
        start = first.lstrip()[:5]
        if start[:1] in (b"{", b"[", b"<"):
            return True
        if start in (b"data:", b"event") or start[:1] == b":":
            return False
        return self._kind in ("application/json", "text/html") or not self._streamed

    def finish(self, stamp_ns: int) -> None:
        """The body has ended, properly or not."""
        if self._json is not None:
            self._take_document(b"".join(self._json), stamp_ns)
            self._json = []
            return
        for event in self._events.finish(stamp_ns):
            self._take(event, last=True)

    @property
    def whole(self) -> bool:
        """The server has said that the answer is complete."""
        finished = self.finish_reason is not None and not self._unfinished
        return finished or (self.saw_done and self.usage is not None)

    @property
    def tokens(self) -> int:
        """Tokens that arrived, as far as chunks tell."""
        return sum(self.chunk_tokens)

    @property
    def text(self) -> str:
        """What the answer says: reasoning, then output."""
        return "".join(self._reasoning) + "".join(self._output)

    @property
    def keep_alives(self) -> int:
        """Comments in the stream."""
        return self._events.comments

    @property
    def transcript(self) -> str:
        """The last bytes of the body, printable."""
        return b"".join(self._tail)[-_TRANSCRIPT_BYTES:].decode("utf-8", "backslashreplace")

    def _take(self, event: Event | Stray, last: bool = False) -> None:
        if isinstance(event, Stray):
            self._note("sse", event.offset, "a line that is no field of an event stream", event.line)
            return
        data = event.data
        self._num_events += 1
        if self.saw_done:
            self._note("sse", event.offset, "an event after [DONE]", data)
            return
        if data == b"[DONE]" or data.strip() == b"[DONE]":
            self.saw_done = True
            return
        try:
            answer = decode_answer(data)
        except msgspec.ValidationError as error:
            self._note("schema", event.offset, str(error), data)
            return
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if event.type == b"error" and self.error is None:
                self.error = data.decode("utf-8", "backslashreplace")
                return
            if not last:  # what the end of the stream cut off is told by how the answer ended
                self._note("json", event.offset, str(error), data)
            return
        if answer.error or answer.object == "error" or event.type == b"error":
            words = error_text(answer)
            if words is None and event.type == b"error":
                words = data.decode("utf-8", "backslashreplace")
            if words is not None:
                self.error = self.error or words
                return
        for choice in answer.choices or ():
            self._take_choice(choice, answer, event.stamp_ns)
        if answer.usage is not None and answer.usage.completion_tokens is not None:
            self.usage = answer.usage

    def _take_choice(self, choice: Choice, answer: Answer, stamp_ns: int) -> None:
        if choice.finish_reason is not None:
            self.finish_reason = choice.finish_reason
            self._unfinished.discard(choice.index)
        elif choice.index not in self._unfinished:
            self._unfinished.add(choice.index)
        delta = choice.delta or choice.message
        if delta is None:
            output, reasoning, tools, empty = choice.text, None, False, choice.text == ""
        else:
            output, reasoning, tools, empty = _content(delta)
        count = None
        if answer.usage is not None or choice.token_ids is not None or choice.logprobs is not None:
            count = self._told_count(choice, answer.usage, silent=not (output or reasoning or tools))
        # an empty string with nothing to explain it is a token whose text is held back
        held_back = empty and choice.finish_reason is None and count is None
        if not (output or reasoning or tools or count or held_back):
            return
        if self.last_token_ns is None:
            self.first_token_ns = stamp_ns
        else:
            self.gaps_ns.append(stamp_ns - self.last_token_ns)
        self.last_token_ns = stamp_ns
        if count:
            self.counted = True
        self.chunk_tokens.append(count or 1)
        if reasoning:
            self._reasoning.append(reasoning)
        if reasoning and not output:
            self.reasoning_chunks += 1
        elif self.first_output_ns is None:
            self.first_output_ns = stamp_ns
        if output:
            self._output.append(output)

    def _told_count(self, choice: Choice, usage: Usage | None, *, silent: bool) -> int | None:
        """How many tokens the chunk has, where the server tells.

        A usage tells it by its growth from chunk to chunk. One that comes first with the finish reason is the sum.
        """
        if choice.token_ids is not None:
            return len(choice.token_ids)
        if choice.logprobs is not None:
            entries = choice.logprobs.tokens if choice.logprobs.tokens is not None else choice.logprobs.content
            if entries is not None:
                return len(entries)
        if usage is None or not usage.completion_tokens:
            return None
        before = self._usage_so_far
        self._usage_so_far = usage.completion_tokens
        if before is None:
            if self.last_token_ns is not None:
                return None
            before = 0
        return None if silent and choice.finish_reason is not None else max(usage.completion_tokens - before, 0)

    def _take_document(self, body: bytes, stamp_ns: int) -> None:
        """A whole answer in one JSON document."""
        if self._kind == "text/html":
            self._note("schema", 0, "the answer is an HTML page", body)
            return
        try:
            answer = decode_answer(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._note("schema" if isinstance(error, msgspec.ValidationError) else "json", 0, str(error), body)
            return
        self.error = error_text(answer)
        for choice in answer.choices or ():
            self._take_choice(choice, answer, stamp_ns)
        self.usage = answer.usage
        if not answer.choices and self.error is None:
            self._note("schema", 0, "the answer has no choices", body)

    def _note(self, layer: str, offset: int, problem: str, near: bytes) -> None:
        self.num_problems += 1
        if len(self.problems) < _MAX_PROBLEMS:
            excerpt = near[:_EXCERPT_BYTES].decode("utf-8", "backslashreplace")
            part = "response" if self._json is not None else f"stream, event {self._num_events}"
            self.problems.append(MalformedResponse(layer, part, offset, problem, repr(excerpt)))


def _content(delta: Delta) -> tuple[str | None, str | None, bool, bool]:
    """(output text, reasoning text, tool calls?, an empty string where text belongs?)."""
    reasoning = delta.reasoning_content or delta.reasoning
    return delta.content, reasoning, bool(delta.tool_calls), delta.content == "" and delta.role is None
