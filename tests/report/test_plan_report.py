"""A plan on the console: figures before and after, what moves, and what is absent left as a dash."""

from __future__ import annotations

import pytest

from windtunnel.report.plan import Moved, PlanFacts, plan_lines
from windtunnel.report.text import plain

FACTS = PlanFacts(
    shape="2 layers × 4 experts over 2 ranks, 6 slots",
    policy="windtunnel",
    balancedness=(0.75, 0.98765),
    balancedness_weighted=(0.8, 0.99),
    split="even",
    node_crossing_ratio=(0.5, 0.25),
    min_replicas=(1, 2),
    lost_with_a_rank=((1.5, 2), (0.0, 0)),
    moved=Moved(3, 0.25, 3 << 30, 2 << 30, 0.125, (0, 1, 2 << 30), 0),
    stopped={"tolerance": 1, "budget": 1},
    plan_s=0.0125,
    saved="p.npz",
)


def test_a_plan_is_told_line_by_line() -> None:
    assert plain(plan_lines(FACTS)) == (
        "2 layers × 4 experts over 2 ranks, 6 slots\n"
        "\n"
        "                                     before    after\n"
        "balancedness, even split             0.7500   0.9877  ← in use\n"
        "balancedness, best split             0.8000   0.9900\n"
        "tokens off their group's node         50.0%    25.0%\n"
        "fewest replicas, on ranks apart           1        2\n"
        "experts that die with one rank         1.50     0.00\n"
        "\n"
        "moves       3 copies between ranks, 25.0% of all slots; 3.0 GiB, at most 2.0 GiB into a rank\n"
        "takes       about 125 ms at assumed speeds (--help); the busiest link, 0 → 1, carries 2.0 GiB\n"
        "ended by    tolerance (1 layers), budget (1 layers)\n"
        "policy      windtunnel, in 12.5 ms\n"
        "saved       p.npz\n"
    )


def test_what_there_was_not_is_a_dash() -> None:
    none_before = FACTS._replace(
        balancedness=(None, 0.9),
        balancedness_weighted=(None, 0.9),
        node_crossing_ratio=None,
        min_replicas=(None, 1),
        lost_with_a_rank=(None, (2.5, 4)),
        moved=None,
        saved=None,
    )
    text = plain(plan_lines(none_before))
    assert text.count("–") == 4
    assert "off their group's node" not in text
    assert "2.50  of a layer, on average; at most 4" in text
    assert "moves       all: nothing was in place" in text and "--output FILE.npz saves it" in text


@pytest.mark.parametrize(("after", "style"), [(0.9, "good"), (0.6, "warn"), (0.75, "")])
def test_what_got_better_and_what_got_worse_is_told_apart(after: float, style: str) -> None:
    lines = plan_lines(FACTS._replace(balancedness=(0.75, after)))
    (line,) = [line for line in lines if line.text.startswith("balancedness, even")]
    assert line.style == style


def test_experts_that_have_to_be_restored_are_a_warning() -> None:
    lines = plan_lines(FACTS._replace(moved=Moved(3, 0.25, None, None, None, None, 1200)))
    (line,) = [line for line in lines if line.text.startswith("restored")]
    assert "1,200 experts that no live rank holds" in line.text and line.style == "warn"


def test_a_file_s_name_can_t_steer_the_terminal() -> None:
    assert "\x1b" not in plain(plan_lines(FACTS._replace(saved="a\x1b[31m.npz")))
