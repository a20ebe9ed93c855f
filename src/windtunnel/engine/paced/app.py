"""The paced target's routes: OpenAI's API, vLLM's /tokenize and /detokenize, and what it knows of itself."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from windtunnel.engine.bodies import BadRequest
from windtunnel.engine.paced.answer import StreamedAnswer, WholeAnswer
from windtunnel.engine.paced.asked import Asked, RequestReader
from windtunnel.engine.paced.config import NAME, PacedConfig
from windtunnel.engine.paced.faults import script_of
from windtunnel.engine.pacer import Pacer, Script
from windtunnel.engine.routes import Routes, answer, answer_empty, answer_json
from windtunnel.engine.server import Exchange
from windtunnel.units import NS_PER_MS
from windtunnel.wire.openai import Dialect

_PPM = 1_000_000


class Counts(Struct):
    """What became of the generations that were asked for."""

    started: int = 0
    completed: int = 0
    """Answered to the answer's end, whatever that was."""
    left: int = 0
    """The client left before that."""
    in_flight: int = 0
    max_in_flight: int = 0


class PacedApp:
    """Answers requests as its configuration says. Called by the server with each."""

    def __init__(self, config: PacedConfig, pacer: Pacer) -> None:
        self._config = config
        self._pacer = pacer
        self._reader = RequestReader(model=NAME, max_model_len=config.max_model_len, template_tokens=config.template)
        self.counts = Counts()
        self._numbered = 0
        self._routes: Routes = {
            "/health": ("GET", answer_empty),
            "/stats": ("GET", self._answer_stats),
            "/v1/models": ("GET", self._answer_models),
            "/v1/completions": ("POST", partial(self._generate, "completions")),
            "/v1/chat/completions": ("POST", partial(self._generate, "chat")),
            "/tokenize": ("POST", partial(self._answer_tokenizer, self._reader.tokenize)),
            "/detokenize": ("POST", partial(self._answer_tokenizer, self._reader.detokenize)),
            "/start_profile": ("POST", answer_empty),
            "/stop_profile": ("POST", answer_empty),
        }

    def __call__(self, exchange: Exchange) -> None:
        """Answer one request."""
        answer(self._routes, exchange, self._check_key if self._config.key else None)

    def _check_key(self, exchange: Exchange, path: str) -> None:
        if path.startswith("/v1/") and exchange.request.header("authorization") != f"Bearer {self._config.key}":
            raise BadRequest("the API key is missing or wrong", 401)

    def _answer_models(self, exchange: Exchange) -> None:
        if not self._config.models:
            raise BadRequest("there is no /v1/models here", 404)
        model = {"id": NAME, "object": "model", "created": 1_700_000_000, "owned_by": "windtunnel", "root": NAME}
        model |= {"parent": None, "max_model_len": self._config.max_model_len}
        answer_json(exchange, {"object": "list", "data": [model]})

    def _answer_tokenizer(self, convert: Callable[[bytes], bytes], exchange: Exchange) -> None:
        if self._config.tokenize_status is not None:
            raise BadRequest("this target was told to have no tokenizer", self._config.tokenize_status)
        exchange.respond(200, convert(exchange.request.body))

    def _answer_stats(self, exchange: Exchange) -> None:
        lateness = self._pacer.lateness
        stats = msgspec.structs.asdict(self.counts)
        stats["late_count"] = lateness.count
        stats["late_mean_ms"] = None if lateness.mean_ns is None else lateness.mean_ns / NS_PER_MS
        stats["late_max_ms"] = lateness.max_ns / NS_PER_MS if lateness.count else None
        answer_json(exchange, stats)

    def _generate(self, dialect: Dialect, exchange: Exchange) -> None:
        asked = self._reader.read_generation(dialect, exchange.request.body)
        fault = self._draw_fault(exchange)
        self._run(exchange, script_of(fault, self._make_answer(exchange, asked, fault)))

    def _make_answer(self, exchange: Exchange, asked: Asked, fault: str | None) -> StreamedAnswer | WholeAnswer:
        output_tokens, reason = asked.output_tokens, "tool_calls" if self._config.tools else "length"
        if fault in ("short", "zero"):
            after = 0 if fault == "zero" else self._config.fault_after
            output_tokens, reason = min(output_tokens // 2 if after is None else after, output_tokens - 1), "stop"
        prefix = "chatcmpl" if asked.dialect == "chat" else "cmpl"
        answer_id = f"{prefix}-{exchange.request.header('x-request-id') or self.counts.started}"
        kind = StreamedAnswer if asked.stream and fault != "json" else WholeAnswer
        return kind(self._config, exchange, asked, answer_id, output_tokens, reason)

    def _draw_fault(self, exchange: Exchange) -> str | None:
        """The fault of this request: by its number, so that each run has the same ones, evenly spread."""
        if self._config.fault is None:
            return None
        if self._config.fault == "redirect" and urlsplit(exchange.request.target).query == "redirected=1":
            return None
        number, ppm = self._numbered, round(self._config.fault_ratio * _PPM)
        self._numbered += 1
        return self._config.fault if (number + 1) * ppm // _PPM > number * ppm // _PPM else None

    def _run(self, exchange: Exchange, script: Script) -> None:
        counted = self._count(exchange, script)
        exchange.on_gone = partial(self._pacer.stop, counted)
        exchange.on_writable = partial(self._pacer.resume, counted)
        self._pacer.start(counted)

    def _count(self, exchange: Exchange, script: Script) -> Generator[int | None, None, None]:
        counts = self.counts
        counts.started += 1
        counts.in_flight += 1
        counts.max_in_flight = max(counts.max_in_flight, counts.in_flight)
        try:
            yield from script
            counts.completed += 1
        except GeneratorExit:
            counts.left += 1
            raise
        except Exception:
            exchange.reset()  # the client must not wait for the rest; the loop logs what happened
            raise
        finally:
            counts.in_flight -= 1
