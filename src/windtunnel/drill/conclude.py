"""From what was done and the journals to the result of a drill."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import windtunnel
from windtunnel.clock import local_time
from windtunnel.drill.admin import Told
from windtunnel.drill.bounds import parse_bound
from windtunnel.drill.reading import ScenarioFile
from windtunnel.drill.recovery import Effect, Recovered, goodput_lost_ratio, recoveries, seen
from windtunnel.drill.run import ActionOutcome, Outcome
from windtunnel.drill.scenario import Action
from windtunnel.drill.traffic import Traffic
from windtunnel.loadgen.journal import Journal, read_journal
from windtunnel.measure.counting import count_tokens
from windtunnel.measure.record import Record
from windtunnel.measure.run import RunEnd
from windtunnel.report.drill import ActionReport, Drill, Event, Expectation
from windtunnel.units import NS_PER_S

_NOTICED, _JOINED = "lost", "joined"
"""The coordinator's events that a rank is not there any more, and is a member again."""


class _Sent(NamedTuple):
    """All requests of a drill."""

    records: list[Record]
    changed: list[bool]
    num_compared: int


def conclude(found: ScenarioFile, outcome: Outcome) -> Drill:
    """The result; raises FileError, JournalError."""
    journals = [_read(path) for path in outcome.journals]
    sent = _sent(journals, outcome.references)
    facts = journals[0].header.facts
    begun_ns = journals[0].run_end.start_ns
    end_ns = max(journal.run_end.end_ns for journal in journals)
    end = RunEnd(start_ns=begun_ns, end_ns=end_ns)
    traffic = Traffic.of(sent.records, sent.changed, facts, end, facts.goodput_ms)
    width_s, reports = _actions(found, outcome, traffic, begun_ns, compared=sent.num_compared > 0)
    whole = seen(traffic, 0.0, max(traffic.end_s, end.duration_s), compared=sent.num_compared > 0)
    drill = Drill(
        title=found.scenario.title,
        about=found.scenario.about,
        scenario=found.name,
        target=found.scenario.target.embedded_text or facts.target,
        date=time.strftime("%Y-%m-%d %H:%M:%S", local_time()),
        version=windtunnel.__version__,
        duration_s=traffic.end_s,
        level_ratio=found.scenario.level_ratio,
        window_s=width_s,
        requests=whole.requests,
        failed=whole.failed,
        retried=whole.retried,
        tokens_changed=whole.tokens_changed,
        tokens_compared=sent.num_compared,
        detect_s=_worst([r.detect_s for r in reports if r.detectable]),
        recover_s=_worst([r.recover_s for r in reports]),
        goodput_lost_ratio=_worst([r.goodput_lost_ratio for r in reports]),
        worst_gap_s=whole.worst_gap_s,
        passed=False,
        interrupted=outcome.interrupted,
        expectations=[],
        actions=reports,
        ranks=outcome.ranks,
        events=_events(outcome.events, begun_ns),
        series=traffic.series(),
        runs=[path for path in (*outcome.references, *outcome.journals) if path is not None],
    )
    drill.expectations = _expectations(found, drill)
    done = all(report.problem is None for report in reports)
    ended = all(journal.run_end.reason == "done" for journal in journals)
    drill.passed = done and ended and all(expectation.met for expectation in drill.expectations)
    return drill


def _read(path: str) -> Journal:
    journal = read_journal(path)
    count_tokens(journal.records, None)
    return journal


def _sent(journals: Sequence[Journal], references: Sequence[str | None]) -> _Sent:
    sent = _Sent([], [], 0)
    for journal, path in zip(journals, references, strict=True):
        undisturbed = {} if path is None else {record.index: record for record in read_journal(path).records}
        for record in journal.records:
            other = undisturbed.get(record.index)
            compared = other is not None and other.failure is None and record.failure is None
            sent.records.append(record)
            sent.changed.append(compared and other is not None and other.text != record.text)
            sent = sent._replace(num_compared=sent.num_compared + compared)
    return sent


def _actions(
    found: ScenarioFile, outcome: Outcome, traffic: Traffic, begun_ns: int, *, compared: bool
) -> tuple[float, list[ActionReport]]:
    """In the order in which they took effect; those that did not come last."""
    exact = [_at_latest_when_lost(action, outcome.events) for action in outcome.actions]
    done = sorted((a for a in exact if a.at_ns is not None), key=lambda a: a.at_ns or 0)
    effects_s = [((a.at_ns or 0) - begun_ns) / NS_PER_S for a in done]
    effects = [Effect(at_s, _acts_at_once(a.action)) for a, at_s in zip(done, effects_s, strict=True)]
    width_s, recovered = recoveries(traffic, effects, found.scenario.level_ratio)
    reports = [_not_done(action) for action in outcome.actions if action.at_ns is None]
    followed = zip(done, effects_s, [*effects_s, traffic.end_s][1:], recovered, strict=True)
    return width_s, [
        *(
            _done(a, at_s, until_s, back, traffic, outcome.events, compared=compared)
            for a, at_s, until_s, back in followed
        ),
        *reports,
    ]


def _done(
    outcome: ActionOutcome,
    at_s: float,
    until_s: float,
    recovered: Recovered,
    traffic: Traffic,
    events: Sequence[Told],
    *,
    compared: bool,
) -> ActionReport:
    figures = seen(traffic, at_s, until_s, compared=compared)
    back_s = recovered.back_s
    report = _report(outcome.action)
    report.at_s = at_s
    report.requests, report.failed, report.retried = figures.requests, figures.failed, figures.retried
    report.tokens_changed, report.worst_gap_s = figures.tokens_changed, figures.worst_gap_s
    report.detectable, report.detect_s = _detected(outcome, events)
    report.recover_s = None if back_s is None else back_s - at_s
    report.comparable = recovered.before_s is not None
    if recovered.before_s is not None:
        report.goodput_lost_ratio = goodput_lost_ratio(traffic, recovered.before_s, at_s, back_s)
        report.before = traffic.phase(*recovered.before_s)
        report.during = traffic.phase(at_s, traffic.end_s if back_s is None else back_s)
    report.after = None if back_s is None else traffic.phase(back_s, max(until_s, back_s))
    return report


def _not_done(outcome: ActionOutcome) -> ActionReport:
    report = _report(outcome.action)
    report.problem = outcome.problem
    return report


def _report(action: Action) -> ActionReport:
    planned = f"when {action.when}" if action.when is not None else f"after {action.after_s:g} s"
    return ActionReport(label=action.label, kind=action.kind, planned=planned, at_s=None)


def _acts_at_once(action: Action) -> bool:
    return action.kind not in ("exec", "http", "load", "rebalance")


def _rank_lost_by(action: Action) -> int | None:
    """The rank that an action takes from the engine."""
    if action.fail_at is not None:
        return None if action.fail_at.how == "slow" else action.fail_at.rank
    return action.hang_rank if action.kill_rank is None else action.kill_rank


def _is_member(rank: int, at_ns: int, events: Sequence[Told]) -> bool:
    """Whether the engine counted on the rank then: one that was lost and has not joined again is not missed."""
    known = [e for e in events if e.what in (_NOTICED, _JOINED) and e.facts.get("rank") == rank and e.at_ns < at_ns]
    return not known or max(known, key=lambda event: event.at_ns).what == _JOINED


def _at_latest_when_lost(outcome: ActionOutcome, events: Sequence[Told]) -> ActionOutcome:
    """A rank that was to fail may have been missed by the target before we saw it down."""
    rank = _rank_lost_by(outcome.action)
    if rank is None or outcome.since_ns is None or outcome.at_ns is None:
        return outcome
    lost_ns = _lost_ns(rank, outcome.since_ns, events)
    return outcome if lost_ns is None else outcome._replace(at_ns=min(outcome.at_ns, lost_ns))


def _detected(outcome: ActionOutcome, events: Sequence[Told]) -> tuple[bool, float | None]:
    """Whether the engine could notice the deed, and how long it took to."""
    rank = _rank_lost_by(outcome.action)
    if rank is None or outcome.at_ns is None or not _is_member(rank, outcome.at_ns, events):
        return False, None
    lost_ns = _lost_ns(rank, outcome.at_ns, events)
    return True, None if lost_ns is None else (lost_ns - outcome.at_ns) / NS_PER_S


def _lost_ns(rank: int, since_ns: int, events: Sequence[Told]) -> int | None:
    """When the engine told that a rank is lost."""
    told = (e.at_ns for e in events if e.what == _NOTICED and e.facts.get("rank") == rank and e.at_ns >= since_ns)
    return min(told, default=None)


def _worst(values: Sequence[float | None]) -> float | None:
    """The largest; None where there is none, or one is None: what never came is worse than what came late."""
    known = [value for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else None


def _events(events: Sequence[Told], begun_ns: int) -> list[Event]:
    ordered = sorted(events, key=lambda event: event.at_ns)
    return [Event((event.at_ns - begun_ns) / NS_PER_S, event.who, event.what, event.facts) for event in ordered]


def _expectations(found: ScenarioFile, drill: Drill) -> list[Expectation]:
    expectations = []
    for key, written in found.scenario.expect.items():
        bound = parse_bound(written, is_duration=key.endswith("_s"))
        figure: float | None = getattr(drill, key)
        expectations.append(Expectation(key, str(bound), figure, bound.holds(figure)))
    return expectations
