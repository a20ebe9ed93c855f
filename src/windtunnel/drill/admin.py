"""The engine's admin API: its ranks, what is done to them, and what it tells of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from windtunnel.drill.calls import Headers, call, events
from windtunnel.errors import ActionFailed, RequestFailure

_TIMEOUT_S = 10.0
_AGAIN_S = 0.2


class Told(Struct, frozen=True):
    """An event of the engine's."""

    at_ns: int
    who: str
    what: str
    facts: dict[str, Any] = {}


class Admin:
    """The admin API at an address."""

    def __init__(self, url: str, headers: Headers = ()) -> None:
        self._url = f"{url}/admin"
        self._headers = headers

    @classmethod
    async def find(cls, url: str, headers: Headers = ()) -> Admin | None:
        """The target's, if it has one; raises errors.RequestFailure where it does not answer at all."""
        answer = await call("GET", f"{url}/admin/ranks", headers=headers, timeout_s=_TIMEOUT_S)
        return cls(url, headers) if answer.status == 200 else None

    async def ranks(self) -> dict[str, Any]:
        """Epoch, balancedness and ranks; raises errors.RequestFailure, ActionFailed."""
        answer = await call("GET", f"{self._url}/ranks", headers=self._headers, timeout_s=_TIMEOUT_S)
        if answer.status != 200 or not isinstance(answer.json, dict):
            raise ActionFailed("/admin/ranks", answer.excerpt)
        ranks: dict[str, Any] = answer.json
        return ranks

    async def pid_of(self, rank: int) -> int:
        """The number of a rank's process; raises errors.RequestFailure, ActionFailed."""
        for entry in (await self.ranks()).get("ranks", ()):
            if entry.get("rank") == rank and isinstance(entry.get("pid"), int):
                return int(entry["pid"])
        raise ActionFailed(f"rank {rank}", "the target has no process of such a rank")

    async def do(self, deed: str, timeout_s: float, **facts: Any) -> dict[str, Any]:
        """What the target says to a deed; raises errors.RequestFailure, ActionFailed."""
        body = msgspec.json.encode(facts)
        answer = await call("POST", f"{self._url}/{deed}", body, headers=self._headers, timeout_s=timeout_s)
        if answer.status != 200:
            raise ActionFailed(deed, answer.excerpt)
        return answer.json if isinstance(answer.json, dict) else {}

    async def follow(self, after_ns: int, on_event: Callable[[Told], None]) -> None:
        """Tell each event after an instant, once; a stream that ends is taken up again. Without end."""
        while True:
            try:
                async for event in events(f"{self._url}/events?after={after_ns}", headers=self._headers):
                    told = msgspec.convert(event, Told)
                    after_ns = max(after_ns, told.at_ns)
                    on_event(told)
            except RequestFailure:
                pass
            await asyncio.sleep(_AGAIN_S)
