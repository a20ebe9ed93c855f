"""What the tests of the command line share."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from windtunnel.cli.bench_serve import parser
from windtunnel.cli.parser import Parsed
from windtunnel.cli.serve_config import configure
from windtunnel.loadgen.config import ServeConfig

HERE = Path(__file__).parent


def parse(line: str) -> Parsed:
    """Parse the arguments of `bench serve`, written as in a shell."""
    return parser().parse(shlex.split(line))


def config_of(line: str, **environ: str) -> ServeConfig:
    """The configuration that they make."""
    parsed = parse(line)
    return configure(parsed.values, parsed.given, environ).config


def notes_of(line: str) -> list[str]:
    """What the user is told about them."""
    parsed = parse(line)
    return [*parsed.notes, *configure(parsed.values, parsed.given, {}).notes]


def windtunnel(
    *arguments: str, environ: Mapping[str, str] | None = None, **options: object
) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "windtunnel", *arguments],
        env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "COLUMNS": "100", **(environ or {})},
        capture_output=True,
        text=True,
        timeout=60,
        **options,  # type: ignore[call-overload]
    )
