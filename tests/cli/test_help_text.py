"""Help: complete, fast to come, and made for the terminal that it is read in."""

import subprocess
import sys

import pytest
from command_lines import HERE, windtunnel

from windtunnel.cli.flags import GROUPS, SERVE_FLAGS
from windtunnel.cli.main import COMMANDS

HEAVY = ["numpy", "tokenizers", "rich", "msgspec", "asyncio", "httptools", "multiprocessing", "socket", "ssl"]


@pytest.mark.parametrize("line", [[], ["--help"], ["bench", "--help"], ["bench", "serve", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(line: list[str]) -> None:
    code = (
        "import sys\nfrom windtunnel.cli.main import main\n"
        f"main({line!r})\nprint([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr == "[]\n"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_every_command_has_help(command: str, flag: str) -> None:
    done = windtunnel(*command.split(), flag)
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.startswith(f"usage: windtunnel {command} [flags]")


def test_the_help_of_all_names_every_command() -> None:
    done = windtunnel("--help")
    assert all(f"  {command}" in done.stdout for command in COMMANDS)
    assert "exit codes" in done.stdout


def test_the_help_of_serve_shows_every_flag_by_purpose_with_its_default() -> None:
    text = windtunnel("bench", "serve", "--help").stdout
    flags, _, later = text.partition("not implemented yet")
    assert all(f"\n{group} ({meaning}):" in flags for group, meaning in GROUPS.items())
    for flag in SERVE_FLAGS:
        assert flag.name in (flags if flag.built else later)
    assert "[1000]" in flags and "[127.0.0.1]" in flags and "[600]" in flags
    assert "METRIC:MS …" in flags


@pytest.mark.parametrize("columns", [50, 80, 100, 200])
def test_help_is_wrapped_to_the_terminal(columns: int) -> None:
    done = windtunnel("bench", "serve", "--help", environ={"COLUMNS": str(columns)})
    body = done.stdout.split("\ntarget ")[1].split("\nvLLM flags")[0]
    assert max(map(len, body.splitlines())) <= max(columns, 72)


@pytest.mark.parametrize(("word", "found"), [("goodput", 1), ("timeouts", 5), ("random_input", 1), ("sausage", 0)])
def test_help_with_a_word_shows_what_has_to_do_with_it(word: str, found: int) -> None:
    text = windtunnel("bench", "serve", f"--help={word}").stdout
    assert sum(line.startswith("  --") for line in text.splitlines()) == found
    assert ("No flag has to do with 'sausage'" in text) == (found == 0)


def test_help_is_shown_even_beside_a_flag_that_is_wrong() -> None:
    assert windtunnel("bench", "serve", "--nonsense", "--help").returncode == 0


def test_the_lists_of_vllm_s_flags_are_whole() -> None:
    counts = [len((HERE / f"vllm_flags_{client}.txt").read_text().split()) for client in ("python", "rust")]
    assert counts == [102, 115]
