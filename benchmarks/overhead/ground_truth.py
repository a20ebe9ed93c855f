"""The ground-truth server (truth.c) as a context: built, started on a free port, stopped."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("truth.c")
MODEL = "truth"


class GroundTruth(NamedTuple):
    """A running ground-truth server."""

    base_url: str
    pid: int


def build(folder: Path) -> Path:
    """Compile the server into `folder`; raises SystemExit where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise SystemExit("the ground-truth server is written in C: install a C compiler (cc)")
    program = folder / "truth"
    subprocess.run([compiler, "-O2", "-Wall", "-o", program, SOURCE], check=True)
    return program


@contextmanager
def serving(program: Path, *, ttft_ms: float, itl_ms: float) -> Iterator[GroundTruth]:
    """A server for as long as the context lasts."""
    process = subprocess.Popen([program, "0", str(ttft_ms), str(itl_ms)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        if not port:
            raise SystemExit(f"the ground-truth server ended with exit status {process.wait()}: its words stand above")
        yield GroundTruth(f"http://127.0.0.1:{port}", process.pid)
    finally:
        process.kill()
        process.communicate()
