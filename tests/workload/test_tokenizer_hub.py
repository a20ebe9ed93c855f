"""Tokenizers by their hub name. The hub is a server of our own on loopback; nothing may connect anywhere else."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.workload.trained import tokenizer_json

TEMPLATE = "{% for m in messages %}{{ bos_token }}{{ m.content }}{% endfor %}"
REPOSITORIES = {
    "maker/model": {
        "tokenizer.json": tokenizer_json,
        "tokenizer_config.json": lambda _: json.dumps({"bos_token": "<s>", "chat_template": TEMPLATE}),
    },
    "maker/plain": {"tokenizer.json": tokenizer_json},
    "maker/slow": {"tokenizer.model": lambda _: "…"},
    "maker/broken": {"tokenizer.json": lambda _: "{"},
}
NAMES = [*REPOSITORIES, "maker/unknown", "maker/gated", "maker/ill", "no name at all"]

LOAD = """
import json, sys

def only_loopback(event, args):
    if event == "socket.connect" and isinstance(args[1], tuple) and args[1][0] not in ("127.0.0.1", "::1"):
        raise SystemExit(f"connects to {args[1]}")
    if event == "socket.getaddrinfo" and args[0] not in ("127.0.0.1", "localhost", None):
        raise SystemExit(f"looks up {args[0]}")

sys.addaudithook(only_loopback)
from windtunnel.errors import WindtunnelError
from windtunnel.workload.tokenizer.load import load_tokenizer

outcomes = {}
for name in sys.argv[1:]:
    try:
        tokenizer = load_tokenizer(name)
        outcomes[name] = {"count": tokenizer.count("lan ton"), "special": tokenizer.num_special}
        outcomes[name]["rendered"] = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}])
    except WindtunnelError as error:
        outcomes[name] = {**outcomes.get(name, {}), "code": error.code, "says": error.message, "advice": error.advice}
print(json.dumps(outcomes))
"""


class Hub(BaseHTTPRequestHandler):
    """The routes that a download needs: `/OWNER/NAME/resolve/main/FILE`."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        repository, _, file = self.path.lstrip("/").partition("/resolve/main/")
        files = REPOSITORIES.get(repository)
        if repository == "maker/gated":
            self._send(403, b"", {"X-Error-Code": "GatedRepo"}, with_body)
        elif repository == "maker/ill":
            self._send(500, b"", {}, with_body)
        elif files is None:
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"}, with_body)
        elif file not in files:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": "c" * 40}, with_body)
        else:
            body = files[file]("gpt2").encode()
            tag = hashlib.sha256(body).hexdigest()
            self._send(200, body, {"ETag": f'"{tag}"', "X-Repo-Commit": "c" * 40}, with_body)

    def _send(self, status: int, body: bytes, headers: dict[str, str], with_body: bool) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def load(endpoint: str, home: Path, *names: str, **environment: str) -> dict[str, dict[str, Any]]:
    """What a process of its own gets for these names: the library reads its environment when it is imported."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    home.mkdir(exist_ok=True)
    settings = {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", LOAD, *names],
        env=kept | settings | environment,
        capture_output=True,
        text=True,
        cwd=home,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def hub() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hub")


@pytest.fixture(scope="module")
def online(hub: str, home: Path) -> dict[str, dict[str, Any]]:
    return load(hub, home, *NAMES)


def test_a_hub_name_is_downloaded_with_its_chat_template(online: dict[str, dict[str, Any]]) -> None:
    assert online["maker/model"] == {"count": 2, "special": 0, "rendered": "<s>hi"}


def test_a_repository_without_a_template_still_counts(online: dict[str, dict[str, Any]]) -> None:
    assert online["maker/plain"]["count"] == 2
    assert "no chat template" in online["maker/plain"]["says"]


@pytest.mark.parametrize(
    ("name", "says", "advice"),
    [
        ("maker/unknown", "doesn't know it", "HF_TOKEN"),
        ("maker/gated", "consent", "HF_TOKEN"),
        ("maker/slow", "without a tokenizer.json", "save_pretrained"),
        ("maker/broken", "can't be loaded", "--tokenizer server"),
        ("maker/ill", "answered HTTP 500", "--tokenizer"),
        ("no name at all", "OWNER/NAME", "--tokenizer"),
    ],
)
def test_a_hub_that_does_not_give_a_tokenizer_says_why_and_the_way_out(
    online: dict[str, dict[str, Any]], hub: str, name: str, says: str, advice: str
) -> None:
    outcome = online[name]
    assert outcome["code"] == "WT-TOKENIZER"
    assert says in outcome["says"]
    assert advice in outcome["advice"]
    assert hub in outcome["says"] or name in ("no name at all", "maker/broken")


def test_what_was_downloaded_is_used_without_a_network(online: dict[str, dict[str, Any]], hub: str, home: Path) -> None:
    offline = load(hub, home, "maker/model", "maker/unknown", HF_HUB_OFFLINE="1")
    assert offline["maker/model"] == online["maker/model"]
    assert "not in the hub's cache, and HF_HUB_OFFLINE is set" in offline["maker/unknown"]["says"]


def test_a_hub_that_is_down_is_named(tmp_path: Path) -> None:
    outcome = load("http://127.0.0.1:1", tmp_path / "empty", "maker/model")["maker/model"]
    assert "the hub http://127.0.0.1:1 can't be reached" in outcome["says"]
