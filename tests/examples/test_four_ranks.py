"""The example does what it says, as a user runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "four_ranks.py"


@pytest.mark.timeout(240)
def test_experts_move_a_rank_dies_in_mid_transfer_and_the_rest_goes_on() -> None:
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    rounds = [
        re.match(r"round \d: (\w+) +epoch +\d+, ranks (\[.*\]), balancedness (\S+) → (\S+), (\d+) MiB", line)
        for line in done.stdout.splitlines()
    ]
    told = [found.groups() for found in rounds if found]
    assert len(told) == 6, done.stdout
    results = [result for result, *_ in told]
    assert results.count("aborted") == 1 and results[0] == results[-1] == "committed"
    assert "rank 2 was lost" in done.stdout
    assert (told[0][1], told[-1][1]) == ("[0, 1, 2, 3]", "[0, 1, 3]")
    for result, _, before, after, moved in told:
        if result == "committed":
            assert float(after) > float(before)
            assert int(moved) > 0
    assert "Traceback" not in done.stderr and "AssertionError" not in done.stderr


def test_what_it_prints_until_the_death_stands_in_the_docs() -> None:
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=200)
    printed = "\n".join(line.rstrip() for line in done.stdout.splitlines()[:4])
    for page in ("README.md", "docs/how-to/put-eplb-into-an-engine.md"):
        assert printed in (EXAMPLE.parents[1] / page).read_text()


def test_the_example_is_short() -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 80
