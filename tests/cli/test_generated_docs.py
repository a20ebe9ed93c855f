"""The reference is made from the code, is current, and leaves nothing undocumented."""

import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from windtunnel.cli.flags import SERVE_FLAGS
from windtunnel.engine.paced.config import FAULTS, KEYS
from windtunnel.eplb.transaction.table import TRANSITIONS
from windtunnel.errors import ConnectFailed, HttpStatus, WindtunnelError, classes, from_facts
from windtunnel.loadgen.config import OutputConfig
from windtunnel.loadgen.journal import Header
from windtunnel.measure.causes import Cause
from windtunnel.measure.record import Record
from windtunnel.measure.run import RunEnd, RunFacts
from windtunnel.measure.validity import Instrument, Invalid

DOCS = Path(__file__).parents[2] / "docs"


def generate(docs: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(docs / "generate.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("generate.py", "transaction_diagram.py", "architecture.md"):
        shutil.copy(DOCS / name, tmp_path)
    return tmp_path


def test_the_committed_reference_is_current() -> None:
    done = generate(DOCS, "--check")
    assert done.returncode == 0, done.stderr


def test_stale_and_missing_pages_are_named_and_then_written(copy: Path) -> None:
    assert generate(copy).returncode == 0
    (copy / "reference" / "metrics.md").unlink()
    (copy / "reference" / "errors.md").write_text("old")
    (copy / "reference" / "error-record.schema.json").write_text("{}")
    done = generate(copy, "--check")
    assert done.returncode == 1
    assert "metrics.md is stale" in done.stderr and "errors.md is stale" in done.stderr
    assert "error-record.schema.json is stale" in done.stderr
    assert "commands.md" not in done.stderr
    assert generate(copy).returncode == 0
    assert generate(copy, "--check").returncode == 0


def test_the_reference_has_every_code_and_every_flag(copy: Path) -> None:
    generate(copy)
    errors, commands = ((copy / "reference" / name).read_text() for name in ("errors.md", "commands.md"))
    assert all(f"| `{cls.code}` | `{cls.__name__}` |" in errors for cls in classes())
    assert all(f"| `{flag.name}" in commands for flag in SERVE_FLAGS)


def test_the_reference_has_every_key_of_the_embedded_target_and_every_field_of_the_files(copy: Path) -> None:
    generate(copy)
    embedded, files = ((copy / "reference" / name).read_text() for name in ("embedded.md", "files.md"))
    assert all(f"| `{name}` |" in embedded for name in (*KEYS, *FAULTS))
    structs = (Header, RunFacts, OutputConfig, Record, RunEnd, Cause, Invalid, Instrument)
    assert all(f"| `{name}` |" in files for struct in structs for name in struct.__struct_fields__)
    assert "| `scheduled_ns` | `int` |  | When it was due." in files


def test_the_diagrams_have_every_transition_and_a_stale_one_is_named(copy: Path) -> None:
    page = copy / "architecture.md"
    current = page.read_text()
    for transition in TRANSITIONS:
        arrow = f"{transition.source} --> {transition.target}: ".replace("rolling back", "rolling_back")
        assert any(arrow in line and transition.trigger in line for line in current.splitlines()), transition
    page.write_text(current.replace("serving --> prepared", "serving --> verified"))
    assert "architecture.md is stale" in generate(copy, "--check").stderr
    generate(copy)
    assert page.read_text() == current


def test_the_reference_has_every_case_of_an_error(copy: Path) -> None:
    generate(copy)
    page = (copy / "reference" / "errors.md").read_text()
    cases = [case for cls in classes() for case in cls.cases]
    assert len(cases) > 10
    assert all(f"*{case}*: " in page for case in cases)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectFailed("h", "refused", "r"), "Is the server up"),
        (ConnectFailed("h", "tls", "WRONG_VERSION_NUMBER"), "Is this an http server?"),
        (ConnectFailed("h", "local", "r"), "ulimit"),
        (ConnectFailed("h", "proxy", "r"), "--proxy"),
        (ConnectFailed("h", "odd", "r"), "can be reached"),
        (HttpStatus(401, "", ""), "OPENAI_API_KEY"),
        (HttpStatus(403, "", ""), "OPENAI_API_KEY"),
        (HttpStatus(404, "", ""), "--endpoint"),
        (HttpStatus(422, "", ""), "does not accept"),
        (HttpStatus(429, "", ""), "--retries"),
        (HttpStatus(503, "", ""), "overloaded"),
        (HttpStatus(418, "", ""), "the body may say why"),
        (HttpStatus(502, "", ""), "gateway"),
        (HttpStatus(304, "", ""), "--base-url"),
    ],
    ids=lambda value: f"{value.case}" if isinstance(value, WindtunnelError) else "",
)
def test_the_way_out_is_that_of_the_case_at_hand(error: WindtunnelError, words: str) -> None:
    assert words in error.advice
    assert from_facts(error.code, error.facts).advice == error.advice


@pytest.mark.parametrize("cls", classes(), ids=lambda cls: cls.__name__)
def test_an_error_says_when_it_is_raised_what_happened_and_the_way_out(cls: type[WindtunnelError]) -> None:
    assert "__doc__" in vars(cls) and cls.__doc__ and not cls.__doc__.startswith(f"{cls.__name__}(")
    assert cls.family and cls.happened and cls.way_out
    names = {field.name for field in fields(cls)}
    assert cls.exit_code in (1, 2)
    assert any(f"{{{name}" in cls.happened for name in names), "the facts belong into the message"


def test_codes_are_unique() -> None:
    codes = [cls.code for cls in classes()]
    assert len(set(codes)) == len(codes)
    assert all(code.startswith("WT-") for code in codes)
