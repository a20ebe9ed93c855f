"""Decides when service was back at its level after each action, and what users lost until then. Pure.

**The method.** Service is looked at through windows of `window_s`, 20 ms apart. A window's *speed* is the number of
tokens that came in it, divided by the time that requests were in flight in it: tokens per second and request. A server
that batches is slower for each the more requests it has, so speed is compared with the *usual* one for that many in
flight: time per token = a + c × requests in flight, fitted to the windows before the action with a, c ≥ 0. What is left
tells a stalled or slowed server from load that happens to be thin or heavy.

A window is *at its level* when its speed over the usual one is at least `level_ratio` of the median before, or not much
lower than the slowest window before (0.9 of it); and when no greater share of its requests failed than of any window
before. A window in which a tenth as many requests were in flight as before the first action, or fewer, is not judged by
its speed.
"Before" begins when service had recovered from the action before, and leaves out the load's first window.

Service is *back* at the end of the last bad stretch: of windows that are not at their level, or of a time without any
token that alone would make a window bad (what was due may come at once afterwards) and is longer than any before. A
stretch counts when it begins within a window of the action, or lasts for a window: a hiccup much later is not the
action's. One that begins less than a window before the next action is the next one's; one that begins earlier and goes
on counts for both. After an action that acts at once, service that was at its level for two seconds is back, whatever
comes later. Where no token came at all the instant that is told is exact; else it is off by a part of a window.

Recovery counts from the moment the action took effect: for a rank that was to fail at a transition, from the death or
stop of its process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from windtunnel.drill.traffic import Traffic
from windtunnel.measure.columns import Bools, Floats
from windtunnel.report.drill import Figures

STEP_S = 0.02
_SHORTEST_S = 0.5
_LONGEST_S = 5.0
_TOKENS = 60
"""Of a window, about: fewer make its speed a matter of chance."""
_NEAR = 0.9
"""Of the slowest window before: so much lower is still as it was."""
_SETTLED_S = 2.0
"""At its level for so long, service is back: what follows is not the doing of an action that acts at once."""
_ALIKE = 0.02
"""Spread of requests in flight over their mean, below which it tells nothing of what more of them cost."""
_THIN = 0.1
"""Of the requests that were in flight before the first action: where there are no more, a window is not judged."""


class Windows(NamedTuple):
    """Windows over the whole drill. Axis `w`; `begin` is ascending, [w] seconds."""

    width_s: float
    begin: Floats
    in_flight: Floats
    """[w] mean number of requests"""
    speed: Floats
    """[w] tokens per second and request in flight; NaN where it is not judged."""
    failed_ratio: Floats
    """[w] share of the requests that ended in it; 0 where none did."""

    @classmethod
    def of(cls, traffic: Traffic, width_s: float, until_s: float) -> Windows:
        """All windows of that width between the first token and the last request's end; `until_s`: all was as usual."""
        first = float(traffic.token_at[0]) if len(traffic.token_at) else 0.0
        count = max(0, int((traffic.end_s - first - width_s) / STEP_S) + 1)
        begin = np.asarray(first + np.arange(count) * STEP_S, dtype=np.float64)
        end = begin + width_s
        tokens = traffic.tokens_until(end) - traffic.tokens_until(begin)
        in_flight_s = traffic.in_flight_s(end) - traffic.in_flight_s(begin)
        usual_s = float(np.median(in_flight_s[: max(1, int(np.searchsorted(end, until_s)))])) if count else 0.0
        judged = in_flight_s > _THIN * usual_s
        over = traffic.ended_until(end, failed=False) - traffic.ended_until(begin, failed=False)
        failed = traffic.ended_until(end, failed=True) - traffic.ended_until(begin, failed=True)
        return cls(
            width_s,
            begin,
            in_flight_s / width_s,
            np.where(judged, tokens / np.where(judged, in_flight_s, 1.0), np.nan),
            failed / np.maximum(over, 1.0),
        )

    def over_usual(self, base_s: float, each_s: float) -> Floats:
        """[w] Speed over what is usual for that many requests; NaN where it is not judged."""
        return np.asarray(self.speed * (base_s + each_s * self.in_flight))


class Level(NamedTuple):
    """What windows have to be like to be at their level."""

    base_s: float
    """Time per token that does not depend on how many requests are in flight …"""
    each_s: float
    """… and what each of them adds."""
    median: float
    """Of speed over the usual one."""
    least: float
    most_failed_ratio: float

    @property
    def shortfall(self) -> float:
        """Share of a window without a token that makes it just bad."""
        return 1 - self.least / self.median

    def bad(self, windows: Windows) -> Bools:
        """[w] Which windows are not at the level; one that can't be judged is as the one before."""
        fails = windows.failed_ratio > self.most_failed_ratio
        bad = fails | (windows.over_usual(self.base_s, self.each_s) < self.least)
        judged = fails | ~np.isnan(windows.speed)
        latest = np.maximum.accumulate(np.where(judged, np.arange(len(judged)), 0))
        return np.asarray(bad[latest])


def window_width_s(traffic: Traffic, until_s: float) -> float:
    """Wide enough for some tokens, by how many came a second before the first action."""
    begin = traffic.token_at[0] if len(traffic.token_at) else 0.0
    span_s = max(until_s - float(begin), STEP_S)
    per_s = float(traffic.tokens_until(np.array([until_s]))[0]) / span_s
    return float(np.clip(_TOKENS / per_s if per_s else _LONGEST_S, _SHORTEST_S, _LONGEST_S))


def level_of(windows: Windows, begin_s: float, end_s: float, level_ratio: float) -> Level | None:
    """From the windows of a stretch; None where none of them has a speed."""
    inside = (windows.begin >= begin_s) & (windows.begin + windows.width_s <= end_s) & ~np.isnan(windows.speed)
    moving = inside & (windows.speed > 0)
    if not moving.any():
        return None
    base_s, each_s = _time_per_token(windows.in_flight[moving], windows.speed[moving])
    over_usual = windows.over_usual(base_s, each_s)[inside]
    median = float(np.median(over_usual))
    if not median:
        return None  # most of the time nothing came
    least = min(level_ratio * median, _NEAR * float(over_usual.min()))
    return Level(base_s, each_s, median, least, float(windows.failed_ratio[inside].max()))


def _time_per_token(in_flight: Floats, speed: Floats) -> tuple[float, float]:
    """`a` and `c` of time per token = a + c × requests in flight, neither below 0, by least squares."""
    time_s, apart = 1 / speed, in_flight - in_flight.mean()
    each_s = 0.0
    if apart.std() > _ALIKE * in_flight.mean():
        each_s = max(0.0, float((apart * time_s).sum() / (apart**2).sum()))
    base_s = float(time_s.mean() - each_s * in_flight.mean())
    if base_s < 0:
        return 0.0, float((in_flight * time_s).sum() / (in_flight**2).sum())
    return base_s, each_s


class _Stretch(NamedTuple):
    """A time in which service was not at its level."""

    begin_s: float
    end_s: float
    """Infinite: it did not come back."""


class Effect(NamedTuple):
    """When an action took effect."""

    at_s: float
    acts_at_once: bool = True
    """False: what it does may show a while later, as the end of a pod that is given time to end."""


def back_at_s(
    traffic: Traffic,
    windows: Windows,
    level: Level,
    before_s: tuple[float, float],
    effect: Effect,
    next_s: float | None,
) -> float | None:
    """When service was back at its level: the effect's instant where it never left it, None where it did not come back.

    `before_s` is the stretch that the level is from, `next_s` the next action's instant.
    """
    effect_s, width_s = effect.at_s, windows.width_s
    first = int(np.searchsorted(windows.begin, effect_s))
    if not len(windows.begin) or np.isnan(windows.speed[first:]).all():
        return None  # nothing was seen of what followed
    stretches = [
        *_bad_windows(windows, level, first),
        *_long_gaps(traffic, level, before_s, effect_s, width_s),
    ]
    back_s = effect_s
    for begin_s, end_s in _merged(stretches):
        is_next = next_s is not None and begin_s + width_s > next_s
        if effect.acts_at_once and begin_s > back_s + _SETTLED_S:
            break
        if begin_s <= effect_s + width_s or (end_s - begin_s >= width_s and not is_next):
            back_s = end_s
    return None if np.isinf(back_s) else back_s


def _bad_windows(windows: Windows, level: Level, first: int) -> Iterator[_Stretch]:
    """Of windows from one on: from the end of the first bad one to the begin of the last, and a little further."""
    bad, begin = level.bad(windows)[first:], windows.begin[first:]
    reach_s = level.shortfall * windows.width_s
    edges = np.flatnonzero(np.diff(bad.astype(np.int8), prepend=0, append=0))
    for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        end_s = float(begin[stop]) + reach_s if stop < len(bad) else np.inf
        yield _Stretch(min(float(begin[start]) + windows.width_s - reach_s, end_s), end_s)


def _long_gaps(
    traffic: Traffic, level: Level, before_s: tuple[float, float], effect_s: float, width_s: float
) -> Iterator[_Stretch]:
    """Times without a token that alone make a window bad, also where what was due came at once afterwards."""
    usual_s = traffic.worst_gap_s(*before_s) or 0.0
    begin, end = traffic.lull_begin, traffic.lull_end
    long = (end - begin > max(level.shortfall * width_s, usual_s / _NEAR)) & (end > effect_s)
    last_token_s = float(traffic.token_at[-1])
    for begin_s, end_s in zip(begin[long].tolist(), end[long].tolist(), strict=True):
        yield _Stretch(begin_s, np.inf if end_s > last_token_s else end_s)


def _merged(stretches: Sequence[_Stretch]) -> list[_Stretch]:
    merged: list[_Stretch] = []
    for stretch in sorted(stretches):
        if merged and stretch.begin_s <= merged[-1].end_s:
            merged[-1] = _Stretch(merged[-1].begin_s, max(merged[-1].end_s, stretch.end_s))
        else:
            merged.append(stretch)
    return merged


class Recovered(NamedTuple):
    """What followed an action, in seconds since the load's begin."""

    back_s: float | None
    before_s: tuple[float, float] | None
    """The stretch that the level is from. None: there was no time before to compare with."""


def recoveries(traffic: Traffic, effects: Sequence[Effect], level_ratio: float) -> tuple[float, list[Recovered]]:
    """The windows' width, and for each action, in the order in which they took effect, what followed it."""
    until_s = effects[0].at_s if effects else traffic.end_s
    width_s = window_width_s(traffic, until_s)
    windows = Windows.of(traffic, width_s, until_s)
    found: list[Recovered] = []
    level: Level | None = None
    before_s = (0.0, 0.0)
    first_s = float(windows.begin[0]) if len(windows.begin) else 0.0
    begin_s = first_s + width_s  # the first windows are a ramp
    for number, effect in enumerate(effects):
        next_s = effects[number + 1].at_s if number + 1 < len(effects) else None
        for since_s in (begin_s, first_s) if level is None else (begin_s,):  # better a ramp than nothing
            if (new := level_of(windows, since_s, effect.at_s, level_ratio)) is not None:
                level, before_s = new, (since_s, effect.at_s)
                break
        if level is None:
            found.append(Recovered(None, None))
            continue
        back_s = back_at_s(traffic, windows, level, before_s, effect, next_s)
        found.append(Recovered(back_s, before_s))
        begin_s = max(begin_s, traffic.end_s if back_s is None else back_s)
    return width_s, found


def goodput_lost_ratio(
    traffic: Traffic, before_s: tuple[float, float], effect_s: float, back_s: float | None
) -> float | None:
    """Share of the good tokens of the time before that did not come until service was back, or until the end."""
    until_s = traffic.end_s if back_s is None else back_s
    if until_s <= effect_s:
        return 0.0
    begin, end, at, after = traffic.tokens_until(np.array([*before_s, effect_s, until_s]), of_good=True)
    expected = (end - begin) / (before_s[1] - before_s[0]) * (until_s - effect_s)
    return None if expected <= 0 else float(max(0.0, 1 - (after - at) / expected))


def seen(traffic: Traffic, begin_s: float, end_s: float, *, compared: bool) -> Figures:
    """What users saw in a stretch: of the requests that were in flight in it."""
    touching = traffic.touching(begin_s, end_s)
    return Figures(
        requests=int(touching.sum()),
        failed=int((touching & traffic.failed).sum()),
        retried=int((touching & traffic.retried).sum()),
        tokens_changed=int((touching & traffic.changed).sum()) if compared else None,
        worst_gap_s=traffic.worst_gap_s(begin_s, end_s),
    )
