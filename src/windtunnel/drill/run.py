"""Does a drill: an undisturbed reference run, then load with its actions, and at the end everything as it was.

One asyncio loop conducts; load is sent by processes of their own, and the relay has a thread. Whatever ends the drill
(its load, a signal, an error), what was stopped goes on and faults are removed before it returns.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple, TypeVar

from msgspec import structs

from windtunnel.clock import monotonic_ns
from windtunnel.drill.admin import Admin, Told
from windtunnel.drill.bounds import Condition, parse_condition
from windtunnel.drill.deeds import Deeds, Place
from windtunnel.drill.gauges import Gauges
from windtunnel.drill.loads import LoadProcess, Tell
from windtunnel.drill.reading import ScenarioFile
from windtunnel.drill.relay import Relay
from windtunnel.drill.scenario import ADMIN_KINDS, RELAY_KINDS, Action
from windtunnel.engine.process import EmbeddedTarget
from windtunnel.errors import ActionFailed, WindtunnelError
from windtunnel.loadgen.config import ServeConfig
from windtunnel.loadgen.target import request_headers
from windtunnel.units import NS_PER_S
from windtunnel.wire.http1 import parse_url

_LOOK_S = 0.05
"""How often conditions are looked at."""
_QUICKLY = 32
"""Requests in flight of a reference run at an embedded target."""
_GRACE_S = 5.0
"""How long an action may still take when the load is over."""
_T = TypeVar("_T")
DRILL = "drill"
"""Who, in events of our own."""


class ActionOutcome(NamedTuple):
    """What became of one action."""

    action: Action
    at_ns: int | None
    """When it took effect; None: it was not done."""
    problem: str | None
    since_ns: int | None = None
    """Where the instant is that of our noticing: it took effect since then."""


class Outcome(NamedTuple):
    """A drill that was done, before anything is concluded from it."""

    loads: list[ServeConfig]
    """Those that were sent, the scenario's own first."""
    journals: list[str]
    references: list[str | None]
    """Of each load the journal of its undisturbed run."""
    actions: list[ActionOutcome]
    events: list[Told]
    ranks: list[int]
    interrupted: str | None


def run_drill(found: ScenarioFile, loads: list[ServeConfig], tell: Tell) -> Outcome | None:
    """Do it; None where it was interrupted before anything was disturbed.

    `loads` are the scenario's and those of its actions, in order. Raises errors of `windtunnel.errors` for what keeps
    the drill from taking place.
    """
    target = found.scenario.target
    embedded = EmbeddedTarget.start(target.embedded_text) if target.embedded_text is not None else None
    with embedded or nullcontext():
        url = (embedded.url if embedded else target.url or "").rstrip("/")
        needs_relay = any(action.kind in RELAY_KINDS for action in found.scenario.actions)
        relay = Relay(parse_url(url).origin) if needs_relay else None
        with relay or nullcontext():
            drill = _Drill(found, loads, url, embedded.pid if embedded else None, relay, tell)
            return asyncio.run(drill.run())


def _reference(config: ServeConfig) -> ServeConfig:
    """The same requests: at a target of our own as quickly as it likes them, elsewhere as they will come."""
    if config.target.embedded is None:
        return config
    load = structs.replace(config.load, request_rate=None, ramp_up=None, max_concurrency=_QUICKLY)
    return structs.replace(config, load=load)


class _Drill:
    """One drill while it goes on."""

    def __init__(
        self,
        found: ScenarioFile,
        loads: list[ServeConfig],
        url: str,
        pid: int | None,
        relay: Relay | None,
        tell: Tell,
    ) -> None:
        self._found = found
        self._actions = found.scenario.actions
        self._configs = loads
        self._place = Place(url, request_headers(loads[0]), pid, None, relay)
        self._tell = tell
        self._loads: list[LoadProcess] = []
        self._sent: list[int] = []
        """The places in `loads` of those that were started."""
        self._outcomes: dict[int, ActionOutcome] = {}
        self._events: list[Told] = []
        self._ranks: list[int] = []
        self._begun_ns = 0
        self._interrupted: str | None = None
        self._background: set[asyncio.Task[Any]] = set()

    async def run(self) -> Outcome | None:
        admin = await Admin.find(self._place.url, self._place.headers)
        self._place = self._place._replace(admin=admin)
        self._require_admin()
        if admin is not None:
            self._ranks = [entry["rank"] for entry in (await admin.ranks())["ranks"]]
        with self._interruptible():
            references = await self._refer()
            if self._interrupted is not None or not await self._begin():
                return None
            self._deeds = Deeds(self._place, self._start_load, self._note)
            try:
                await self._disturb()
            finally:
                await self._restore()
            journals = [await load.end() for load in self._loads]
        outcomes = [self._outcomes[number] for number in range(len(self._actions))]
        configs = [self._configs[number] for number in self._sent]
        compared = [references[number] for number in self._sent]
        return Outcome(configs, journals, compared, outcomes, self._events, self._ranks, self._interrupted)

    def _require_admin(self) -> None:
        for number, action in enumerate(self._actions):
            needs = action.kind in ADMIN_KINDS or (action.signal is not None and action.signal.rank is not None)
            if needs and self._place.admin is None:
                problem = f"{self._place.url} has no admin API, which {action.kind} needs"
                remedy = "Start the engine with --admin; of other servers use exec, http, signal and the link."
                raise self._found.error(("actions", number, action.kind), problem, remedy)

    # --- loads ------------------------------------------------------------------------------------------------

    async def _refer(self) -> list[str | None]:
        """Send each greedy load undisturbed."""
        journals: list[str | None] = []
        for config in self._configs:
            wanted = self._found.scenario.reference
            greedy = config.extra_body.get("temperature") == 0
            if self._interrupted is not None or not (greedy if wanted is None else wanted):
                journals.append(None)
                continue
            self._tell(f"reference run: {config.dataset.num_prompts} requests, undisturbed")
            load = await LoadProcess.start(_reference(config), self._place.url, self._tell)
            self._loads = [load]
            journals.append(await self._unless_interrupted(load.end()))
        self._loads = []
        return journals

    async def _begin(self) -> bool:
        """Start the scenario's load; False where we were interrupted before it sent anything."""
        await self._start(0)
        begun_ns = await self._unless_interrupted(self._loads[0].begun_ns())
        self._begun_ns = begun_ns or 0
        return begun_ns is not None

    async def _start(self, number: int) -> LoadProcess:
        url = self._place.url
        if self._place.relay is not None:
            url = f"{self._place.relay.origin}{parse_url(url).target.rstrip('/')}"
        load = await LoadProcess.start(self._configs[number], url, self._tell)
        self._loads.append(load)
        self._sent.append(number)
        return load

    async def _start_load(self, action: Action) -> int:
        """Start an action's load and return when it began."""
        with_load = [each for each in self._actions if each.load is not None]
        load = await self._start(1 + next(n for n, each in enumerate(with_load) if each is action))
        begun_ns = None
        try:
            begun_ns = await load.begun_ns()
        finally:
            if begun_ns is None:  # it sends nothing any more, and has no journal
                self._sent.pop(self._loads.index(load))
                self._loads.remove(load)
                await load.stop()
        if begun_ns is None:
            raise ActionFailed("load", "it was stopped before it began")
        return begun_ns

    # --- actions ----------------------------------------------------------------------------------------------

    async def _disturb(self) -> None:
        """Do the actions while the loads go on, and return when those are over."""
        if self._place.admin is not None:
            self._in_background(self._place.admin.follow(self._begun_ns, self._events.append))
        running: dict[int, asyncio.Task[None]] = {}
        timed = sorted((a.after_s, n) for n, a in enumerate(self._actions) if a.after_s is not None)
        conditions = {n: parse_condition(a.when) for n, a in enumerate(self._actions) if a.when is not None}
        gauges = Gauges(self._place.url, self._place.headers, self._place.admin)

        def do(number: int) -> None:
            running[number] = asyncio.get_running_loop().create_task(self._do(number))

        self._in_background(self._keep_time(timed, do))
        self._in_background(self._watch(conditions, gauges, do))
        await self._until_loads_end()
        ending = [task for number, task in running.items() if self._actions[number].fail_at is None]
        if ending:  # a fault that is armed may never come
            await asyncio.wait(ending, timeout=_GRACE_S)
        for task in running.values():
            task.cancel()
        await asyncio.gather(*running.values(), return_exceptions=True)
        self._name_what_was_not_done(conditions, gauges)

    async def _keep_time(self, timed: list[tuple[float, int]], do: Callable[[int], None]) -> None:
        for after_s, number in timed:
            at_ns = self._begun_ns + round(after_s * NS_PER_S)
            await asyncio.sleep(max(0.0, (at_ns - monotonic_ns()) / NS_PER_S))
            do(number)

    async def _watch(self, conditions: dict[int, Condition], gauges: Gauges, do: Callable[[int], None]) -> None:
        pending = dict(conditions)
        while pending:
            metrics = list(dict.fromkeys(condition.metric for condition in pending.values()))
            try:
                values = await gauges.read(metrics, [load.counts for load in self._loads])
            except WindtunnelError as error:
                gauges.problems |= dict.fromkeys(metrics, error.message)
                values = {}
            for number, condition in list(pending.items()):
                if condition.bound.holds(values.get(condition.metric)):
                    del pending[number]
                    do(number)
            await asyncio.sleep(_LOOK_S)

    async def _do(self, number: int) -> None:
        action = self._actions[number]
        at_ns, since_ns, problem = None, None, "it was not over when the load was"
        if action.fail_at is not None:
            problem = f"rank {action.fail_at.rank} did not come to {action.fail_at.transition} before the load was over"
        try:
            deed = await self._deeds.do(action)
            self._note(action.label, deed.facts, deed.at_ns)
            at_ns, since_ns, problem = deed.at_ns, deed.since_ns, ""
        except WindtunnelError as error:
            problem = error.message
            self._note(f"{action.label} failed", {"reason": problem})
        finally:
            self._outcomes[number] = ActionOutcome(action, at_ns, problem or None, since_ns)

    def _name_what_was_not_done(self, conditions: dict[int, Condition], gauges: Gauges) -> None:
        over = "we were interrupted before" if self._interrupted else "the load was over before"
        for number, action in enumerate(self._actions):
            if number not in self._outcomes:
                problem = over
                if number in conditions:
                    why = gauges.problems.get(conditions[number].metric, "")
                    problem = f"its condition never held{': ' if why else ''}{why}"
                self._outcomes[number] = ActionOutcome(action, None, problem)

    async def _until_loads_end(self) -> None:
        """Also of those that begin meanwhile."""
        num = 0
        while num < len(self._loads):
            num = len(self._loads)
            await self._unless_interrupted(self._all_over())

    async def _all_over(self) -> None:
        await asyncio.gather(*(load.end() for load in self._loads))

    # --- the end ----------------------------------------------------------------------------------------------

    async def _restore(self) -> None:
        """End what goes on, and undo what was done."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        for problem in await self._deeds.undo():
            self._tell(f"warning: could not be undone: {problem}")
        await self._stop_loads()

    async def _stop_loads(self) -> None:
        await asyncio.gather(*(load.stop() for load in self._loads))

    async def _unless_interrupted(self, what: Awaitable[_T]) -> _T | None:
        """What it brings; None where it failed because we were interrupted."""
        try:
            return await what
        except WindtunnelError:
            if self._interrupted is None:
                raise
            return None

    def _in_background(self, what: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(what)
        self._background.add(task)

    def _note(self, what: str, facts: dict[str, Any], at_ns: int | None = None) -> None:
        """An event of our own."""
        at_ns = monotonic_ns() if at_ns is None else at_ns
        self._events.append(Told(at_ns, DRILL, what, facts))
        told = ", ".join(f"{name} {value}" for name, value in facts.items())
        self._tell(f"{(at_ns - self._begun_ns) / NS_PER_S:6.2f} s  {what}{': ' if told else ''}{told}")

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """SIGINT and SIGTERM end the loads in order; a second SIGINT does what it does elsewhere."""
        loop = asyncio.get_running_loop()

        def interrupt(number: signal.Signals) -> None:
            loop.remove_signal_handler(number)
            self._interrupted = self._interrupted or number.name
            self._in_background(self._stop_loads())

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, interrupt, number)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
