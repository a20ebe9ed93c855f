"""What a condition can ask for: the load's own counts, the engine's ranks, the target's metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from windtunnel.drill.admin import Admin
from windtunnel.drill.calls import Headers, call
from windtunnel.errors import RequestFailure, did_you_mean
from windtunnel.loadgen.watcher import Counts

OF_THE_LOAD = ("sent", "completed", "failed", "in_flight")
OF_THE_ENGINE = ("epoch", "balancedness", "live_ranks")
_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_TIMEOUT_S = 5.0


class Gauges:
    """Reads what is asked for, and nothing else."""

    def __init__(self, url: str, headers: Headers, admin: Admin | None) -> None:
        self._url = url
        self._headers = headers
        self._admin = admin
        self.problems: dict[str, str] = {}
        """Why a metric could not be read at the last look."""

    async def read(self, metrics: Sequence[str], loads: Sequence[Counts]) -> dict[str, float]:
        """The value of each metric that has one now."""
        found: dict[str, float] = {}
        for name in metrics:
            if name in OF_THE_LOAD:
                found[name] = sum(getattr(counts, name) for counts in loads)
        if (asked := [name for name in metrics if name in OF_THE_ENGINE]) and self._admin is not None:
            ranks = await self._admin.ranks()
            found |= {name: value for name in asked if (value := _of_the_engine(name, ranks)) is not None}
        if foreign := [name for name in metrics if name not in OF_THE_LOAD and (name not in OF_THE_ENGINE)]:
            found |= await self._scrape(foreign)
        return found

    async def _scrape(self, names: Sequence[str]) -> dict[str, float]:
        try:
            answer = await call("GET", f"{self._url}/metrics", headers=self._headers, timeout_s=_TIMEOUT_S)
        except RequestFailure as failure:
            self.problems |= dict.fromkeys(names, failure.message)
            return {}
        if answer.status != 200:
            self.problems |= dict.fromkeys(names, f"/metrics: {answer.excerpt}")
            return {}
        samples = list(_samples(answer.body.decode("utf-8", "replace")))
        found = {}
        for name in names:
            values = [value for metric, labels, value in samples if _is_meant(name, metric, labels)]
            if values:
                found[name] = sum(values)
            else:
                known = {*OF_THE_LOAD, *OF_THE_ENGINE, *(metric for metric, _, _ in samples)}
                meant = did_you_mean(name.partition("{")[0], known)
                self.problems[name] = f"the target's /metrics have no {name}{meant}"
        return found


def _of_the_engine(name: str, ranks: dict[str, Any]) -> float | None:
    if name == "live_ranks":
        return sum(1 for rank in ranks.get("ranks", ()) if rank.get("live"))
    value = ranks.get(name)
    return float(value) if isinstance(value, int | float) else None


def _samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """Of Prometheus's text format: name, labels, value."""
    for line in text.splitlines():
        match = None if line.startswith("#") else _SAMPLE.fullmatch(line.strip())
        if match:
            try:
                yield match[1], dict(_LABEL.findall(match[2] or "")), float(match[3])
            except ValueError:
                continue


def _is_meant(written: str, metric: str, labels: dict[str, str]) -> bool:
    """Of a metric with labels that are not named, all samples count."""
    name, _, wanted = written.partition("{")
    return name == metric and all(labels.get(key) == value for key, value in _LABEL.findall(wanted))
