"""A drill on a real server, named by WINDTUNNEL_REAL_URL, whose process group WINDTUNNEL_REAL_PID is stopped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.drill.drilling import drill, problems, result

pytestmark = pytest.mark.real


def test_users_of_a_real_server_that_is_stopped_and_continued_lose_nothing_but_time(tmp_path: Path) -> None:
    url, group = os.environ.get("WINDTUNNEL_REAL_URL"), os.environ.get("WINDTUNNEL_REAL_PID")
    if not url or not group:
        pytest.skip("WINDTUNNEL_REAL_URL and WINDTUNNEL_REAL_PID name no server of this machine")
    load = "{num_prompts: 64, request_rate: 8, random_input_len: 32, random_output_len: 16, temperature: 0}"
    actions = f"""
actions:
- after_s: 3
  exec: {{command: [kill, -STOP, --, -{group}], undo: [kill, -CONT, --, -{group}]}}
- after_s: 4
  exec: {{command: [kill, -CONT, --, -{group}]}}
- after_s: 6
  http: {{path: /health, method: GET}}
expect: {{failed: 0, recover_s: "> 0.5", worst_gap_s: "> 0.5"}}
"""
    done = drill(tmp_path, actions, "--json", "--yes", head=f"title: t\ntarget: {{url: '{url}'}}\nload: {load}\n")
    found = result(done)
    assert done.returncode == 0 and not problems(found), done.stderr
    assert (found["requests"], found["failed"], found["tokens_compared"]) == (64, 0, 64)
    stop, go_on = (action for action in found["actions"] if action["kind"] == "exec")
    assert stop["recover_s"] >= go_on["at_s"] - stop["at_s"] - 0.3
