"""The front's routes: generations go to the engine's thread, and their tokens come back with each of its steps.

Theory of operation. The engine calls for each token, in its thread; the call puts it into a queue and nothing else.
After each step the event loop is woken once and writes what has come, so a step of sixty-four tokens costs one wake-up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial

from windtunnel.clock import realtime_ns
from windtunnel.engine.moe.core import Engine
from windtunnel.engine.moe.front.answers import AnswerWriter
from windtunnel.engine.moe.front.asked import RequestReader
from windtunnel.engine.moe.front.generating import Generating, refuse
from windtunnel.engine.moe.front.metrics import FrontMetrics
from windtunnel.engine.moe.scheduler import Chosen
from windtunnel.engine.routes import Routes, answer, answer_json
from windtunnel.engine.server import Exchange
from windtunnel.errors import EngineDraining, WindtunnelError
from windtunnel.units import NS_PER_S
from windtunnel.wire.openai import Dialect

_PROMETHEUS = [("content-type", "text/plain; version=0.0.4; charset=utf-8")]


class App:
    """Answers requests with a model that an engine serves. Called by the server with each, in the loop's thread."""

    def __init__(self, engine: Engine, name: str, metrics: FrontMetrics, further: Routes) -> None:
        """`name`: what the model is called. `further`: routes beside OpenAI's."""
        self.name = name
        self._engine = engine
        self._metrics = metrics
        self._reader = RequestReader(name, engine.config.model, engine.tokenizer)
        self._began_s = realtime_ns() // NS_PER_S
        self._news: deque[tuple[Generating, int, Chosen | WindtunnelError]] = deque()
        self._under_way: set[Generating] = set()
        self._idle: asyncio.Event | None = None
        """Where the app is draining: set when nothing is under way any more."""
        self._num_asked = 0
        self._routes: Routes = {
            "/health": ("GET", self._answer_health),
            "/metrics": ("GET", self._answer_metrics),
            "/v1/models": ("GET", self._answer_models),
            "/v1/completions": ("POST", partial(self._generate, "completions")),
            "/v1/chat/completions": ("POST", partial(self._generate, "chat")),
            "/tokenize": ("POST", lambda exchange: answer_json(exchange, self._reader.tokenize(exchange.request.body))),
            "/detokenize": (
                "POST",
                lambda exchange: answer_json(exchange, self._reader.detokenize(exchange.request.body)),
            ),
            **further,
        }

    def __call__(self, exchange: Exchange) -> None:
        """Answer one request."""
        answer(self._routes, exchange)

    async def drain(self) -> None:
        """Take no new generations, and wait for those that are there."""
        self._idle = asyncio.Event()
        self._note_idle()
        await self._idle.wait()

    # --- generations ----------------------------------------------------------------------------------------------

    def _generate(self, dialect: Dialect, exchange: Exchange) -> None:
        if self._idle is not None:
            refuse(exchange, EngineDraining(len(self._under_way)))
            return
        asked = self._reader.read_generation(dialect, exchange.request.body)
        self._num_asked += 1
        number = exchange.request.header("x-request-id") or str(self._num_asked)
        answer_id = f"{'chatcmpl' if dialect == 'chat' else 'cmpl'}-{number}"
        created_s = exchange.arrived.realtime_ns // NS_PER_S
        writer = AnswerWriter(asked, self.name, answer_id, created_s, self._engine.tokenizer)
        generating = Generating(self._engine, self._metrics, exchange, asked, writer)
        try:
            generating.begin(self._tell)
        except WindtunnelError as error:
            refuse(exchange, error)
            return
        self._under_way.add(generating)
        generating.on_end = partial(self._ended, generating)

    def _tell(self, generating: Generating, index: int, news: Chosen | WindtunnelError) -> None:
        self._news.append((generating, index, news))

    def deliver(self) -> None:
        """Send what the engine has told since the last time."""
        touched: dict[Generating, None] = {}
        while self._news:
            generating, index, news = self._news.popleft()
            generating.take(index, news)
            touched[generating] = None
        for generating in touched:
            generating.flush()

    def _ended(self, generating: Generating) -> None:
        self._under_way.discard(generating)
        self._note_idle()

    def _note_idle(self) -> None:
        if self._idle is not None and not self._under_way:
            self._idle.set()

    # --- the rest -------------------------------------------------------------------------------------------------

    def _answer_health(self, exchange: Exchange) -> None:
        if self._idle is not None:
            refuse(exchange, EngineDraining(len(self._under_way)))
        else:
            exchange.respond(200, b"")

    def _answer_metrics(self, exchange: Exchange) -> None:
        exchange.respond(200, self._metrics.exposed(self._engine), headers=_PROMETHEUS)

    def _answer_models(self, exchange: Exchange) -> None:
        model = {
            "id": self.name,
            "object": "model",
            "created": self._began_s,
            "owned_by": "windtunnel",
            "root": str(self._engine.model_folder),
            "parent": None,
            "max_model_len": self._engine.config.model.max_context,
        }
        answer_json(exchange, {"object": "list", "data": [model]})
