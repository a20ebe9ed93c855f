"""`windtunnel catalog serve`, as a user begins and ends it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

import pytest
from tests.catalog.trees import TRANSFERS, store_of
from tests.catalog.web.serving import COMMAND, ask, serving

from windtunnel.cli.catalog_serve import run
from windtunnel.errors import ConfigurationError, StoreMissing, StoreUnusable


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(store_of(tmp_path, TRANSFERS, "link"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order_and_frees_the_port(store: str, number: int) -> None:
    with serving("--store", store) as server:
        port = int(server.address.rpartition(":")[2])
        idle = HTTPConnection("127.0.0.1", port, timeout=30)
        idle.request("GET", "/")
        assert idle.getresponse().read()  # and the connection stays open
        assert server.end(number) == 0
        idle.close()
        assert server.process.stdout is not None and server.process.stdout.read() == ""
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_nobody_but_this_machine_reaches_it_unless_that_is_asked_for(store: str) -> None:
    with serving("--store", store) as server:
        assert server.address.startswith("http://127.0.0.1:")
        assert server.end(signal.SIGTERM) == 0
    command = [*COMMAND, "--host", "0.0.0.0", "--store", store]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert "0.0.0.0 may be reached from other machines" in process.stderr.readline()
        assert process.stdout.readline().startswith("serving the catalog at http://0.0.0.0:")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_a_name_is_answered_to_only_where_it_is_allowed(store: str) -> None:
    with serving("--store", store, "--allow-host", "errors.example", "other.example") as server:
        assert ask(server.address, "/", Host="errors.example").status == 200
        assert ask(server.address, "/", Host="Other.Example:80").status == 200
        assert ask(server.address, "/", Host="third.example").status == 421


def test_a_port_that_is_taken_is_an_error_that_says_so(store: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"{port} is in use"):
            run(["--store", store, "--port", str(port)])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--port", "70000"], "70000"), (["--port", "x"], "whole number"),
     (["--host", "192.0.2.1"], "can't listen"), (["--host", "no such host"], "is no address")],
)  # fmt: skip
def test_an_address_that_can_not_be_had_is_an_error(store: str, arguments: list[str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        run(["--store", store, *arguments])


def test_a_store_that_is_missing_or_broken_is_told_before_anything_is_served(tmp_path: Path) -> None:
    with pytest.raises(StoreMissing):
        run(["--store", str(tmp_path / "none")])
    broken = tmp_path / "broken"
    broken.write_bytes(b"no database " * 1000)
    with pytest.raises(StoreUnusable):
        run(["--store", str(broken)])


def test_help_imports_no_server() -> None:
    heavy = ("starlette", "uvicorn", "jinja2", "tree_sitter", "numpy", "sqlite3")
    code = "import sys; from windtunnel.cli.catalog_serve import parser; parser().format_help(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(heavy) & set(done.stdout.split())
