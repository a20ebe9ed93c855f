"""Starts an embedded target as a process of its own, and ends it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
from types import TracebackType
from typing import IO

from windtunnel.clock import monotonic_ns
from windtunnel.engine.paced.config import parse_paced
from windtunnel.errors import EXIT_USAGE, ConfigurationError, TargetLost
from windtunnel.units import NS_PER_S

ENGINE = "engine"
_HELP = "`windtunnel bench serve --embedded help` tells what can be written."
_START_S = 120.0
"""The first engine of an installation compiles its policy."""
_STOP_S = 5.0


class EmbeddedTarget:
    """A running target; a context manager that stops it at the end.

    It has a process group of its own, so that a Ctrl-C in the terminal reaches us first, and its standard input is a
    pipe from us, so that it ends when we do, even by SIGKILL.
    """

    def __init__(self, url: str, process: subprocess.Popen[bytes], stderr: IO[bytes]) -> None:
        self.url = url
        self.pid = process.pid
        self._process = process
        self._stderr = stderr

    @classmethod
    def start(cls, text: str, *, host: str = "127.0.0.1") -> EmbeddedTarget:
        """Start the target that `text` describes on a free port and wait until it listens.

        It is `engine:FLAG=VALUE,…`, with the flags of `windtunnel engine`, or `paced:KEY=VALUE,…`. Raises
        ConfigurationError where the text makes no sense, TargetLost where the process does not get to listen.
        """
        flags = _engine_flags(text)
        if flags is None:
            parse_paced(text)
            # the text goes through the pipe, since it may hold a key and anybody can read a command line
            command, told = ["windtunnel.engine.paced", "-"], text.replace("\n", " ") + "\n"
        else:
            command, told = ["windtunnel", "engine", "--end-with-stdin", *flags], ""
        stderr = tempfile.TemporaryFile()  # noqa: SIM115  a pipe would fill up: nobody reads it while the target runs
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", *command, "--host", host],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            process_group=0,
        )
        target = cls("", process, stderr)
        try:
            target._send(told)
            target.url = target._wait_until_listening()
        except BaseException:
            target.stop()
            raise
        return target

    @property
    def running(self) -> bool:
        """The process has not ended."""
        return self._process.poll() is None

    def check(self) -> None:
        """Raises TargetLost, with what the target wrote to stderr, if it has ended by itself."""
        if not self.running:
            raise TargetLost("ended", self._last_words())

    def stop(self) -> None:
        """End the process; may be called again."""
        if self._process.stdin is not None:
            try:
                self._process.stdin.close()
            except BrokenPipeError:
                pass
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._stderr.close()

    def __enter__(self) -> EmbeddedTarget:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _send(self, text: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(text.encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended; the wait for its address says why

    def _wait_until_listening(self) -> str:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        until_ns = monotonic_ns() + round(_START_S * NS_PER_S)
        line = b""
        while not line.endswith(b"\n"):
            wait_s = max(0.0, (until_ns - monotonic_ns()) / NS_PER_S)
            if not select.select([descriptor], (), (), wait_s)[0]:
                raise TargetLost("did not start", f"nothing heard of it in {_START_S:.0f} s. {self._last_words()}")
            piece = os.read(descriptor, 4096)
            if not piece:
                if self._process.wait() == EXIT_USAGE:
                    raise ConfigurationError("--embedded", *_problem_and_fix(self._last_words()))
                raise TargetLost("did not start", self._last_words())
            line += piece
        return line.decode().strip()

    def _last_words(self) -> str:
        self._stderr.seek(0)
        words = self._stderr.read().decode(errors="replace").strip()
        return words or f"it wrote nothing to stderr; exit code {self._process.poll()}"


def _engine_flags(text: str) -> list[str] | None:
    """The flags of `windtunnel engine` that `engine:ranks=4,admin` says; None: it is another target."""
    name, _, pairs = text.strip().partition(":")
    if name != ENGINE:
        return None
    words = [word.strip() for word in pairs.split(",") if word.strip()]
    return [f"--{word.partition('=')[0].replace('_', '-')}{''.join(word.partition('=')[1:])}" for word in words]


def _problem_and_fix(words: str) -> tuple[str, str]:
    """What a target that refused its configuration says, taken apart as commands tell it."""
    problem, *rest = words.rpartition("windtunnel: error: ")[2].splitlines()
    fixes = [line.strip().removeprefix("Fix: ") for line in rest if not line.strip().startswith("[WT-")]
    return problem, " ".join(fixes) or _HELP
