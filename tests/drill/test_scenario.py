"""Scenarios: what is read, what is refused, and at which line."""

import json

import pytest

from windtunnel.drill.reading import open_scenario, read_scenario
from windtunnel.drill.scenario import KINDS, Delay, Exec
from windtunnel.drill.schema import scenario_schema
from windtunnel.errors import FileError, ScenarioError
from windtunnel.report.drill import FIGURES, Figures

HEAD = """\
title: A drill
target: {embedded: "paced:ttft=20ms"}
load: {num_prompts: 20, request_rate: 10}
"""


def refused(text: str) -> ScenarioError:
    with pytest.raises(ScenarioError) as caught:
        read_scenario(text, "drill.yaml")
    return caught.value


def test_a_scenario_is_read_with_its_actions_in_order() -> None:
    first = "- after_s: 250ms\n  delay: {delay_s: 50ms, for_s: 2}\n"
    text = f"{HEAD}actions:\n{first}- when: completed >= 5\n  exec: {{command: [ls]}}\n"
    scenario = read_scenario(text, "drill.yaml").scenario
    assert [action.kind for action in scenario.actions] == ["delay", "exec"]
    assert scenario.actions[0].after_s == 0.25 and scenario.actions[0].delay == Delay(delay_s=0.05, for_s=2.0)
    assert scenario.actions[1].exec == Exec(command=["ls"]) and scenario.actions[1].when == "completed >= 5"


def test_the_words_of_a_command_line_are_taken_as_they_are_written() -> None:
    text = HEAD + "actions:\n- after_s: 1\n  exec: {command: [kill, -0012, 1e3, yes, null], undo: [0x10]}\n"
    asked = read_scenario(text, "drill.yaml").scenario.actions[0].exec
    assert asked is not None and asked.command == ["kill", "-0012", "1e3", "yes", "null"] and asked.undo == ["0x10"]


def test_the_engines_keys_become_its_text_with_the_admin_api() -> None:
    text = HEAD.replace('"paced:ttft=20ms"', "{ranks: 4, restart: true}")
    assert read_scenario(text, "d").scenario.target.embedded_text == "engine:ranks=4,restart,admin"
    texts = {"engine": "engine:admin", "engine:ranks=2, restart": "engine:ranks=2,restart,admin", "paced": "paced"}
    for written, made in texts.items():
        assert read_scenario(HEAD.replace("paced:ttft=20ms", written), "d").scenario.target.embedded_text == made


def test_an_action_with_nothing_after_it_is_that_action() -> None:
    text = HEAD.replace("paced:ttft=20ms", "engine") + "actions:\n- after_s: 1\n  rebalance:\n"
    assert read_scenario(text, "d").scenario.actions[0].kind == "rebalance"


@pytest.mark.parametrize(
    ("more", "line", "words"),
    [
        ("expct: {}\n", 4, "unknown key expct; did you mean expect?"),
        ("actions:\n- after_s: 1\n  kil_rank: 1\n", 6, "unknown key kil_rank; did you mean kill_rank?"),
        ("actions:\n- after_s: 1\n  delay:\n    delay: 1\n", 7, "unknown key delay; did you mean delay_s?"),
        ("actions:\n- after_s: 1\n  cut: {}\n  reset: {}\n", 5, "does one thing, this one reset and cut"),
        ("actions:\n- after_s: 1\n", 5, "does one thing, this one nothing"),
        ("actions:\n- cut: {}\n", 5, "one of after_s and when"),
        ("actions:\n- after_s: 1\n  when: failed > 1\n  cut: {}\n", 5, "one of after_s and when"),
        ("actions:\n- after_s: -1\n  cut: {}\n", 5, "actions.0.after_s: Expected `float` >= 0"),
        ("actions:\n- after_s: 5 parsecs\n  cut: {}\n", 5, "is not a duration"),
        ("actions:\n- when: failed\n  cut: {}\n", 5, "is no condition"),
        ("actions:\n- after_s: 1\n  kill_rank: 1\n", 6, "has no ranks to kill_rank"),
        ("actions:\n- after_s: 1\n  http: {}\n", 6, "one of path and url"),
        ("actions:\n- after_s: 1\n  signal: {signal: SIGSTOPP}\n", 6, "did you mean SIGSTOP?"),
        ("actions:\n- after_s: 1\n  signal: {signal: SIGSTOP, pid: 5, pid_file: a}\n", 6, "different processes"),
        ("expect:\n  recover: 5\n", 5, "the result has no recover; did you mean recover_s?"),
        ("expect:\n  failed: none\n", 5, "failed: 'none' is no bound"),
        ("expect:\n  retried: > 0\n", 5, "it is no YAML"),
        ("expect: {failed: 0, failed: 1}\n", 4, "failed stands there twice"),
        ("expect: &a {failed: 0}\nactions: *a\n", None, "aliases"),
        ("level_ratio: 1.5\n", 4, "level_ratio: Expected `float` <= 1"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_line_and_the_nearest_word(more: str, line: int | None, words: str) -> None:
    error = refused(HEAD + more)
    assert words in error.message and error.advice
    assert error.line == line


def test_a_transition_that_no_rank_makes_is_named_with_the_nearest_one() -> None:
    text = HEAD.replace("paced:ttft=20ms", "engine")
    text += "actions:\n- after_s: 1\n  fail_at: {rank: 1, transition: transfering+copied}\n"
    assert "did you mean transferring+copied?" in refused(text).message


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("{}", "one of embedded and url"),
        ("{embedded: paced, url: http://h}", "one of embedded and url"),
        ("{url: localhost:8000}", "begins with http"),
    ],
)
def test_a_target_is_one_that_can_be_found(target: str, words: str) -> None:
    assert words in refused(f"title: t\ntarget: {target}\nload: {{}}\n").message


def test_the_link_to_a_target_behind_tls_takes_no_faults() -> None:
    text = "title: t\ntarget: {url: https://h}\nload: {}\nactions:\n- after_s: 1\n  cut: {}\n"
    assert "speaks no TLS" in refused(text).message


def test_an_unknown_file_is_told_with_the_shipped_scenario_that_may_be_meant() -> None:
    with pytest.raises(FileError, match="did you mean slow-link"):
        open_scenario("slow-lnk")


def test_the_schema_says_what_is_exclusive_and_where_units_are_taken() -> None:
    schema = scenario_schema()
    action = schema["$defs"]["Action"]
    assert {"required": ["after_s"]} in action["allOf"][0]["oneOf"]
    assert [each["required"] for each in action["allOf"][1]["oneOf"]] == [[kind] for kind in KINDS]
    assert {"type": "string", "examples": ["250ms", "10s"]} in action["properties"]["after_s"]["anyOf"]
    assert set(schema["$defs"]["Scenario"]["properties"]["expect"]["properties"]) == set(FIGURES)
    assert json.loads(json.dumps(schema)) == schema


def test_every_figure_that_can_be_expected_is_one_of_the_result() -> None:
    assert tuple(FIGURES) == Figures.__struct_fields__
