"""The engine as a process: engine, front and their end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from windtunnel.engine.moe.core import Engine, EngineConfig
from windtunnel.engine.moe.front.admin import Admin, Events
from windtunnel.engine.moe.front.app import App
from windtunnel.engine.moe.front.metrics import FrontMetrics
from windtunnel.engine.server import HttpServer, new_event_loop
from windtunnel.engine.serving import Ending, listens
from windtunnel.errors import EXIT_FAILED, EXIT_OK
from windtunnel.readiness import raise_descriptor_limit


@dataclass(frozen=True)
class FrontConfig:
    """Where and how an engine is served."""

    name: str
    """What the model is called."""
    host: str = "127.0.0.1"
    port: int = 0
    """0: any that is free."""
    admin: bool = False
    """Serve `/admin`."""
    drain_s: float = 30.0
    """How long requests under way may take when it was told to end."""
    end_with_stdin: bool = False
    """End when standard input does."""


def serve(engine_config: EngineConfig, config: FrontConfig) -> int:
    """Serve until told to end; the exit code. Raises WindtunnelError where it can't start."""
    raise_descriptor_limit()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_serve(engine_config, config))


async def _serve(engine_config: EngineConfig, config: FrontConfig) -> int:
    loop = asyncio.get_running_loop()
    ending = Ending(loop, watches_stdin=config.end_with_stdin)
    registry = CollectorRegistry()
    events = Events()
    engine = Engine(engine_config, on_event=events.add, registry=registry)
    try:
        await asyncio.to_thread(engine.start)
        admin = Admin(engine, events).routes if config.admin else {}
        app = App(engine, config.name, FrontMetrics(registry, config.name), admin)
        server = HttpServer(app)

        def after_step() -> None:
            app.deliver()
            if engine.failure is not None:
                ending.end_at_once()

        engine.on_step = lambda: loop.call_soon_threadsafe(after_step)
        if not await listens(server, config.host, config.port):
            return EXIT_FAILED
        await ending.told.wait()
        server.stop_listening()
        await _first_of(app.drain(), ending.at_once.wait(), timeout_s=config.drain_s)
        await server.close()
        return EXIT_OK if engine.failure is None else EXIT_FAILED
    finally:
        await asyncio.to_thread(engine.close)


async def _first_of(*waits: Coroutine[None, None, object], timeout_s: float) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
