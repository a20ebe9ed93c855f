"""`windtunnel eplb replay`: a recorded load through policies, as a table, as JSON, and as a page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_lines import windtunnel

from windtunnel.cli.eplb_flags import COMPILING
from windtunnel.cli.eplb_replay import run
from windtunnel.errors import WindtunnelError

G = "trace.npz --ranks 4 --slots 24"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    chance = np.random.default_rng(2)
    drift = np.exp(np.cumsum(chance.normal(0, 0.05, (40, 3, 16)), axis=0)) / np.arange(1, 17)
    np.savez(tmp_path / "trace.npz", load=chance.poisson(2000 * drift))
    return tmp_path


def replayed(capsys: pytest.CaptureFixture[str], line: str) -> dict[str, Any]:
    assert run(["--json", *line.split()]) == 0
    out = capsys.readouterr()
    assert out.err in ("", f"windtunnel: note: {COMPILING}\n")
    document: dict[str, Any] = json.loads(out.out)
    return document


def test_policies_are_put_side_by_side_with_what_stays_as_it_is(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = replayed(capsys, G)
    assert (found["every"], found["window_steps"], found["first_step"]) == (4, 4, 4)
    by_name = {series["policy"]: series for series in found["policies"]}
    assert list(by_name) == ["none", "windtunnel", "deepseek-flat"]
    stays, ours, flat = by_name.values()
    assert (stays["plans"], stays["moved_ratio"], stays["plan_s"], stays["stopped"]) == ([], None, None, {})
    assert ours["balancedness"] > stays["balancedness"] and flat["balancedness"] > stays["balancedness"]
    assert ours["moved_ratio"] < flat["moved_ratio"]
    for series in (ours, flat):
        assert [plan["step"] for plan in series["plans"]] == list(range(4, 40, 4))
        assert sum(series["stopped"].values()) == 9 * 3  # plans, layers
        assert series["moved_ratio"] == pytest.approx(np.mean([plan["moved_ratio"] for plan in series["plans"]]))
    for series in by_name.values():
        assert len(series["balancedness_of_steps"]) == 36
        assert series["balancedness"] == pytest.approx(np.mean(series["balancedness_of_steps"]))
        assert series["balancedness_worst"] == min(series["balancedness_of_steps"])


def test_windows_policies_and_sizes_are_as_the_flags_say(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"{G} --nodes 2 --groups 4 --policies deepseek deepseek-flat deepseek --every 15 --window-steps 5"
    found = replayed(capsys, f"{line} --expert-bytes 1MiB")
    assert [series["policy"] for series in found["policies"]] == ["none", "deepseek", "deepseek-flat"]
    assert (found["every"], found["window_steps"]) == (15, 5)
    flat = found["policies"][2]
    assert [plan["step"] for plan in flat["plans"]] == [15, 30]
    assert flat["moved_bytes"] == sum(plan["copies"] for plan in flat["plans"]) << 20


def test_all_begin_with_the_placement_that_is_in_place(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slots = np.tile(np.arange(24)[::-1] % 16, (3, 1)).reshape(3, 4, 6)
    np.savez(folder / "p.npz", placement=slots)
    found = replayed(capsys, "trace.npz --previous p.npz --policies deepseek-flat")
    with np.load("trace.npz") as archive:
        load = archive["load"][4:].astype(float)
    share = np.where(np.arange(16) < 8, 0.5, 1)
    loads = (load * share)[:, np.arange(3)[:, None, None], slots].sum(axis=3)
    expected = (loads.mean(axis=2) / loads.max(axis=2)).mean(axis=1)
    assert found["policies"][0]["balancedness_of_steps"] == pytest.approx(expected.tolist())


def test_a_policy_that_can_t_go_on_is_told_and_the_others_go_on(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "trace.npz --slots-per-rank 7,6,6,5"
    found = replayed(capsys, line)
    _, ours, flat = found["policies"]
    assert "slots_per_rank: ranks have 5 and 6 and 7 slots" in flat["error"] and flat["stopped"] == {}
    assert ours["error"] is None and len(ours["plans"]) == 9
    assert run(line.split()) == 0
    assert "deepseek-flat gave up: slots_per_rank" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("limits", "advice"),
    [
        ("--max-moved-ratio 0", "a higher --max-moved-ratio, --full-replan or a lower --every."),
        ("--max-moved-ratio 0 --full-replan --every 1", "a higher --max-moved-ratio."),
        ("--tolerance 1 --full-replan never", "a lower --tolerance, --full-replan or a lower --every."),
    ],
)
def test_where_another_policy_balances_better_the_flags_are_named_that_help_ours(
    folder: Path, capsys: pytest.CaptureFixture[str], limits: str, advice: str
) -> None:
    assert run([*G.split(), *limits.split()]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "deepseek-flat balances better here. For more balance from windtunnel, with more moves: " + advice in said
    assert run([*G.split(), *limits.split(), "--policies", "windtunnel"]) == 0
    assert "balances better" not in capsys.readouterr().out


def test_a_table_is_printed_and_a_page_saved(folder: Path) -> None:
    done = windtunnel("eplb", "replay", *G.split(), "--policies", "deepseek-flat", "--report", "r.html", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert lines[0] == "40 steps of 3 layers × 16 experts over 4 ranks, 24 slots"
    assert "A plan after each 4 steps on the latest 4 steps" in lines[1]
    assert [line.split()[0] for line in lines if line][-4:] == ["none", "deepseek-flat", "deepseek-flat", "plots:"]
    assert lines[-3] == "deepseek-flat ended by replanned"
    assert max(map(len, lines)) <= 100
    page = (folder / "r.html").read_text()
    assert page.startswith("<!doctype html>") and lines[0] in page
    assert not re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=", page)


WRONG_LINES = [
    ("", "TRACE: is missing"),
    ("nowhere.npz --ranks 4 --slots 24", "TRACE: can't read nowhere.npz"),
    ("one.npz --ranks 4 --slots 24", "the trace has 1 step"),
    (f"{G} --every 40", "--every: a plan every 40 steps, and 40 are recorded"),
    (f"{G} --policies foo", "--policies: 'foo' is unknown"),
    (f"{G} --policies windtunnel --report one.npz/r.html", "--report: can't write one.npz/r.html"),
    (f"{G} --report trace.npz", "--report: trace.npz is the recorded load"),
    ("trace.npz --ranks 4 --slots 12", "16 slots are needed in each layer"),
    ("trace.npz --slots-per-rank 7,6,6,5 --policies deepseek-flat", "--slots-per-rank: ranks have 5 and 6 and 7 slots"),
    (f"{G} one.npz", "belongs to no flag"),
]


@pytest.mark.parametrize(("line", "words"), WRONG_LINES)
def test_what_makes_no_sense_is_one_error_that_names_it(
    folder: Path, capsys: pytest.CaptureFixture[str], line: str, words: str
) -> None:
    np.savez(folder / "one.npz", load=np.ones((3, 16)))
    with pytest.raises(WindtunnelError) as refused:
        run([*line.split(), "--json"])
    assert words in refused.value.message
    assert refused.value.advice and refused.value.exit_code == 2
    assert capsys.readouterr().out == ""
