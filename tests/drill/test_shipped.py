"""Every scenario that comes with windtunnel, run as a user runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.command import run
from tests.drill.drilling import drill, problems, result
from windtunnel.drill.reading import DEFAULT, open_scenario, shipped_names
from windtunnel.eplb.transaction.table import RANK

ENGINE = """
    title: A rank dies at a transition
    target: {embedded: {ranks: 4, restart: true, rebalance_threshold: 0}}
    load: {num_prompts: 280, request_rate: 40, random_input_len: 24, random_output_len: 24, temperature: 0}
    expect: {failed: 0, tokens_changed: 0}
"""
TRIES = 3
TIMES = {"detect_s", "recover_s", "worst_gap_s"}
"""What a machine that does something else meanwhile may miss, once or twice."""
ON_THE_WAY = [t.name for t in RANK if t.trigger not in ("prepare_without_copies", "disagree", "copy_failed", "abort")]
"""The transitions that a rank makes on its way through a transaction that moves experts to it."""


@pytest.mark.parametrize("name", [name for name in shipped_names() if name != DEFAULT])
def test_every_shipped_scenario_passes(name: str, tmp_path: Path) -> None:
    for _ in range(TRIES):
        done = run(tmp_path, "drill", name, "--json")
        found = result(done)
        missed = {expectation["key"] for expectation in found["expectations"] if not expectation["met"]}
        assert not problems(found) and not missed - TIMES, found["expectations"]
        if not missed:
            break
    assert done.returncode == 0 and found["passed"], found["expectations"]


@pytest.mark.long
@pytest.mark.parametrize("how", ["kill", "hang"])
@pytest.mark.parametrize("transition", ON_THE_WAY)
def test_a_rank_that_dies_or_hangs_at_a_transition_loses_no_request_and_changes_no_token(
    transition: str, how: str, tmp_path: Path
) -> None:
    fault = f"{{rank: 1, transition: {transition}, how: {how}}}"
    actions = f"actions:\n- after_s: 1.5\n  fail_at: {fault}\n- after_s: 1.7\n  rebalance:\n"
    found = result(drill(tmp_path, actions, "--json", head=ENGINE))
    assert not problems(found)
    assert (found["failed"], found["tokens_changed"], found["tokens_compared"]) == (0, 0, 280)
    assert 0 <= found["detect_s"] < 2


def test_a_bare_drill_kills_a_rank_in_mid_transfer_and_prints_the_timeline(tmp_path: Path) -> None:
    for _ in range(TRIES):
        done = run(tmp_path, "drill")
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith(open_scenario(DEFAULT).scenario.title)
    events = done.stdout.partition("\naction ")[0].splitlines()
    order = [
        next(n for n, line in enumerate(events) if word in line) for word in ("armed", "lost", "evicted", "joined")
    ]
    assert order == sorted(order)
    assert "✓ failed 0" in done.stdout and "✓ tokens_changed 0" in done.stdout
