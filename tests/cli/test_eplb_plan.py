"""`windtunnel eplb plan`: its files, its JSON, its text, and one clear error for whatever makes no sense."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_lines import windtunnel
from numpy.typing import NDArray

from windtunnel.cli import eplb_flags
from windtunnel.cli.eplb_plan import parser, run
from windtunnel.cli.packages import require_packages
from windtunnel.eplb.plan import LinkSpeeds
from windtunnel.eplb.topology import Topology
from windtunnel.errors import WindtunnelError

LAYERS, EXPERTS, RANKS = 3, 16, 4


def load(steps: int = 5) -> NDArray[np.int64]:
    expected = 2000 / np.arange(1, EXPERTS + 1)
    return np.random.default_rng(1).poisson(expected, (steps, LAYERS, EXPERTS))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "loads.npz", load=load())
    return tmp_path


def planned(capsys: pytest.CaptureFixture[str], line: str) -> dict[str, Any]:
    assert run(["--json", *line.split()]) == 0
    out = capsys.readouterr()
    assert out.err in ("", f"windtunnel: note: {eplb_flags.COMPILING}\n")
    document: dict[str, Any] = json.loads(out.out)
    return document


def balancedness(path: Path) -> float:
    """From the files alone, tokens split by the shares that stand there."""
    with np.load(path) as archive:
        slots, share = archive["placement"], archive["share"]
    layer = np.arange(LAYERS)[:, None, None]
    loads = np.where(slots >= 0, load().mean(axis=0)[layer, np.maximum(slots, 0)] * share, 0).sum(axis=2)
    return float((loads.mean(axis=1) / loads.max(axis=1)).mean())


def test_a_plan_is_saved_and_told_in_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, "--load loads.npz --ranks 4 --nodes 2 --slots 24 --output new/p.npz")
    with np.load(folder / "new" / "p.npz") as archive:
        assert archive["placement"].shape == archive["share"].shape == (LAYERS, RANKS, 6)
        assert archive["slots_per_rank"].tolist() == [6] * RANKS
        assert all(set(range(EXPERTS)) <= set(layer.ravel().tolist()) for layer in archive["placement"])
    assert found["balancedness"] == pytest.approx(balancedness(folder / "new" / "p.npz"))
    assert found["balancedness"] > 0.9
    assert found["balancedness_weighted"] >= found["balancedness"] - 1e-6
    assert (found["moved_ratio"], found["copies"], found["before"]) == (None, None, None)
    assert 0 < found["plan_s"] < 60
    assert (found["layers"], found["experts"], found["ranks"], found["slots"], found["steps"]) == (3, 16, 4, 24, 5)
    assert sum(found["stopped"].values()) == LAYERS
    assert os.listdir(folder / "new") == ["p.npz"]


def test_a_plan_goes_on_from_the_placement_before_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    in_order = np.tile(np.arange(24) % EXPERTS, (LAYERS, 1)).reshape(LAYERS, RANKS, 6)
    np.savez(folder / "old.npz", placement=in_order)
    line = "--load loads.npz --previous old.npz --expert-bytes 2MiB --max-moved-ratio 0.25 --output new.npz"
    found = planned(capsys, line)
    with np.load(folder / "new.npz") as archive:
        after = archive["placement"]
    new = sum(len(set(after[i, r].tolist()) - {-1, *in_order[i, r].tolist()}) for i in range(LAYERS) for r in range(4))
    assert (found["copies"], found["moved_ratio"]) == (new, pytest.approx(new / 72))
    assert 0 < found["moved_ratio"] <= 0.25
    assert found["moved_bytes"] == new * 2**21 and found["most_rank_bytes"] <= found["moved_bytes"]
    assert sum(link["num_bytes"] for link in found["links"]) == found["moved_bytes"]
    assert found["busiest_link"][2] == found["links"][0]["num_bytes"] and found["estimated_s"] > 0
    assert found["balancedness"] > found["before"]["balancedness"]
    assert found["epoch"] == 1


def test_previous_and_output_may_be_the_same_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = planned(capsys, "--load loads.npz --ranks 4 --slots 24 --policy deepseek-flat --output p.npz")
    (folder / "link.npz").symlink_to("p.npz")
    second = planned(capsys, "--load loads.npz --previous link.npz --policy deepseek-flat --output link.npz")
    assert (first["epoch"], second["epoch"], second["moved_ratio"]) == (0, 1, 0)
    assert (folder / "link.npz").is_symlink()
    with np.load(folder / "p.npz") as archive:
        assert archive["epoch"] == 1


def test_ranks_may_differ_in_slots_and_dead_ranks_get_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planned(capsys, "--load loads.npz --slots-per-rank 9,9,8,7 --output p.npz")
    found = planned(capsys, "--load loads.npz --previous p.npz --dead-ranks 2 --output q.npz")
    with np.load(folder / "p.npz") as before, np.load(folder / "q.npz") as after:
        assert after["slots_per_rank"].tolist() == [9, 9, 8, 7]
        assert (after["placement"][:, 2] == -1).all() and not after["share"][:, 2].any()
        lost = sum(
            set(range(EXPERTS)) - set(np.delete(layer, 2, axis=0).ravel().tolist()) != set()
            for layer in before["placement"]
        )
        assert all(set(range(EXPERTS)) <= set(layer.ravel().tolist()) for layer in after["placement"])
    assert (found["ranks"], found["live_ranks"], found["slots"]) == (4, 3, 25)
    assert (found["restored"] > 0) == (lost > 0)


def test_a_weighted_split_is_saved_with_its_shares(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "--load loads.npz --ranks 4 --slots 24 --policy deepseek-flat --output"
    even, weighted = planned(capsys, f"{line} e.npz"), planned(capsys, f"{line} w.npz --split weighted")
    assert even["balancedness"] == weighted["balancedness"] == pytest.approx(balancedness(folder / "e.npz"))
    assert weighted["balancedness_weighted"] == pytest.approx(balancedness(folder / "w.npz"), abs=1e-5)


def test_limits_are_kept(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "--load loads.npz --ranks 4 --nodes 2 --slots 40 --min-replicas 2 --spread node --pinned 3:0,1 5:2"
    found = planned(capsys, f"{line} --output p.npz")
    with np.load(folder / "p.npz") as archive:
        slots = archive["placement"]
    assert found["min_replicas"] >= 2 and found["lost_experts_max"] == 0
    for layer in slots:
        nodes = [set(layer[:2].ravel().tolist()), set(layer[2:].ravel().tolist())]
        assert set(range(EXPERTS)) <= nodes[0] & nodes[1]
        assert all(3 in layer[rank] for rank in (0, 1)) and 5 in layer[2]


def test_groups_count_only_where_they_are_kept(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "--load loads.npz --ranks 4 --nodes 2 --slots 24"
    free, told = planned(capsys, f"{line} --output f.npz"), planned(capsys, f"{line} --groups 4 --output t.npz")
    kept = planned(capsys, f"{line} --groups 4 --keep-groups")
    assert free["node_crossing_ratio"] is None
    assert free["digest"] == told["digest"] and told["node_crossing_ratio"] > 0
    assert kept["node_crossing_ratio"] == 0


def test_the_text_tells_the_plan_and_where_it_is_saved(folder: Path) -> None:
    line = "--load loads.npz --ranks 4 --slots 24 --policy deepseek-flat --output p.npz"
    done = windtunnel("eplb", "plan", *line.split(), cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "3 layers × 16 experts over 4 ranks, 24 slots; a load of 5 steps"
    assert any(line.startswith("balancedness, even split") and line.endswith("← in use") for line in lines)
    assert any(line.split() == ["saved", "p.npz"] for line in lines)
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize(
    ("ranks", "nodes", "words"),
    [
        (4, 1, "over 4 ranks, 24 slots"),
        (4, 2, "over 4 ranks on 2 nodes, 24 slots"),
        (4, 3, "over 4 ranks on 3 unequal nodes (1 with 2 ranks, 2 with 1), 24 slots"),
        (8, 3, "over 8 ranks on 3 unequal nodes (2 with 3 ranks, 1 with 2), 24 slots"),
    ],
)
def test_the_first_line_tells_nodes_that_are_not_alike(ranks: int, nodes: int, words: str) -> None:
    assert eplb_flags.shape_text(load(), Topology.uniform(ranks, 24, nodes=nodes)).endswith(words)


def test_help_tells_the_speeds_that_an_estimate_assumes() -> None:
    speeds = LinkSpeeds()
    text = " ".join(parser().format_help().split())
    assert f"{speeds.within_node / 1e9:g} GB/s within a node" in text
    assert f"{speeds.between_nodes / 1e9:g} GB/s between nodes" in text
    assert f"{speeds.weight_source / 1e9:g} GB/s from the weight source" in text


def test_who_waits_for_a_policy_to_be_compiled_is_told_once_and_only_where_it_is(folder: Path) -> None:
    kernel = "import numba\n\n\n@numba.njit(cache=True)\ndef one(x):\n    return x + 1\n"
    (folder / "kernel.py").write_text(kernel)
    code = (
        "import sys\nfrom windtunnel.cli.eplb_flags import warm_up\n"
        "class Compiles:\n    def warm_up(self, *_):\n"
        "        from kernel import one\n        one(1)\n        one(1.0)\n"
        "warm_up(Compiles(), None, None, None)\n"
    )
    told = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60) for _ in range(2)]
    assert [done.stdout for done in told] == ["", ""]
    assert [done.stderr for done in told] == [f"windtunnel: note: {eplb_flags.COMPILING}\n", ""]


def test_the_policies_of_the_flag_are_those_that_there_are() -> None:
    from windtunnel.eplb.policies import POLICIES

    assert tuple(POLICIES) == eplb_flags.POLICIES
    assert all(flag.help for flag in parser().flags)


@pytest.mark.parametrize(("text", "size"), [("44", 44), ("1KiB", 1024), ("42 MiB", 42 << 20), ("1.5gb", 1_500_000_000)])
def test_sizes_have_units(text: str, size: int) -> None:
    assert eplb_flags.SIZE.read(text) == size


G = "--ranks 4 --slots 24 --policy deepseek-flat"
WRONG_LINES = [
    ("", "--load: is missing"),
    (f"--load nowhere.npz {G}", "--load: can't read nowhere.npz: No such file"),
    (f"--load . {G}", "--load: can't read .: Is a directory"),
    (f"--load plain.txt {G}", "--load: can't read plain.txt: it is no npz file"),
    (f"--load misnamed.npz {G}", "misnamed.npz: load: there is no array of that name, only loads"),
    (f"--load nan.npz {G}", "nan.npz: load: step 0, layer 0, expert 0 has nan tokens"),
    (f"--load negative.npz {G}", "negative.npz: load: step 0, layer 0, expert 0 has -1 tokens"),
    (f"--load text.npz {G}", "text.npz: load: dtype <U1"),
    (f"--load objects.npz {G}", "objects.npz: load: it holds Python objects"),
    (f"--load flat.npz {G}", "flat.npz: load: 1 axes"),
    ("--load loads.npz --ranks 4", "--slots: is missing"),
    ("--load loads.npz --slots 24", "--ranks: is missing"),
    ("--load loads.npz --ranks 4 --slots 12 --policy deepseek-flat", "16 slots are needed in each layer"),
    ("--load loads.npz --ranks 4 --slots 12", "16 slots are needed in each layer"),
    ("--load loads.npz --slots-per-rank 9,9,x", "--slots-per-rank: '9,9,x' is no list of numbers"),
    ("--load loads.npz --slots-per-rank 9,9,-1", "--slots-per-rank: -1 slots"),
    ("--load loads.npz --ranks 4 --slots-per-rank 9,9", "--slots-per-rank: 2 entries for 4 ranks"),
    ("--load loads.npz --slots-per-rank 9,9 --slots 18", "--slots: is given beside --slots-per-rank"),
    (f"--load loads.npz {G} --nodes 5", "--nodes: 5 nodes for 4 ranks"),
    (f"--load loads.npz {G} --groups 5", "--groups: 16 experts do not divide into 5 groups"),
    (f"--load loads.npz {G} --dead-ranks 4", "--dead-ranks: there is no rank 4"),
    (f"--load loads.npz {G} --dead-ranks 0,1,2,3", "--dead-ranks: no rank is left alive"),
    (f"--load loads.npz {G} --policy windtunel", "--policy: 'windtunel' is unknown; did you mean windtunnel?"),
    (f"--load loads.npz {G} --splti even", "unknown flag --splti; did you mean --split?"),
    (f"--load loads.npz {G} --max-moved-ratio 0.1", "--max-moved-ratio: the policy deepseek-flat can't keep to it"),
    (f"--load loads.npz {G} --bytes-per-rank 1MB", "--bytes-per-rank: wants the size of an expert"),
    (f"--load loads.npz {G} --expert-bytes 1XB", "--expert-bytes: '1XB' is not a size"),
    (f"--load loads.npz {G} --pinned 3", "--pinned: '3' is no expert with its ranks"),
    (f"--load loads.npz {G} --ranks 9999999999", "--ranks: 9999999999 is above 1000000"),
    (f"--load loads.npz {G} --output plain.txt/p.npz", "--output: can't write plain.txt/p.npz"),
    (f"--load loads.npz {G} --output .", "--output: can't write .: it is a folder"),
    (f"--load loads.npz {G} --output loads.npz", "--output: loads.npz is the recorded load"),
    ("--load loads.npz --previous nowhere.npz", "--previous: can't read nowhere.npz"),
    ("--load loads.npz --previous loads.npz", "loads.npz: placement: there is no array of that name, only load"),
    ("--load loads.npz --previous layers.npz", "--previous: has 2 layers, the load has 3"),
    ("--load loads.npz --previous experts.npz", "experts.npz: placement: layer 0, rank 1, slot 3 holds expert 16"),
    ("--load loads.npz --previous fits.npz --ranks 3", "--previous: has 4 ranks, the flags say 3"),
    ("--load loads.npz --previous fits.npz --slots 24", "--previous: has 5,5,5,5 slots, the flags say 6,6,6,6"),
]


@pytest.fixture
def wrong_files(folder: Path) -> Path:
    ones = np.ones((LAYERS, EXPERTS), int)
    wrong = {"nan": ones * np.nan, "negative": -ones, "text": ones.astype("U1"), "flat": ones[0]}
    for name, array in (wrong | {"objects": ones.astype(object)}).items():
        np.savez(folder / f"{name}.npz", load=array)
    np.savez(folder / "misnamed.npz", loads=ones)
    (folder / "plain.txt").write_text("no npz")
    fits = np.tile(np.arange(20) % EXPERTS, (LAYERS, 1)).reshape(LAYERS, 4, 5)
    np.savez(folder / "fits.npz", placement=fits)
    np.savez(folder / "layers.npz", placement=fits[:2])
    np.savez(folder / "experts.npz", placement=np.tile(np.arange(26), (LAYERS, 1)).reshape(LAYERS, 2, 13))
    return folder


@pytest.mark.parametrize(("line", "words"), WRONG_LINES)
def test_what_makes_no_sense_is_one_error_that_names_it(
    wrong_files: Path, capsys: pytest.CaptureFixture[str], line: str, words: str
) -> None:
    before = {path.name: path.read_bytes() for path in wrong_files.iterdir()}
    with pytest.raises(WindtunnelError) as refused:
        run([*line.split(), "--json"])
    assert words in refused.value.message
    assert refused.value.advice and refused.value.exit_code == 2
    assert capsys.readouterr().out == ""
    assert {path.name: path.read_bytes() for path in wrong_files.iterdir()} == before


def test_an_output_that_can_t_be_written_is_found_before_the_policy_is_asked(folder: Path) -> None:
    (folder / "locked.npz").mkdir()
    with pytest.raises(WindtunnelError, match="--output: can't write"):
        # this load has no plan: were it asked for first, that would be the error
        run(["--load", "loads.npz", "--ranks", "4", "--slots", "4", "--output", "locked.npz"])


def test_a_library_that_is_not_installed_is_named_with_its_extra() -> None:
    with pytest.raises(WindtunnelError, match=r"windtunnel eplb needs the package no_such_package") as refused:
        require_packages("windtunnel eplb", "eplb", "numpy", "no_such_package")
    assert "'.[eplb]'" in refused.value.advice


HEAVY = ["numpy", "numba", "scipy", "rich", "plotly", "msgspec"]


@pytest.mark.parametrize("command", ["plan", "replay"])
def test_help_imports_nothing_heavy(command: str) -> None:
    code = (
        "import sys\nfrom windtunnel.cli.main import main\n"
        f"main(['eplb', {command!r}, '--help'])\nprint([m for m in {HEAVY} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr == "[]\n"
    assert f"usage: windtunnel eplb {command} [flags]" in done.stdout
