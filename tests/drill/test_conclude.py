"""From journals, deeds and events to a result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.drill.served import FACTS, serve, stalled
from tests.measure.making import START_NS, at
from windtunnel.clock import ClockPair
from windtunnel.drill.admin import Told
from windtunnel.drill.conclude import conclude
from windtunnel.drill.reading import read_scenario
from windtunnel.drill.run import ActionOutcome, Outcome
from windtunnel.loadgen.config import OutputConfig
from windtunnel.loadgen.journal import EndLine, Header, RequestLine, StartLine, encode_line
from windtunnel.measure.record import Record
from windtunnel.measure.run import RunEnd
from windtunnel.report.drill import Drill

SCENARIO = """
title: t
target: {{embedded: {{ranks: 2}}}}
load: {{}}
actions: [{actions}]
expect: {expect}
"""


def journal(folder: Path, name: str, records: Sequence[Record], reason: str = "done") -> str:
    """The path of a run's journal that has these requests."""
    path = folder / name
    header = Header(facts=FACTS, output=OutputConfig(), arguments={}, clock=ClockPair(START_NS, START_NS), machine={})
    ends = [record.done_ns for record in records if record.done_ns is not None]
    end = RunEnd(start_ns=START_NS, end_ns=max(ends), reason=reason)
    lines = [header, StartLine(START_NS), *map(RequestLine, records), EndLine(end)]
    path.write_bytes(b"".join(map(encode_line, lines)))
    return str(path)


def told(at_s: float, what: str, rank: int) -> Told:
    return Told(at(at_s * 1e3), "coordinator", what, {"rank": rank})


def result(
    folder: Path,
    *deeds: tuple[str, float | None],
    events: Sequence[Told] = (),
    records: Sequence[Record] | None = None,
    reference: Sequence[Record] | None = None,
    expect: str = "{}",
    reason: str = "done",
    since_s: float | None = None,
) -> Drill:
    """Of a drill with these actions, each with the second of its effect."""
    actions = ", ".join(f"{{after_s: 0, {action}}}" for action, _ in deeds)
    found = read_scenario(SCENARIO.format(actions=actions, expect=expect), "t.yaml")
    outcomes = [
        ActionOutcome(action, None, "why not") if at_s is None
        else ActionOutcome(action, at(at_s * 1e3), None, None if since_s is None else at(since_s * 1e3))
        for action, (_, at_s) in zip(found.scenario.actions, deeds, strict=True)
    ]  # fmt: skip
    sent = journal(folder, "sent.jsonl", serve() if records is None else records, reason)
    undisturbed = None if reference is None else journal(folder, "reference.jsonl", reference)
    return conclude(found, Outcome([], [sent], [undisturbed], outcomes, list(events), [0, 1], None))


def test_a_death_is_detected_by_the_first_event_that_the_rank_is_lost(tmp_path: Path) -> None:
    events = [told(1.0, "lost", 1), told(1.5, "joined", 1), told(4.2, "lost", 1), told(4.1, "lost", 0)]
    found = result(tmp_path, ("kill_rank: 1", 4.0), events=events)
    assert found.detect_s == pytest.approx(0.2)
    assert [event.at_s for event in found.events] == pytest.approx([1.0, 1.5, 4.1, 4.2])


def test_a_death_that_the_engine_never_tells_of_is_worse_than_any(tmp_path: Path) -> None:
    found = result(tmp_path, ("kill_rank: 1", 4.0), ("kill_rank: 0", 5.0), events=[told(4.2, "lost", 1)])
    assert [action.detect_s for action in found.actions] == [pytest.approx(0.2), None]
    assert found.detect_s is None


def test_a_rank_that_is_no_member_is_not_missed(tmp_path: Path) -> None:
    events = [told(4.1, "lost", 1), told(7.0, "joined", 1), told(8.0, "lost", 1)]
    found = result(tmp_path, ("kill_rank: 1", 4.0), ("kill_rank: 1", 5.0), events=events)
    assert [action.detectable for action in found.actions] == [True, False]
    assert found.detect_s == pytest.approx(0.1)


def test_a_rank_that_was_missed_before_we_saw_it_down_was_down_then(tmp_path: Path) -> None:
    fault = "fail_at: {rank: 1, transition: transferring+copied}"
    found = result(tmp_path, (fault, 4.0), events=[told(3.98, "lost", 1)], since_s=3.0)
    assert found.actions[0].at_s == pytest.approx(3.98) and found.detect_s == 0.0


def test_actions_are_told_in_the_order_in_which_they_took_effect_and_those_that_were_not_done_last(
    tmp_path: Path,
) -> None:
    found = result(tmp_path, ("rebalance: {}", None), ("kill_rank: 1", 6.0), ("kill_rank: 0", 4.0))
    assert [action.label for action in found.actions] == ["kill_rank 0", "kill_rank 1", "rebalance"]
    assert not found.passed and found.actions[2].problem == "why not"


def test_the_worst_action_counts_for_the_whole_and_what_never_came_is_the_worst(tmp_path: Path) -> None:
    def later(at_s: float) -> float:
        return stalled(6.0, 7.0)(stalled(4.0, 4.5)(at_s))

    found = result(tmp_path, ("kill_rank: 0", 4.0), ("kill_rank: 1", 6.0), records=serve(later))
    assert found.recover_s == found.actions[1].recover_s == pytest.approx(1.0, abs=0.1)
    assert found.actions[0].recover_s == pytest.approx(0.5, abs=0.1)
    never = result(tmp_path, ("kill_rank: 0", 4.0), ("kill_rank: 1", 6.0), records=serve(stalled(6.0, 30.0)))
    assert never.actions[0].recover_s == 0.0 and never.recover_s is None


def test_outputs_that_differ_from_the_reference_are_counted_and_failed_ones_are_not_compared(tmp_path: Path) -> None:
    records = serve(fails=lambda sent_s: sent_s < 0.5)
    changed = [msgspec.structs.replace(r, text="another") if r.index in (20, 21) else r for r in records]
    found = result(tmp_path, records=changed, reference=serve())
    assert (found.tokens_compared, found.tokens_changed, found.failed) == (190, 2, 10)
    assert result(tmp_path, records=changed).tokens_changed is None


def test_a_drill_passes_where_all_expectations_are_met_and_its_load_was_sent_to_its_end(tmp_path: Path) -> None:
    expect: dict[str, Any] = {"failed": 0, "requests": 200, "worst_gap_s": "< 100ms"}
    met = result(tmp_path, expect=str(expect))
    assert met.passed and [each.bound for each in met.expectations] == ["0", "200", "< 0.1"]
    missed = result(tmp_path, expect="{failed: 0, recover_s: < 5}")
    assert not missed.passed and [each.met for each in missed.expectations] == [True, False]
    assert not result(tmp_path, reason="worker lost").passed
