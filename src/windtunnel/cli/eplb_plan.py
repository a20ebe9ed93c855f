"""`windtunnel eplb plan`: a placement of experts for a recorded load."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.cli.console import tell_note
from windtunnel.cli.eplb_flags import (
    GROUPS,
    HOW,
    LIMIT_FLAGS,
    OUTPUT,
    POLICIES,
    WHERE,
    WHERE_FLAGS,
    budget_of,
    constraints_of,
    naming_flags,
    previous_of,
    prove_writable,
    read_file,
    shape_text,
    steps_text,
    survivors,
    topology_of,
    warm_up,
)
from windtunnel.cli.flags import OURS, Flag
from windtunnel.cli.json_output import print_json
from windtunnel.cli.packages import require_packages
from windtunnel.cli.parser import CommandParser
from windtunnel.cli.values import NAME, PATH, SWITCH
from windtunnel.errors import EXIT_OK
from windtunnel.units import NS_PER_S

if TYPE_CHECKING:
    from windtunnel.eplb.planning import Planned
    from windtunnel.eplb.topology import Topology
    from windtunnel.report.plan import Moved, PlanFacts

_SUMMARY = """\
Plan where experts should live, for a recorded load: from the placement that is in place, or from scratch.

  windtunnel eplb plan --load loads.npz --ranks 32 --nodes 4 --slots 288 --output placement.npz
  windtunnel eplb plan --load loads.npz --nodes 4 --previous placement.npz --max-moved-ratio 0.1 --output next.npz

loads.npz holds `load` [layers, experts] or [steps, layers, experts]: tokens of each logical expert.
Defaults stand in [brackets]."""

_FLAGS = (
    Flag("--load", WHERE, PATH, None, "The recorded load, an npz file. The plan is made for the mean of its steps.",
         OURS),
    *WHERE_FLAGS,
    Flag("--policy", HOW, NAME, "windtunnel", "Who plans.", OURS, choices=POLICIES),
    *LIMIT_FLAGS,
    Flag("--output", OUTPUT, PATH, None, "Save the placement there, an npz file.", OURS),
    Flag("--json", OUTPUT, SWITCH, False, "Print JSON.", OURS),
)  # fmt: skip

_MOVED_KEYS = ("copies", "moved_ratio", "moved_bytes", "most_rank_bytes", "estimated_s", "busiest_link", "restored")
"""In JSON, the fields of `report.plan.Moved`."""


def parser() -> CommandParser:
    """Of this command's flags."""
    return CommandParser("eplb plan", _SUMMARY, _FLAGS, GROUPS)


def run(arguments: Sequence[str]) -> int:
    """Plan, save and tell; the exit code. Raises errors of `windtunnel.errors`."""
    parsed = parser().parse(arguments)
    for note in parsed.notes:
        tell_note(note)
    with naming_flags(_FLAGS):
        _plan(parsed.values)
    return EXIT_OK


def _plan(values: argparse.Namespace) -> None:
    require_packages("windtunnel eplb", "eplb", "numba", "scipy")
    from windtunnel.eplb.files import read_load, write_placement
    from windtunnel.eplb.load import LoadWindow
    from windtunnel.eplb.planning import Planner, planned
    from windtunnel.eplb.policies import policy

    load = read_file("--load", values.load, read_load)
    previous = previous_of(values, load)
    topology = topology_of(values, previous, load)
    planner = Planner(policy(values.policy), constraints_of(values), budget_of(values), values.split)
    prove_writable("--output", values.output, values.load)
    window, committed = LoadWindow.of(load), survivors(previous, topology)
    warm_up(planner, window, topology, committed)
    found = planned(planner, window, topology, committed, values.expert_bytes)
    if values.output is not None:
        write_placement(Path(values.output), found.placement)
    if values.json:
        print_json(_document(found, values, topology, len(load)))
    else:
        from windtunnel.report.plan import plan_lines
        from windtunnel.report.text import write

        title = f"{shape_text(load, topology)}; a load of {steps_text(len(load))}"
        write(plan_lines(_facts(found, values, title)), sys.stdout)


def _document(found: Planned, values: argparse.Namespace, topology: Topology, steps: int) -> dict[str, Any]:
    moved = _moved(found, values.expert_bytes)
    return {
        "policy": values.policy,
        "split": values.split,
        **asdict(found.after),
        "before": None if found.before is None else asdict(found.before),
        **(dict.fromkeys(_MOVED_KEYS) if moved is None else dict(zip(_MOVED_KEYS, moved, strict=True))),
        "links": None if found.transfers is None else [link._asdict() for link in found.transfers.links],
        "stopped": dict(found.explanation.stopped),
        "plan_s": found.plan_ns / NS_PER_S,
        "steps": steps,
        "layers": found.placement.num_layers,
        "experts": found.placement.num_experts,
        "ranks": topology.num_ranks,
        "live_ranks": len(topology.live_ranks),
        "nodes": topology.num_nodes,
        "slots": topology.num_slots,
        "epoch": found.placement.epoch,
        "digest": found.placement.digest.hex(),
        "output": values.output,
    }


def _facts(found: Planned, values: argparse.Namespace, title: str) -> PlanFacts:
    from windtunnel.report.plan import PlanFacts

    def pair(name: str) -> tuple[Any, Any]:
        return found.before and getattr(found.before, name), getattr(found.after, name)

    mean, most = pair("lost_experts_mean"), pair("lost_experts_max")
    return PlanFacts(
        shape=title,
        policy=values.policy,
        balancedness=pair("balancedness"),
        balancedness_weighted=pair("balancedness_weighted"),
        split=values.split,
        node_crossing_ratio=None if found.after.node_crossing_ratio is None else pair("node_crossing_ratio"),
        min_replicas=pair("min_replicas"),
        lost_with_a_rank=(None if found.before is None else (mean[0], most[0]), (mean[1], most[1])),
        moved=_moved(found, values.expert_bytes),
        stopped=found.explanation.stopped,
        plan_s=found.plan_ns / NS_PER_S,
        saved=values.output,
    )


def _moved(found: Planned, expert_bytes: int | None) -> Moved | None:
    from windtunnel.eplb.plan import WEIGHT_SOURCE
    from windtunnel.report.plan import Moved

    if found.arrivals is None or found.moved_ratio is None or found.transfers is None:
        return None
    between_ranks = [link for link in found.transfers.links if link.source != WEIGHT_SOURCE]
    busiest = (between_ranks[0].source, between_ranks[0].target, between_ranks[0].num_bytes) if between_ranks else None
    copies, most = int(found.arrivals.sum()), int(found.arrivals.max())
    return Moved(
        copies=copies,
        ratio=found.moved_ratio,
        total_bytes=None if expert_bytes is None else copies * expert_bytes,
        most_rank_bytes=None if expert_bytes is None else most * expert_bytes,
        estimated_s=None if expert_bytes is None else found.transfers.estimated_s,
        busiest_link=None if expert_bytes is None else busiest,
        num_restored=found.num_restored,
    )
