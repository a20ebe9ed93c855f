"""The embedded target as a process: it starts, says why if it can't, and never outlives its parent."""

from __future__ import annotations

import os
import select
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.certificates import make_certificate
from tests.engine.serving import COMPLETIONS, call, completion
from windtunnel.engine.process import EmbeddedTarget
from windtunnel.errors import ConfigurationError, TargetLost

MODULE = [sys.executable, "-m", "windtunnel.engine.paced"]


def test_a_target_serves_until_it_is_stopped() -> None:
    with EmbeddedTarget.start("paced:ttft=1ms,itl=1ms") as target:
        assert len(call(target.url, COMPLETIONS, completion(3)).stamps) == 3
        assert target.running
        target.check()
        assert os.getpgid(target.pid) == target.pid != os.getpgid(0)
    assert not target.running
    target.stop()


def test_a_target_serves_https_on_ipv6(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    with EmbeddedTarget.start(f"tls={certificate}:{key}", host="::1") as target:
        assert target.url.startswith("https://[::1]:")
        trusted = ssl.create_default_context(cafile=str(certificate))
        assert len(call(target.url, COMPLETIONS, completion(2), tls=trusted).stamps) == 2


def test_the_key_is_on_no_command_line() -> None:
    with EmbeddedTarget.start("paced:key=sk-secret") as target:
        assert call(target.url, "/v1/models").status == 401
        assert call(target.url, "/v1/models", None, "authorization: Bearer sk-secret").status == 200
        assert b"sk-secret" not in Path(f"/proc/{target.pid}/cmdline").read_bytes()
        assert b"sk-secret" not in Path(f"/proc/{target.pid}/environ").read_bytes()


def test_a_text_that_makes_no_sense_starts_nothing() -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'ttft'"):
        EmbeddedTarget.start("paced:tft=5ms")


def test_a_target_that_cannot_start_is_lost_with_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(TargetLost, match=r"did not start: can't listen on 192\.0\.2\.1 port 0"):
        EmbeddedTarget.start("paced", host="192.0.2.1")
    with pytest.raises(ConfigurationError, match=r"can't use .*no.pem"):
        EmbeddedTarget.start(f"tls={tmp_path}/no.pem:{tmp_path}/no.key")


def test_a_target_that_was_killed_is_lost() -> None:
    with EmbeddedTarget.start("paced") as target:
        os.kill(target.pid, signal.SIGKILL)
        os.waitid(os.P_PID, target.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(TargetLost, match="ended"):
            target.check()


def wait_ended(pidfd: int) -> bool:
    """The process ended, in time; on a machine that is busy a little later."""
    return bool(select.select([pidfd], [], [], 20.0)[0])


PARENT = """
import sys
from windtunnel.engine.process import EmbeddedTarget
with EmbeddedTarget.start("paced") as target:
    print(target.pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_target_is_left_when_its_parent_is_killed(number: signal.Signals) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    with parent:
        assert parent.stdout is not None
        pidfd = os.pidfd_open(int(parent.stdout.readline()))
        try:
            assert not select.select([pidfd], [], [], 0)[0]
            parent.send_signal(number)
            assert wait_ended(pidfd)
        finally:
            os.close(pidfd)


def start_by_hand(*arguments: str, stdin: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*MODULE, *arguments], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def first_line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_mid_stream(number: signal.Signals) -> None:
    with start_by_hand("fault=stall", stdin=subprocess.PIPE) as process:
        url = first_line(process)
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as sock:
            sock.sendall(b"POST /v1/completions HTTP/1.1\r\ncontent-length: 14\r\n\r\n" + b'{"prompt":"a"}')
            process.send_signal(number)
            assert process.wait(5) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_it_ends_when_its_input_ends() -> None:
    with start_by_hand("ttft=1ms", stdin=subprocess.PIPE) as process:
        assert first_line(process).startswith("http://127.0.0.1:")
        assert process.stdin is not None
        process.stdin.write(b"words that nobody reads\n")
        process.stdin.close()
        assert process.wait(5) == 0


def test_without_a_parent_at_its_input_it_serves_on() -> None:
    with start_by_hand(stdin=subprocess.DEVNULL) as process:
        assert call(first_line(process), "/health").status == 200
        process.terminate()
        assert process.wait(5) == 0


def test_wrong_arguments_end_it_with_2_and_the_way_out() -> None:
    with start_by_hand("tft=5ms", stdin=subprocess.PIPE) as process:
        _, words = process.communicate(timeout=10)
    assert process.returncode == 2
    assert b"did you mean 'ttft'?" in words
    assert b"The keys are: ttft, itl" in words
    assert b"Traceback" not in words


def test_a_port_in_use_ends_it_with_1() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with start_by_hand("--port", str(port), stdin=subprocess.PIPE) as process:
            _, words = process.communicate(timeout=10)
    assert process.returncode == 1
    assert f"can't listen on 127.0.0.1 port {port}".encode() in words
    assert b"Traceback" not in words


def test_the_help_tells_all_keys_and_faults() -> None:
    printed = subprocess.run([*MODULE, "--help"], capture_output=True, check=True, text=True).stdout
    assert "ttft=DURATION" in printed
    assert "truncated_done" in printed
