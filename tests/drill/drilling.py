"""Drills by the real command, from scenarios that a test writes."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

from tests.bench.command import Done, Running, run

PACED = """
    title: A drill of a test
    target: {embedded: "paced:ttft=10ms,itl=5ms"}
    load: {num_prompts: 120, request_rate: 30, burstiness: inf, random_input_len: 16, random_output_len: 8}
"""
"""Load for four seconds."""


def scenario(folder: Path, more: str, *, head: str = PACED) -> Path:
    """The file of a scenario: `head`, and what a test adds to it."""
    path = folder / "drill.yaml"
    path.write_text(textwrap.dedent(head) + textwrap.dedent(more))
    return path


def drill(folder: Path, more: str, *flags: str, head: str = PACED) -> Done:
    """Run it to its end."""
    return run(folder, "drill", scenario(folder, more, head=head), *flags)


def result(done: Done) -> dict[str, Any]:
    """What `--json` printed."""
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def started(folder: Path, more: str, *flags: str, head: str = PACED) -> Running:
    """Run it, to be interrupted."""
    return Running(folder, "drill", scenario(folder, more, head=head), *flags)


def problems(document: dict[str, Any]) -> list[str]:
    """Why actions were not done."""
    return [action["problem"] for action in document["actions"] if action["problem"] is not None]
