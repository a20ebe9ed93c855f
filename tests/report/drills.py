"""Results of drills, made by hand."""

from __future__ import annotations

from typing import Any

from windtunnel.report.drill import ActionReport, Drill, Event, Expectation, Phase, Series


def phase(begin_s: float, end_s: float, tokens_per_s: float = 800.0, failed: int = 0) -> Phase:
    return Phase(
        begin_s=begin_s,
        end_s=end_s,
        requests=40,
        failed=failed,
        tokens_per_s=tokens_per_s,
        median_ttft_ms=12.3,
        p99_ttft_ms=45.6,
        median_itl_ms=5.0,
        p99_itl_ms=None,
        worst_gap_s=0.25,
    )


def action(label: str, at_s: float | None, recover_s: float | None = 0.0, **more: Any) -> ActionReport:
    values: dict[str, Any] = {
        "label": label,
        "kind": label.split()[0],
        "planned": "after 3 s",
        "at_s": at_s,
        "recover_s": recover_s,
        "goodput_lost_ratio": 0.25,
        "worst_gap_s": 0.31,
        "before": phase(0.5, at_s or 3.0),
        "during": None if at_s is None or not recover_s else phase(at_s, at_s + recover_s, 100.0),
    }
    return ActionReport(**(values | more))


def drill(**more: Any) -> Drill:
    """A rank hangs, another is killed."""
    values: dict[str, Any] = {
        "title": "A rank <hangs> & dies",
        "about": "To see \x1b[31mwhat\x1b[0m users see.",
        "scenario": "hang",
        "target": "engine:ranks=2",
        "date": "2026-12-01 10:00:00",
        "version": "1.2.3",
        "duration_s": 8.0,
        "level_ratio": 0.7,
        "window_s": 0.5,
        "requests": 320,
        "failed": 2,
        "tokens_changed": 0,
        "tokens_compared": 320,
        "detect_s": 0.93,
        "recover_s": 1.25,
        "goodput_lost_ratio": 0.25,
        "worst_gap_s": 0.97,
        "passed": False,
        "interrupted": None,
        "expectations": [Expectation("failed", "0", 2, met=False), Expectation("recover_s", "< 3", 1.25, met=True)],
        "actions": [
            action("hang_rank 1", 3.0, 1.25, detect_s=0.93, failed=2),
            action("load num_prompts=40", 3.1),
            action("kill_rank 0", 7.9, None),
            action("rebalance", None, problem="the load was over before"),
        ],
        "ranks": [0, 1],
        "events": [
            Event(3.0, "drill", "hang_rank 1", {}),
            Event(3.93, "coordinator", "lost", {"rank": 1, "reason": "silent"}),
            Event(3.94, "coordinator", "entered", {"transition": "idle+start"}),
            *(Event(3.95 + n / 100, "coordinator", "published", {"epoch": 2 + n}) for n in range(3)),
            Event(4.2, "coordinator", "joined", {"rank": 1}),
            Event(5.0, "coordinator", "rebalanced", {"result": "nothing to do"}),
        ],
        "series": Series(0.1, [800.0] * 30 + [0.0] * 10 + [900.0] * 40, [4.0] * 80, [0] * 35 + [2] + [0] * 44),
        "runs": [],
    }
    return Drill(**(values | more))
