"""How the command finds its target: it waits, follows redirects, tries all addresses, asks for the model."""

from __future__ import annotations

import re
import socket
import subprocess
from pathlib import Path

import pytest

from tests.bench.command import LENGTHS, TARGET, WORDS, Running, assert_ran, run, serve, wait_until
from tests.engine.serving import Front, answering, fronted, paced
from windtunnel.engine.server import Exchange


def test_a_server_that_is_not_there_is_told_after_how_long_and_why(tmp_path: Path) -> None:
    done = run(tmp_path, "bench", "serve", "--port", 1, "--ready-check-timeout-sec", 1, *LENGTHS, "--num-prompts", 1)
    assert done.returncode == 1
    waited = re.search(r"not ready after ([0-9.]+) s: no connection to http://127.0.0.1:1 \(refused\)", done.stderr)
    assert waited is not None, done.stderr
    assert float(waited[1]) >= 1
    assert "s left" in done.stderr


def test_a_server_that_comes_up_while_it_is_waited_for_is_measured(tmp_path: Path) -> None:
    with socket.socket() as reserved:
        # bound and not listening: nobody else is given the port, and connections are refused
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        arguments = ("--port", port, "--ready-check-timeout-sec", 60, *WORDS, *LENGTHS, "--num-prompts", 3)
        with Running(tmp_path, "bench", "serve", *arguments) as client:
            wait_until(lambda: "s left" in client.errors, "the client waits")
            with paced(TARGET, port=port):
                done = client.finish()
    assert_ran(done)
    assert "(refused)" in done.stderr
    assert re.search(r"Successful requests: +3\b", done.stdout)


def test_the_first_model_of_the_server_is_taken_when_none_is_named(tmp_path: Path) -> None:
    with paced(TARGET) as url:
        done, result = serve(tmp_path, "--base-url", url, "--tokenizer", "server", *LENGTHS, "--num-prompts", 3)
    assert_ran(done)
    assert result["model_id"] == "paced"
    assert result["total_input_tokens"] == 48


def test_a_redirect_of_the_models_is_followed(tmp_path: Path) -> None:
    with fronted(TARGET) as front:

        def redirect(exchange: Exchange) -> None:
            exchange.respond(307, b"", headers=[("location", f"{front.url}{exchange.request.target}")])

        with answering(redirect) as url:
            done, result = serve(
                tmp_path, "--base-url", url, "--tokenizer", "windtunnel-words", *LENGTHS, "--num-prompts", 3
            )
    assert_ran(done)
    assert (result["model_id"], result["completed"]) == ("paced", 3)
    assert num_asked(front, "/v1/models") == 1
    assert result["windtunnel"]["requests"]["redirects"] == [1, 1, 1]


def num_asked(front: Front, path: str) -> int:
    return sum(request.target == path for request in front.requests)


# --- a name with several addresses ------------------------------------------------------------------------------


def localhost_of_two_families(folder: Path) -> tuple[str, ...]:
    """What makes a command see ::1 and 127.0.0.1 as localhost: nothing, or a mount namespace with hosts of its own."""
    families = {found[0] for found in socket.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)}
    if len(families) > 1:
        return ()
    hosts = folder / "hosts"
    hosts.write_text("::1 localhost\n127.0.0.1 localhost\n")
    script = 'mount --bind "$0" /etc/hosts && exec "$@"'
    before = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, str(hosts))
    try:
        subprocess.run([*before, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("localhost has one family here, and this user can make no mount namespace to change that")
    return before


def test_of_several_addresses_the_one_that_listens_is_taken_and_named(tmp_path: Path) -> None:
    before = localhost_of_two_families(tmp_path)
    with paced(TARGET) as url:
        port = url.rpartition(":")[2]
        arguments = ("--host", "localhost", "--port", port, *WORDS, *LENGTHS, "--num-prompts", 3)
        with Running(tmp_path, "bench", "serve", *arguments, before=before) as client:
            done = client.finish()
    assert_ran(done)
    assert re.search(r"Successful requests: +3\b", done.stdout)
    assert "localhost is 127.0.0.1 here (also known: ::1)" in done.stderr
