"""A planned placement on the console: what it balances, what it moves, and what it survives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from windtunnel.report.text import Line, Style, printable
from windtunnel.units import format_bytes, format_duration

_LABEL = 34
_COLUMN = 9


class Moved(NamedTuple):
    """What a plan moves between ranks."""

    copies: int
    """Experts new to a rank, over all layers."""
    ratio: float
    """Copies ÷ slots of live ranks."""
    total_bytes: int | None
    """None: nobody said how large an expert is."""
    most_rank_bytes: int | None
    """Into the rank that receives the most."""
    estimated_s: float | None
    """That the bytes take, at the speeds that `eplb.plan.LinkSpeeds` assumes."""
    busiest_link: tuple[int, int, int] | None
    """The rank that is read from most by one other, that one, and the bytes; None: unknown, or nothing moves."""
    num_restored: int
    """Experts that no live rank holds, over all layers."""


class PlanFacts(NamedTuple):
    """What is told of a plan. A pair is before and after; None before: there was no placement."""

    shape: str
    """`58 layers × 256 experts over 32 ranks on 4 nodes, 288 slots`."""
    policy: str
    balancedness: tuple[float | None, float]
    balancedness_weighted: tuple[float | None, float]
    """With the best split for this load."""
    split: str
    """Which of the two splits the placement has: `even`, or `weighted`, the best one."""
    node_crossing_ratio: tuple[float | None, float] | None
    """None: the model has no groups, or they are kept together."""
    min_replicas: tuple[int | None, int]
    lost_with_a_rank: tuple[tuple[float, int] | None, tuple[float, int]]
    """Experts of a layer that die with one rank: mean, and the most."""
    moved: Moved | None
    """None: nothing was in place."""
    stopped: Mapping[str, int]
    """Why planning ended, and in how many layers."""
    plan_s: float
    saved: str | None
    """The file."""


def plan_lines(facts: PlanFacts) -> list[Line]:
    """A heading, a table of before and after, and what the plan costs."""
    return [Line(facts.shape, "title", rest="  "), Line(""), *_table(facts), Line(""), *_costs(facts)]


def _table(facts: PlanFacts) -> Iterator[Line]:
    yield Line(f"{'':<{_LABEL}}{'before':>{_COLUMN}}{'after':>{_COLUMN}}", "quote")
    used = {"even": "", "weighted": ""} | {facts.split: "  ← in use"}
    yield _row("balancedness, even split", facts.balancedness, ".4f", used["even"], better="more")
    yield _row("balancedness, best split", facts.balancedness_weighted, ".4f", used["weighted"], better="more")
    if facts.node_crossing_ratio is not None:
        yield _row("tokens off their group's node", facts.node_crossing_ratio, ".1%")
    yield _row("fewest replicas, on ranks apart", facts.min_replicas, "d", better="more")
    before, after = facts.lost_with_a_rank
    mean = (None if before is None else before[0], after[0])
    most = f"  of a layer, on average; at most {after[1]}" if after[1] else ""
    yield _row("experts that die with one rank", mean, ".2f", most, better="less")


def _row(
    label: str,
    values: tuple[float | None, float],
    form: str,
    after_it: str = "",
    *,
    better: str | None = None,
) -> Line:
    before, after = values
    shown = "–" if before is None else format(before, form)
    text = f"{label:<{_LABEL}}{shown:>{_COLUMN}}{format(after, form):>{_COLUMN}}{after_it}"
    return Line(text, _style(before, after, better))


def _style(before: float | None, after: float, better: str | None) -> Style:
    if before is None or better is None or before == after:
        return ""
    return "good" if (after > before) == (better == "more") else "warn"


def _costs(facts: PlanFacts) -> Iterator[Line]:
    yield _fact("moves", "all: nothing was in place (--previous)" if facts.moved is None else _moves(facts.moved))
    if facts.moved is not None and facts.moved.busiest_link:
        yield _fact("takes", _transfer(facts.moved))
    if facts.moved is not None and facts.moved.num_restored:
        text = f"{facts.moved.num_restored:,} experts that no live rank holds come from the weight source"
        yield _fact("restored", text, "warn")
    layers = sum(facts.stopped.values())
    reasons = [reason if count == layers else f"{reason} ({count} layers)" for reason, count in facts.stopped.items()]
    yield _fact("ended by", ", ".join(reasons) or "–")
    yield _fact("policy", f"{facts.policy}, in {format_duration(facts.plan_s)}")
    if facts.saved is None:
        yield _fact("saved", "nowhere: --output FILE.npz saves it", "hint")
    else:
        yield _fact("saved", facts.saved)


def _moves(moved: Moved) -> str:
    text = f"{moved.copies:,} copies between ranks, {moved.ratio:.1%} of all slots"
    if moved.total_bytes is not None:
        text += f"; {format_bytes(moved.total_bytes)}, at most {format_bytes(moved.most_rank_bytes or 0)} into a rank"
    return text


def _transfer(moved: Moved) -> str:
    source, target, num_bytes = moved.busiest_link or (0, 0, 0)
    estimate = format_duration(moved.estimated_s or 0)
    busiest = f"the busiest link, {source} → {target}, carries {format_bytes(num_bytes)}"
    return f"about {estimate} at assumed speeds (--help); {busiest}"


def _fact(label: str, text: str, style: Style = "") -> Line:
    return Line(f"{label:<12}{printable(text)}", style, rest=" " * 12)
