"""Whole drills on the paced target and on real processes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.drill.drilling import drill, problems, result
from tests.engine.serving import paced


def test_a_stopped_target_shows_as_an_outage_until_it_goes_on(tmp_path: Path) -> None:
    done = drill(
        tmp_path,
        """
        actions:
        - after_s: 1.5
          signal: {signal: SIGSTOP}
        - after_s: 2.3
          signal: {signal: SIGCONT}
        expect: {failed: 0, recover_s: "> 0.6", worst_gap_s: "> 0.6"}
        """,
        "--json",
    )
    found = result(done)
    assert done.returncode == 0 and found["passed"], done.stderr
    stop, go_on = found["actions"]
    assert go_on["at_s"] > stop["at_s"] >= 1.4
    assert stop["recover_s"] >= go_on["at_s"] - stop["at_s"] - 0.2
    assert found["requests"] == 120 and found["failed"] == 0 and found["tokens_changed"] is None
    assert found["detect_s"] is None and found["target"] == "paced:ttft=10ms,itl=5ms"
    assert sum(found["series"]["tokens_per_s"]) * found["series"]["bin_s"] == pytest.approx(120 * 8)


def test_an_expectation_that_is_missed_fails_the_drill_and_says_which(tmp_path: Path) -> None:
    page = tmp_path / "pages" / "drill.html"
    done = drill(tmp_path, "expect: {failed: '> 0', requests: 120}", "--report", str(page))
    assert done.returncode == 1 and f"timeline: {page}" in done.stdout
    assert 'class="timeline"' in page.read_text() and "not passed" in page.read_text()
    assert "✗ failed 0   expected > 0" in done.stdout and "✓ requests 120" in done.stdout
    assert "not passed" in done.stdout


def test_the_link_is_hurt_and_mended_while_load_goes_over_it(tmp_path: Path) -> None:
    done = drill(
        tmp_path,
        """
        actions:
        - after_s: 1.2
          delay: {delay_s: 50ms, for_s: 300ms}
        - after_s: 1.7
          bandwidth: {bytes_per_s: 200000, for_s: 300ms}
        - after_s: 2.2
          reset: {}
        - after_s: 2.5
          drop: {ratio: 0.5, for_s: 300ms}
        - after_s: 3.2
          cut: {for_s: 300ms}
        """,
        "--json",
    )
    found = result(done)
    assert done.returncode == 0, done.stderr
    by_kind = {action["kind"]: action for action in found["actions"]}
    assert by_kind["delay"]["during"] is not None or by_kind["delay"]["recover_s"] == 0
    assert all(by_kind[kind]["failed"] > 0 for kind in ("reset", "drop", "cut"))
    assert by_kind["cut"]["recover_s"] >= 0.2
    told = [event["what"] for event in found["events"]]
    assert [what for what in told if what.endswith("ended")] == [
        "delay ended",
        "bandwidth ended",
        "drop ended",
        "cut ended",
    ]


def test_programs_are_shown_and_not_run_without_a_yes(tmp_path: Path) -> None:
    actions = "actions:\n- after_s: 0\n  exec: {command: [touch, done], undo: [touch, undone]}\n"
    done = drill(tmp_path, actions)
    assert done.returncode == 2
    assert "touch done" in done.stderr and "at the end: touch undone" in done.stderr and "--yes" in done.stderr
    assert not (tmp_path / "done").exists()


def test_programs_are_run_and_undone_at_the_end_and_tell_what_they_say(tmp_path: Path) -> None:
    done = drill(
        tmp_path,
        """
        actions:
        - after_s: 500ms
          exec: {command: [sh, -c, "touch done; echo did it"], undo: [touch, undone]}
        - after_s: 600ms
          exec: {command: [sh, -c, "echo no; exit 3"]}
        - after_s: 700ms
          exec: {command: [sleep, "60"], timeout_s: 200ms}
        - after_s: 800ms
          exec: {command: [no-such-program]}
        """,
        "--json",
        "--yes",
    )
    found = result(done)
    assert done.returncode == 1 and not found["passed"]
    assert (tmp_path / "done").exists() and (tmp_path / "undone").exists()
    assert {"said": "did it"} in [event["facts"] for event in found["events"]]
    reasons = " | ".join(problems(found))
    assert "exit code 3: no" in reasons and "not over after 0.2 s" in reasons and "No such file" in reasons


def test_a_process_that_a_drill_stopped_goes_on_afterwards(tmp_path: Path, bystander: subprocess.Popen[bytes]) -> None:
    actions = "actions:\n- after_s: 0.5\n  signal: {signal: SIGSTOP, pid_file: pid}\n"
    refused = drill(tmp_path, actions)
    assert refused.returncode == 2 and "signal SIGSTOP" in refused.stderr
    assert drill(tmp_path, actions, "--yes").returncode == 0
    assert state_of(bystander.pid) == "S"


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_an_action_waits_for_its_condition_and_one_that_never_comes_is_told(tmp_path: Path) -> None:
    done = drill(
        tmp_path,
        """
        actions:
        - when: completed >= 30
          http: {path: /health, method: GET}
        - when: complete >= 30
          http: {path: /health, method: GET}
        - when: failed > 0
          http: {path: /health, method: GET}
        - after_s: 60
          http: {path: /health, method: GET}
        """,
        "--json",
    )
    found = result(done)
    assert done.returncode == 1
    assert found["actions"][0]["problem"] is None and found["actions"][0]["at_s"] >= 0.8
    assert found["actions"][0]["planned"] == "when completed >= 30"
    reasons = " | ".join(problems(found))
    assert "/metrics: HTTP 404" in reasons and "its condition never held" in reasons
    assert "the load was over before" in reasons


def test_a_call_that_is_answered_otherwise_was_not_done(tmp_path: Path) -> None:
    actions = "actions:\n- after_s: 0.1\n  http: {path: /scale_elastic_ep, body: {new_data_parallel_size: 4}}\n"
    found = result(drill(tmp_path, actions, "--json"))
    assert problems(found) == ["POST /scale_elastic_ep: HTTP 404: there is no /scale_elastic_ep here"]


def test_load_of_its_own_begins_with_an_action_and_counts(tmp_path: Path) -> None:
    actions = "actions:\n- after_s: 1\n  load: {num_prompts: 40, request_rate: inf, max-concurrency: 20}\n"
    found = result(drill(tmp_path, actions, "--json"))
    assert found["requests"] == 160 and len(found["runs"]) == 2
    assert found["actions"][0]["at_s"] >= 0.9
    bins = found["series"]["in_flight"]
    assert max(bins) > 2 * max(bins[:18])


def test_outputs_are_compared_with_those_of_the_undisturbed_run(tmp_path: Path) -> None:
    found = result(drill(tmp_path, "reference: true\nexpect: {tokens_changed: 0}\n", "--json"))
    assert found["tokens_compared"] == 120 and len(found["runs"]) == 2
    assert found["tokens_changed"] == 120, "the paced target's tokens tell the time, so each is another"
    assert not found["passed"]


def test_a_server_by_its_address_is_drilled_too(tmp_path: Path) -> None:
    with paced() as url:
        load = "{num_prompts: 20, request_rate: 40, tokenizer: windtunnel-words}"
        head = f"title: t\ntarget: {{url: '{url}'}}\nload: {load}\n"
        done = drill(tmp_path, "actions:\n- after_s: 0.2\n  cut: {for_s: 100ms}\n", "--json", head=head)
    found = result(done)
    assert done.returncode == 0, done.stderr
    assert found["requests"] == 20 and found["actions"][0]["at_s"] >= 0.1
    assert found["target"].startswith("http://127.0.0.1")


def test_ranks_of_a_server_without_an_admin_api_are_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with paced() as url:
        head = f"title: t\ntarget: {{url: '{url}'}}\nload: {{num_prompts: 20}}\n"
        done = drill(tmp_path, "actions:\n- after_s: 0\n  kill_rank: 1\n", head=head)
    assert done.returncode == 2 and "has no admin API, which kill_rank needs" in done.stderr
    assert "line 6:" in done.stderr and not (tmp_path / "state").exists()


def test_a_target_that_does_not_answer_is_told(tmp_path: Path) -> None:
    done = drill(tmp_path, "", head="title: t\ntarget: {url: 'http://127.0.0.1:1'}\nload: {num_prompts: 20}\n")
    assert done.returncode == 1 and "refused" in done.stderr and "WT-HTTP-CONNECT" in done.stderr
