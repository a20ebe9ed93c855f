"""Does a scenario's actions, and undoes at the end what would stay: what is stopped goes on, faults are removed.

An action that can't be done raises ActionFailed or a RequestFailure; the drill goes on without it.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec

from windtunnel.clock import monotonic_ns
from windtunnel.drill.admin import Admin
from windtunnel.drill.calls import Headers, call
from windtunnel.drill.host import is_down, read_pid, run_program, send_signal
from windtunnel.drill.relay import Relay
from windtunnel.drill.scenario import Action, Exec, FailAt, Http, Signal, SlowRank
from windtunnel.errors import ActionFailed, WindtunnelError

_ADMIN_TIMEOUT_S = 60.0
_LOOK_S = 0.005
"""How often a process is looked at that is to fail."""
_OF_A_REBALANCE = ("outcome", "reason", "epoch", "copies", "plan_s", "total_s")
"""What is told of all that the engine says."""
_NEVER = 10**9
_STOPPING = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


class Deed(NamedTuple):
    """What was done."""

    at_ns: int
    """When it took effect."""
    facts: dict[str, Any]
    """What was heard of it."""
    since_ns: int | None = None
    """It took effect at some instant since then, and was noticed to have at `at_ns`; None: exactly at that."""


class Place(NamedTuple):
    """Where a drill takes place."""

    url: str
    """The target's own, not the relay's."""
    headers: Headers
    pid: int | None
    """Of an embedded target."""
    admin: Admin | None
    relay: Relay | None


class Deeds:
    """Does actions at a place, and remembers what has to be undone."""

    def __init__(
        self, place: Place, start_load: Callable[[Action], Awaitable[int]], note: Callable[[str, dict[str, Any]], None]
    ) -> None:
        self._place = place
        self._start_load = start_load
        self._note = note
        self._undo: dict[str, Callable[[], Awaitable[object]]] = {}
        self._timers: set[asyncio.Task[None]] = set()

    async def do(self, action: Action) -> Deed:
        """Do one, and wait until it is done; raises ActionFailed, errors.RequestFailure."""
        if action.rebalance is not None:
            at_ns = monotonic_ns()
            heard = await self._admin.do("rebalance", _ADMIN_TIMEOUT_S)
            return Deed(at_ns, {key: heard[key] for key in _OF_A_REBALANCE if heard.get(key) not in (None, "")})
        if action.fail_at is not None:
            return await self._fail_at(action.fail_at)
        if action.slow_rank is not None:
            return await self._slow_rank(action.slow_rank)
        if action.http is not None:
            return await self._http(action.http)
        if action.exec is not None:
            return await self._exec(action.exec)
        if action.signal is not None:
            return await self._signal(action.signal)
        if action.load is not None:
            return Deed(await self._start_load(action), {})
        if action.kind.endswith("_rank"):
            return await self._rank(action.kind, getattr(action, action.kind))
        return self._link(action)

    async def undo(self) -> list[str]:
        """Undo what is left, the latest first; what could not be undone, and why."""
        for timer in self._timers:
            timer.cancel()
        left = []
        while self._undo:
            what, undo = self._undo.popitem()
            try:
                await undo()
            except WindtunnelError as error:
                left.append(f"{what}: {error.message}")
        return left

    # --- ranks ------------------------------------------------------------------------------------------------

    @property
    def _admin(self) -> Admin:
        if self._place.admin is None:
            raise ActionFailed("/admin", "the target has no admin API")
        return self._place.admin

    async def _rank(self, kind: str, rank: int) -> Deed:
        if kind == "hang_rank":
            self._undo[f"hang_rank {rank}"] = lambda: self._admin.do("resume_rank", _ADMIN_TIMEOUT_S, rank=rank)
        heard = await self._admin.do(kind, _ADMIN_TIMEOUT_S, rank=rank)
        if kind in ("resume_rank", "restart_rank"):
            self._undo.pop(f"hang_rank {rank}", None)
        return _heard(heard)

    async def _slow_rank(self, asked: SlowRank) -> Deed:
        def slow(delay_s: float) -> Awaitable[dict[str, Any]]:
            return self._admin.do("slow_rank", _ADMIN_TIMEOUT_S, rank=asked.rank, delay_s=delay_s)

        self._undo[f"slow_rank {asked.rank}"] = lambda: slow(0.0)
        return _heard(await slow(asked.delay_s))

    async def _fail_at(self, asked: FailAt) -> Deed:
        """Arm it; where its process can be looked at, wait until it has failed."""
        pid = await self._admin.pid_of(asked.rank)
        self._undo[f"fail_at {asked.rank}"] = lambda: self._disarm(asked)
        armed = _heard(await self._admin.do("fail_at", _ADMIN_TIMEOUT_S, **msgspec.to_builtins(asked)))
        if asked.how == "slow" or self._place.pid is None:
            return armed
        self._note("armed", {"rank": asked.rank, "transition": asked.transition, "how": asked.how})
        while not is_down(pid):
            await asyncio.sleep(_LOOK_S)
        return Deed(monotonic_ns(), armed.facts, armed.at_ns)

    async def _disarm(self, asked: FailAt) -> None:
        """Let it fail at a time that never comes, and go on if it hangs; a rank that has ended needs neither."""
        never = msgspec.structs.replace(asked, occurrence=_NEVER)
        for deed, facts in (("fail_at", msgspec.to_builtins(never)), ("resume_rank", {"rank": asked.rank})):
            try:
                await self._admin.do(deed, _ADMIN_TIMEOUT_S, **facts)
            except ActionFailed:
                pass

    # --- anything else ----------------------------------------------------------------------------------------

    async def _http(self, asked: Http) -> Deed:
        address = asked.url or f"{self._place.url}{asked.path}"
        headers = [*(self._place.headers if asked.url is None else ()), *asked.headers.items()]
        body = b"" if asked.body is None else msgspec.json.encode(asked.body)
        at_ns = monotonic_ns()
        answer = await call(asked.method, address, body, headers=headers, timeout_s=asked.timeout_s)
        if answer.status != asked.status:
            raise ActionFailed(f"{asked.method} {asked.url or asked.path}", answer.excerpt)
        return Deed(at_ns, {"status": answer.status})

    async def _exec(self, asked: Exec) -> Deed:
        undo = asked.undo
        if undo is not None:
            self._undo[f"exec {' '.join(map(str, asked.command))}"] = lambda: run_program(undo, asked.timeout_s)
        at_ns = monotonic_ns()
        said = await run_program(asked.command, asked.timeout_s)
        return Deed(at_ns, {"said": said} if said else {})

    async def _signal(self, asked: Signal) -> Deed:
        number = signal.Signals[asked.signal]
        if asked.rank is not None:
            pid = await self._admin.pid_of(asked.rank)
        else:
            pid = asked.pid or (self._place.pid if asked.pid_file is None else read_pid(asked.pid_file)) or 0
        if number in _STOPPING:
            self._undo[f"{number.name} to process {pid}"] = lambda: _go_on(pid)
        at_ns = monotonic_ns()
        send_signal(pid, number)
        return Deed(at_ns, {"pid": pid})

    def _link(self, action: Action) -> Deed:
        """A fault of the link, and its end after a while."""
        relay = self._place.relay
        assert relay is not None, "a drill with faults of the link has a relay"
        at_ns = monotonic_ns()
        for_s: float | None = None
        end = relay.mend
        if action.delay is not None:
            relay.delay(action.delay.delay_s)
            for_s, end = action.delay.for_s, lambda: relay.delay(0)
        elif action.bandwidth is not None:
            relay.narrow(action.bandwidth.bytes_per_s)
            for_s, end = action.bandwidth.for_s, lambda: relay.narrow(None)
        elif action.drop is not None:
            relay.drop(action.drop.ratio)
            for_s, end = action.drop.for_s, lambda: relay.drop(0)
        elif action.cut is not None:
            relay.cut()
            for_s = action.cut.for_s
        elif action.reset is not None:
            relay.reset(action.reset.ratio)
        if for_s is not None:
            timer = asyncio.get_running_loop().create_task(self._end_after(for_s, action.kind, end))
            self._timers.add(timer)
            timer.add_done_callback(self._timers.discard)
        return Deed(at_ns, {})

    async def _end_after(self, for_s: float, kind: str, end: Callable[[], None]) -> None:
        await asyncio.sleep(for_s)
        end()
        self._note(f"{kind} ended", {})


def _heard(facts: dict[str, Any]) -> Deed:
    """A deed by what the target says of it: its own instant, where it gives one."""
    at_ns = facts.pop("at_ns", None)
    return Deed(at_ns if isinstance(at_ns, int) else monotonic_ns(), facts)


async def _go_on(pid: int) -> None:
    """A process that has ended meanwhile needs nothing."""
    try:
        send_signal(pid, signal.SIGCONT)
    except ActionFailed:
        pass
