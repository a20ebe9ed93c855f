"""One request on its way: its generations in the engine, and what its client is sent."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from windtunnel.clock import monotonic_ns
from windtunnel.engine.moe.core import Engine
from windtunnel.engine.moe.front.answers import AnswerWriter, event, usage_of
from windtunnel.engine.moe.front.asked import Asked
from windtunnel.engine.moe.front.metrics import FrontMetrics
from windtunnel.engine.moe.scheduler import Chosen, Generation
from windtunnel.engine.routes import STREAM_HEAD
from windtunnel.engine.server import Exchange
from windtunnel.errors import EngineBroken, EngineRequestError, WindtunnelError
from windtunnel.wire.http1 import LAST_CHUNK, write_response_head
from windtunnel.wire.openai import error_body

Tell = Callable[["Generating", int, Chosen | WindtunnelError], None]
"""Called in the engine's thread: a choice has a token, or has failed."""

_RETRY_AFTER = [("retry-after", "1")]


class Generating:
    """Answers one request. For the loop's thread."""

    def __init__(
        self, engine: Engine, metrics: FrontMetrics, exchange: Exchange, asked: Asked, writer: AnswerWriter
    ) -> None:
        self._engine = engine
        self._metrics = metrics
        self._exchange = exchange
        self._asked = asked
        self._writer = writer
        self._arrived_ns = exchange.arrived.monotonic_ns
        self._generations: list[Generation] = []
        num_choices = len(asked.prompts) * asked.num_choices
        self._tokens: list[list[Chosen]] = [[] for _ in range(num_choices)]
        """Of each choice: a whole answer is written from them."""
        self._counts = [0] * num_choices
        self._last_ns = [self._arrived_ns] * num_choices
        self._open = set(range(num_choices))
        self._head_sent = False
        self._outgoing: list[bytes] = []
        self.on_end: Callable[[], None] = lambda: None
        """Called once: the answer is sent, or nobody waits for it any more."""

    def begin(self, tell: Tell) -> None:
        """Give all choices to the engine. Raises EngineRequestError, EngineFull, EngineBroken."""
        try:
            for index in range(len(self._counts)):
                prompt, choice = divmod(index, self._asked.num_choices)
                told = partial(tell, self, index)
                sampling = self._asked.sampling_of(choice)
                self._generations.append(self._engine.submit(self._asked.prompts[prompt], sampling, told, told))
        except WindtunnelError:
            self._cancel()
            raise
        self._exchange.on_gone = self._leave

    def take(self, index: int, news: Chosen | WindtunnelError) -> None:
        """A choice has a token, or has failed. `flush` sends what follows from it."""
        if index not in self._open:
            return  # it was given up, with all others
        if isinstance(news, WindtunnelError):
            self._fail(news)
            return
        self._measure(index)
        if self._asked.stream:
            if not self._head_sent:
                self._begin_stream()
            usage = self._usage() if self._asked.usage_each else None
            self._outgoing.append(self._writer.token(index, news, usage))
        else:
            self._tokens[index].append(news)
        if news.finish_reason is not None:
            self._open.discard(index)
            self._note_end(index, news.finish_reason)
            if not self._open:
                self._conclude()

    def flush(self) -> None:
        """Send what is ready."""
        if self._outgoing:
            self._exchange.write(b"".join(self._outgoing))
            self._outgoing.clear()
            if not self._open:
                self._exchange.finish()

    def _begin_stream(self) -> None:
        self._head_sent = True
        head = [*STREAM_HEAD, *(() if self._exchange.request.keep_alive else [("connection", "close")])]
        self._outgoing += [write_response_head(200, head), self._writer.roles()]

    def _conclude(self) -> None:
        if self._asked.stream:
            if self._asked.usage:
                self._outgoing.append(self._writer.usage(self._usage()))
            self._outgoing += [event(b"[DONE]"), LAST_CHUNK]
        else:
            self._exchange.respond(200, self._writer.whole(self._tokens, self._usage()))
        self.on_end()

    def _usage(self) -> dict[str, object]:
        return usage_of(self._generations, self._asked.num_choices, sum(self._counts))

    # --- other ends -----------------------------------------------------------------------------------------------

    def _fail(self, error: WindtunnelError) -> None:
        """An answer without all its choices is none."""
        self._give_up("error")
        if self._head_sent:
            self._outgoing += [event(_error(error)[1]), event(b"[DONE]"), LAST_CHUNK]
        else:
            refuse(self._exchange, error)
        self.on_end()

    def _leave(self) -> None:
        """The client has left."""
        self._outgoing.clear()
        self._give_up("abort")
        self.on_end()

    def _give_up(self, reason: str) -> None:
        self._cancel()
        for index in sorted(self._open):
            self._note_end(index, reason)
        self._open.clear()

    def _cancel(self) -> None:
        for generation in self._generations:
            self._engine.cancel(generation)

    # --- metrics --------------------------------------------------------------------------------------------------

    def _measure(self, index: int) -> None:
        now_ns = monotonic_ns()
        after_ns, self._last_ns[index] = now_ns - self._last_ns[index], now_ns
        self._counts[index] += 1
        (self._metrics.first_token if self._counts[index] == 1 else self._metrics.next_token)(after_ns)

    def _note_end(self, index: int, reason: str) -> None:
        generation = self._generations[index]
        taken_ns = monotonic_ns() - self._arrived_ns
        self._metrics.ended(reason, len(generation.prompt), generation.num_cached, self._counts[index], taken_ns)


def refuse(exchange: Exchange, error: WindtunnelError) -> None:
    """Answer with an error that is ours, as OpenAI's error object."""
    status, body = _error(error)
    exchange.respond(status, body, headers=_RETRY_AFTER if status == 503 else ())


def in_words(error: WindtunnelError) -> str:
    """What happened, then the way out."""
    return f"{error.message}. {error.advice}"


def _error(error: WindtunnelError) -> tuple[int, bytes]:
    """A status and a body."""
    text = in_words(error)
    if isinstance(error, EngineRequestError):
        return 400, error_body(text, code=400, param=error.field)
    if isinstance(error, EngineBroken):
        return 500, error_body(text, "internal_error", 500)
    return 503, error_body(text, "service_unavailable", 503)
