"""The command in a process of its own, and requests to it over real connections."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

COMMAND = (sys.executable, "-m", "windtunnel", "catalog", "serve", "--port", "0")


class Server:
    """A running server."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.process, self.address = process, address

    def end(self, number: int) -> int:
        """Its exit code after a signal."""
        self.process.send_signal(number)
        return self.process.wait(20)


@contextmanager
def serving(*arguments: str) -> Iterator[Server]:
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            match = re.fullmatch(r"serving the catalog at (http://[\w.\[\]:]+)/\n", line)
            assert match, line
            yield Server(process, match[1])
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)


class Got:
    """An answer, read to its end."""

    def __init__(self, response: HTTPResponse) -> None:
        self.status, self.headers, self.body = response.status, response.headers, response.read()
        self.text = self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(address: str, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Got:
    connection = HTTPConnection(urlsplit(address).netloc, timeout=30)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        return Got(connection.getresponse())
    finally:
        connection.close()
