"""/admin: ranks that are killed, stopped, slowed and started anew under load, and those who follow it."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.engine.serving import COMPLETIONS, Reply, call, completion, connect, read_until, request_bytes
from windtunnel.engine.process import EmbeddedTarget
from windtunnel.wire.sse import Event, EventStream

JSON = "content-type: application/json"
PROMPTS = [[number, number + 7, 300] for number in range(300, 306)]
TOKENS = 200


@pytest.fixture
def hurt(small: str) -> Iterator[str]:
    """The address of an engine for one test."""
    with EmbeddedTarget.start(small) as target:
        yield target.url


@pytest.fixture(scope="module")
def undisturbed(url: str) -> list[str]:
    return answers(url)


def deed(url: str, path: str, **body: Any) -> Reply:
    return call(url, f"/admin/{path}", body, JSON)


def ranks(url: str) -> list[dict[str, Any]]:
    return call(url, "/admin/ranks").json["ranks"]


def body_of(prompt: list[int]) -> dict[str, Any]:
    return completion(TOKENS, prompt=prompt, model="windtunnel-tiny", temperature=0, ignore_eos=True)


def answers(url: str, after_first_token: Callable[[], object] = lambda: None) -> list[str]:
    """The texts of all prompts, asked at once; `after_first_token` is called when one has begun to be answered."""
    replies: list[bytes] = [b""] * len(PROMPTS)
    begun = threading.Event()

    def ask(index: int) -> None:
        with connect(url) as sock:
            sock.settimeout(60)
            sock.sendall(request_bytes(COMPLETIONS, body_of(PROMPTS[index])))
            data = read_until(sock, b'"text"')
            begun.set()
            replies[index] = data if data.endswith(b"0\r\n\r\n") else data + read_until(sock, b"\r\n0\r\n\r\n")

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(len(PROMPTS))]
    for thread in threads:
        thread.start()
    assert begun.wait(30)
    after_first_token()
    for thread in threads:
        thread.join()
    return ["".join(Reply(reply, "fin").texts) for reply in replies]


@contextmanager
def events(url: str, query: str = "") -> Iterator[Iterator[dict[str, Any]]]:
    """What /admin/events tells, as it comes."""

    def read(sock: socket.socket) -> Iterator[dict[str, Any]]:
        data, stream = read_until(sock, b"\r\n\r\n").partition(b"\r\n\r\n")[2], EventStream()
        while True:
            while b"\r\n" in data:
                size, _, rest = data.partition(b"\r\n")
                if len(rest) < (length := int(size, 16)) + 2:
                    break
                for event in stream.feed(rest[:length], 0):
                    if isinstance(event, Event):
                        yield json.loads(event.data)
                data = rest[length + 2 :]
            data += sock.recv(65536)

    with connect(url) as sock:
        sock.sendall(request_bytes(f"/admin/events{query}"))
        yield read(sock)


def wait_for(found: Iterator[dict[str, Any]], what: str) -> dict[str, Any]:
    return next(event for event in found if event["what"] == what)


def test_ranks_are_told_with_what_they_do(url: str) -> None:
    told = call(url, "/admin/ranks").json
    assert told["epoch"] >= 1
    for rank in told["ranks"]:
        assert (rank["state"], rank["live"], rank["routed"]) == ("serving", True, True)
        assert Path(f"/proc/{rank['pid']}").exists()


def test_a_killed_rank_changes_no_token_and_comes_back_when_asked(hurt: str, undisturbed: list[str]) -> None:
    with events(hurt) as found:
        assert answers(hurt, lambda: deed(hurt, "kill_rank", rank=1)) == undisturbed
        killed, evicted = wait_for(found, "killed"), wait_for(found, "evicted")
        assert killed["facts"]["rank"] == 1
        assert evicted["at_ns"] > killed["at_ns"]
        assert evicted["facts"]["ranks"] == [1]
        assert [(rank["state"], rank["live"]) for rank in ranks(hurt)][1] == ("ended", False)
        assert deed(hurt, "restart_rank", rank=1).status == 200
        wait_for(found, "serving")
    assert ranks(hurt)[1]["live"]
    assert answers(hurt) == undisturbed


def test_a_hung_rank_changes_no_token_and_goes_on_when_it_is_resumed(hurt: str, undisturbed: list[str]) -> None:
    with events(hurt) as found:
        assert answers(hurt, lambda: deed(hurt, "hang_rank", rank=2)) == undisturbed
        wait_for(found, "evicted")
        assert ranks(hurt)[2]["state"] == "stopped"
        assert deed(hurt, "resume_rank", rank=2).status == 200
        wait_for(found, "joined")
    assert answers(hurt) == undisturbed


def test_a_slow_rank_changes_no_token(hurt: str, undisturbed: list[str]) -> None:
    assert deed(hurt, "slow_rank", rank=0, delay_s=0.002).status == 200
    assert answers(hurt) == undisturbed


def test_a_rank_fails_at_the_transition_that_was_named(hurt: str, undisturbed: list[str]) -> None:
    answers(hurt)  # a load that the first placement does not fit
    # a transition that every rank comes to, whether or not it has experts to copy
    assert deed(hurt, "fail_at", rank=3, transition="verified+publish", how="kill").status == 200
    with events(hurt) as found:
        assert answers(hurt, lambda: deed(hurt, "rebalance")) == undisturbed
        assert wait_for(found, "evicted")["facts"]["ranks"] == [3]
    assert [rank["state"] for rank in ranks(hurt)] == ["serving", "serving", "serving", "ended"]


def test_a_rebalance_is_answered_when_it_has_ended(url: str) -> None:
    outcome = deed(url, "rebalance").json
    assert outcome["outcome"] in ("committed", "nothing to do")
    assert outcome["at_ns"] >= outcome["asked_at_ns"]


@pytest.mark.parametrize(
    ("path", "body", "word"),
    [
        ("kill_rank", {"rank": 9}, "There are ranks 0 to 3"),
        ("kill_rank", {}, "rank"),
        ("kill_rank", {"rank": 1, "hard": True}, "hard"),
        ("slow_rank", {"rank": 1, "delay_s": 1e9}, "delay_s"),
        ("slow_rank", {"rank": 1, "delay_s": -1}, "delay_s"),
        ("fail_at", {"rank": 1, "transition": "transfering+copied"}, "did you mean transferring"),
        ("fail_at", {"rank": 1, "transition": "transferring+copied", "how": "burn"}, "burn"),
        ("fail_at", {"rank": 1, "transition": "transferring+copied", "occurrence": 0}, "occurrence"),
        ("restart_rank", {"rank": -1}, "no rank -1"),
    ],
)
def test_a_deed_that_makes_no_sense_is_refused_and_not_done(
    url: str, path: str, body: dict[str, Any], word: str
) -> None:
    reply = deed(url, path, **body)
    assert reply.status == 400
    assert word in reply.json["error"]["message"]
    assert {rank["state"] for rank in ranks(url)} == {"serving"}


def test_a_page_of_another_site_can_do_no_deed(url: str) -> None:
    reply = call(url, "/admin/kill_rank", {"rank": 1}, "content-type: text/plain")
    assert reply.status == 415
    assert ranks(url)[1]["state"] == "serving"


def test_events_can_be_asked_for_after_an_instant(url: str) -> None:
    with events(url) as found:
        last = wait_for(found, "serving")
    with events(url, f"?after={last['at_ns']}") as found:
        assert next(found)["at_ns"] > last["at_ns"]
    assert call(url, "/admin/events?after=noon").status == 400


def test_without_admin_there_is_no_admin(small: str) -> None:
    with EmbeddedTarget.start(small.replace("admin,", "")) as target:
        assert call(target.url, "/admin/ranks").status == 404


def test_a_rank_that_was_killed_from_outside_is_told_too(hurt: str) -> None:
    with events(hurt) as found:
        os.kill(ranks(hurt)[0]["pid"], signal.SIGKILL)
        assert wait_for(found, "disconnected")["facts"]["rank"] == 0
        assert wait_for(found, "evicted")["facts"]["ranks"] == [0]
