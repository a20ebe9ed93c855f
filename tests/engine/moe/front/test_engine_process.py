"""`windtunnel engine` as a process: how it starts, drains and ends, and what it says when it can't."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.engine.moe.front.conftest import SMALL
from tests.engine.serving import COMPLETIONS, call, completion, connect, read_until, request_bytes
from windtunnel.engine.process import EmbeddedTarget
from windtunnel.errors import ConfigurationError

FLAGS = [f"--{word.replace('_', '-')}" for word in SMALL.split(",")]
END = b"data: [DONE]\n\n\r\n0\r\n\r\n"


def body(tokens: int) -> dict[str, Any]:
    return completion(tokens, model="windtunnel-tiny", temperature=0, ignore_eos=True)


@contextmanager
def engine(models: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A process, and its address."""
    command = [sys.executable, "-m", "windtunnel", "engine", "--models-folder", str(models), *FLAGS, *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().decode().strip()
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_requests_end_and_takes_no_new_ones(models: Path, number: signal.Signals) -> None:
    with engine(models) as (process, url), connect(url) as sock, connect(url) as other:
        sock.sendall(request_bytes(COMPLETIONS, body(300)))
        data = read_until(sock, b'"text"')
        other.sendall(request_bytes("/health"))
        read_until(other, b"\r\n\r\n")
        os.killpg(process.pid, number)  # as a terminal does: the ranks get it too
        until_refused(other)
        data += read_until(sock, END)
        assert data.count(b'"text"') == 300
        assert process.wait(20) == 0


def until_refused(sock: Any) -> None:
    """Ask for a generation until the answer is that there are no more."""
    while True:
        sock.sendall(request_bytes(COMPLETIONS, body(1)))
        head = read_until(sock, b"\r\n\r\n")
        if head.startswith(b"HTTP/1.1 503"):
            assert b"retry-after: 1" in head
            return
        if not head.endswith(END):
            read_until(sock, END)


def test_a_second_signal_ends_at_once(models: Path) -> None:
    with engine(models) as (process, url), connect(url) as sock:
        sock.sendall(request_bytes(COMPLETIONS, body(500)))
        read_until(sock, b'"text"')
        process.send_signal(signal.SIGTERM)
        while select.select([sock], [], [], 0)[0] or process.poll() is None:
            process.send_signal(signal.SIGTERM)
            if not sock.recv(65536):
                break
        assert process.wait(20) == 0


def test_ranks_end_with_a_front_that_was_killed(models: Path) -> None:
    with engine(models, "--admin") as (process, url):
        pids = [os.pidfd_open(rank["pid"]) for rank in call(url, "/admin/ranks").json["ranks"]]
        process.kill()
        for pid in pids:
            assert select.select([pid], [], [], 20)[0]
            os.close(pid)


def test_a_full_queue_answers_503_with_retry_after(models: Path) -> None:
    with engine(models, "--max-running=1", "--max-waiting=1") as (_, url):
        replies = call(url, COMPLETIONS, {"prompt": ["a"] * 20, "model": "windtunnel-tiny", "max_tokens": 30})
        assert replies.status == 503
        assert replies.response.header("retry-after") == "1"
        assert "wait already" in replies.json["error"]["message"]
        while (status := call(url, COMPLETIONS, body(2)).status) == 503:
            pass  # those that were refused are on their way out
        assert status == 200


def test_too_few_ranks_fail_requests_with_their_reason(models: Path) -> None:
    with engine(models, "--ranks=2", "--slots-per-rank=8", "--give-up-s=0.3", "--admin") as (_, url):
        call(url, "/admin/kill_rank", {"rank": 0}, "content-type: application/json")
        reply = call(url, COMPLETIONS, body(20))
        assert reply.status == 503
        assert "no rank served experts" in reply.json["error"]["message"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--ranks=2", "--slots-per-rank=3"], "2 ranks × 3 slots are 6 for 16 experts"),
        (["--host=0.0.0.0", "--admin"], "whoever reaches /admin can kill ranks"),
        (["--config=huge"], "tiny, small"),
        (["--num-heads=7"], "hidden_size: 64 does not divide into 7 heads"),
        (["--kv-tokens=10"], "kv_tokens"),
        (["--rnks=2"], "--rnks"),
    ],
)
def test_what_makes_no_sense_ends_it_with_2_and_the_way_out(models: Path, flags: list[str], words: str) -> None:
    with engine(models, *flags) as (process, _):
        assert process.wait(20) == 2
        assert process.stderr is not None
        assert words in process.stderr.read().decode()


def test_an_address_that_cannot_be_had_is_told(models: Path) -> None:
    with engine(models, "--host=192.0.2.1") as (process, _):
        assert process.wait(20) == 1
        assert process.stderr is not None
        assert "can't listen on 192.0.2.1" in process.stderr.read().decode()


def test_an_embedded_engine_that_makes_no_sense_is_a_mistake_in_its_text(models: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^--embedded: unknown flag --rnks") as caught:
        EmbeddedTarget.start("engine:rnks=3")
    assert "--ranks" in f"{caught.value.message} {caught.value.advice}"
    assert "WT-" not in f"{caught.value.message} {caught.value.advice}"


def test_an_embedded_engine_ends_with_its_parent(small: str) -> None:
    with EmbeddedTarget.start(small) as target:
        pids = [os.pidfd_open(rank["pid"]) for rank in call(target.url, "/admin/ranks").json["ranks"]]
    assert not target.running
    for pid in pids:
        assert select.select([pid], [], [], 20)[0]
        os.close(pid)
