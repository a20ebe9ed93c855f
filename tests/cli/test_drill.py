"""The command `windtunnel drill`: what it checks before anything is done."""

import sys
from pathlib import Path

import pytest
from tests.bench.command import run

from windtunnel.cli.main import main
from windtunnel.drill.reading import open_scenario, shipped_names


@pytest.mark.parametrize("name", shipped_names())
def test_every_shipped_scenario_is_checked_by_the_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drill", "--check", name]) == 0
    assert "fine" in capsys.readouterr().out


def test_the_shipped_scenarios_are_listed_with_their_titles(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drill", "--list"]) == 0
    told = capsys.readouterr().out
    assert all(f"{name} " in told and open_scenario(name).scenario.title in told for name in shipped_names())


@pytest.mark.parametrize(
    ("load", "line", "words"),
    [
        ("{num_promts: 20}", 3, "did you mean --num-prompts?"),
        ("\n  num_prompts: 20\n  request_rate: fast", 5, "--request-rate: 'fast' is not a number"),
        ("\n  num_prompts: 20\n  base_url: http://h", 5, "base_url is no flag of a drill's load"),
        ("\n  num-prompts: 20\n  ramp-up-start-rps: 1\n  ramp_up_strategy: linear", 6, "needs --ramp-up-end-rps"),
    ],
)
def test_the_load_takes_the_flags_of_bench_serve_and_names_the_line(
    load: str, line: int, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "drill.yaml"
    path.write_text(f"title: t\ntarget: {{embedded: paced}}\nload: {load}\n")
    done = run(tmp_path, "drill", "--check", path)
    assert done.returncode == 2
    assert words in done.stderr and f"line {line}:" in done.stderr and "[WT-DRILL-SCENARIO]" in done.stderr


def test_an_embedded_target_that_makes_no_sense_is_refused_before_it_is_started(tmp_path: Path) -> None:
    path = tmp_path / "drill.yaml"
    path.write_text("title: t\ntarget: {embedded: 'paced:ttf=1ms'}\nload: {}\n")
    done = run(tmp_path, "drill", "--check", path)
    assert done.returncode == 2 and "did you mean 'ttft'" in done.stderr and "line 2:" in done.stderr


def test_without_pyyaml_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert main(["drill", "--list"]) == 2
    assert "pip install '.[drill]'" in capsys.readouterr().err


def test_a_report_never_takes_the_place_of_the_scenario(tmp_path: Path) -> None:
    path = tmp_path / "drill.yaml"
    path.write_text("title: t\ntarget: {embedded: paced}\nload: {}\n")
    done = run(tmp_path, "drill", path, "--report", path)
    assert done.returncode == 2 and "is the scenario itself" in done.stderr
    assert path.read_text().startswith("title: t")


def test_flags_of_the_engine_are_checked_with_the_line_before_it_is_started(tmp_path: Path) -> None:
    path = tmp_path / "drill.yaml"
    path.write_text("title: t\ntarget:\n  embedded: {rnks: 4}\nload: {}\n")
    done = run(tmp_path, "drill", "--check", path)
    assert done.returncode == 2 and "did you mean --ranks?" in done.stderr and "line 3:" in done.stderr
