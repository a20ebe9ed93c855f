"""What the command says and how it exits, as a user or a script sees it."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_lines import windtunnel

import windtunnel as package
from windtunnel.cli.main import main, require_linux
from windtunnel.errors import UnsupportedPlatform


def test_the_version_is_the_package_s() -> None:
    done = windtunnel("--version")
    assert (done.returncode, done.stdout) == (0, f"windtunnel {package.__version__}\n")


@pytest.mark.parametrize("line", [[], ["bench"], ["runs"]])
def test_a_group_without_a_command_shows_its_help_and_exits_as_for_wrong_usage(line: list[str]) -> None:
    done = windtunnel(*line)
    assert done.returncode == 2
    assert "commands" in done.stdout


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("bnch serve", "bnch serve: no such command; did you mean bench serve?"),
        ("bench serv", "bench serv: no such command; did you mean bench serve?"),
        ("runs lst", "runs lst: no such command; did you mean runs list?"),
        ("rnus", "rnus: no such command; did you mean runs?"),
        ("sausage", "sausage: no such command"),
        ("bench --model x", "bench: no command stands before --model"),
        ("--model x", "windtunnel: no command stands before --model"),
    ],
)
def test_an_unknown_command_is_an_error_that_says_what_was_probably_meant(line: str, message: str) -> None:
    done = windtunnel(*line.split())
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"windtunnel: error: {message}\n  ")


def test_flags_right_after_bench_get_the_hint_that_serve_names_the_command() -> None:
    assert "`windtunnel bench serve --model …`" in windtunnel("bench", "--model", "x").stderr


def test_an_error_is_what_happened_the_way_out_and_the_code() -> None:
    done = windtunnel("bench", "serve", "--num-promts", "3")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "windtunnel: error: unknown flag --num-promts; did you mean --num-prompts?\n"
        "  Fix: `windtunnel bench serve --help` lists all flags.\n"
        "  [WT-CONFIG-UNKNOWN-FLAG]\n"
    )


def test_what_is_not_built_says_so_and_exits_as_for_wrong_usage() -> None:
    done = windtunnel("bench", "serve", "--multi-turn", "--base-url", "http://127.0.0.1:1")
    assert done.returncode == 2
    assert "--multi-turn: not yet\n  Fix: Leave it out" in done.stderr


def test_debugging_shows_the_traceback_of_an_error() -> None:
    done = windtunnel("bench", "serve", "--nonsense", environ={"WINDTUNNEL_DEBUG": "1"})
    assert done.returncode == 2
    assert done.stderr.startswith("Traceback")
    assert done.stderr.endswith("[WT-CONFIG-UNKNOWN-FLAG]\n")


_FAULT = """
import sys
from windtunnel.cli import main
sys.modules["faulty"] = sys.modules[__name__]
def run(arguments):
    raise ZeroDivisionError("by sk-sekret")
main.COMMANDS["fail now"] = main.Command("fails", "faulty")
sys.exit(main.main(["fail", "now"]))
"""


@pytest.mark.parametrize("debug", ["", "1"])
def test_a_fault_of_ours_is_an_apology_with_its_place_and_exit_1_and_hides_the_key(debug: str) -> None:
    environ = os.environ | {"OPENAI_API_KEY": "sk-sekret", "WINDTUNNEL_DEBUG": debug}
    done = subprocess.run([sys.executable, "-c", _FAULT], capture_output=True, text=True, env=environ, timeout=60)
    assert done.returncode == 1
    assert "sorry, this is a fault in windtunnel: ZeroDivisionError: by [hidden]" in done.stderr
    assert re.search(r"It happened at <string>:6, in run\.", done.stderr)
    assert ("Traceback" in done.stderr) == (debug == "1")
    assert "sekret" not in done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_away_is_no_reason_to_complain(unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "windtunnel", "bench", "serve", "--help"],
            stdout=closed,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_that_is_full_is_an_error_with_its_reason(unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "windtunnel", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            text=True,
            timeout=60,
        )
    assert done.returncode == 1
    assert done.stderr.startswith("windtunnel: error: can't write to the standard output: No space left on device\n")
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize(("environ", "colored"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_a_terminal_gets_colours_unless_the_user_wants_none(environ: dict[str, str], colored: bool) -> None:
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            [sys.executable, "-m", "windtunnel", "bench", "serve", "--nonsense"],
            stderr=theirs,
            env={"TERM": "xterm", **environ},
            timeout=60,
        )
        text = os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert ("\x1b[" in text) == colored
    assert "unknown flag --nonsense" in text


def test_only_linux_sends_load() -> None:
    require_linux("linux")
    with pytest.raises(UnsupportedPlatform, match="darwin"):
        require_linux("darwin")


def test_main_returns_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert main(["bench", "serve", "--help=seed"]) == 0
    assert main(["bench", "serve", "--port", "x"]) == 2
    assert "--port: 'x' is not a whole number" in capsys.readouterr().err


def test_a_result_that_can_t_be_written_is_found_before_anything_is_sent(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = windtunnel(
        *("bench", "serve", "--base-url", "http://127.0.0.1:1", "--model", "m"),
        *("--save-result", "--result-dir", str(tmp_path / "file" / "folder")),
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"windtunnel: error: can't write the result to {tmp_path}/file/folder/")
    assert "[WT-IO]" in done.stderr
