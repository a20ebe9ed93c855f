"""What conditions ask for: the load's counts, the engine's ranks, the target's metrics."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.engine.serving import answering
from windtunnel.drill.admin import Admin
from windtunnel.drill.gauges import Gauges
from windtunnel.engine.server import Exchange
from windtunnel.loadgen.watcher import Counts

METRICS = b"""\
# HELP vllm:num_requests_running Requests that run.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a \\"b\\""} 3.0
vllm:num_requests_running{engine="1",model_name="c"} 4 1700000000000
up 1
broken line here
nonsense x
"""
RANKS = {"epoch": 7, "balancedness": None, "ranks": [{"rank": 0, "live": True}, {"rank": 1, "live": False}]}


def serve(exchange: Exchange) -> None:
    if exchange.request.target == "/metrics":
        exchange.respond(200, METRICS, headers=[("content-type", "text/plain")])
    elif exchange.request.target == "/admin/ranks":
        exchange.respond(200, json.dumps(RANKS).encode())
    else:
        exchange.respond(404, b"{}")


def read(*names: str) -> tuple[dict[str, float], dict[str, str]]:
    with answering(serve) as url:
        gauges = Gauges(url, [], Admin(url))
        values = asyncio.run(gauges.read(names, [Counts(10, completed=3), Counts(10, completed=4)]))
    return values, gauges.problems


def test_counts_of_all_loads_are_added() -> None:
    assert read("completed", "failed") == ({"completed": 7.0, "failed": 0.0}, {})


def test_the_engine_tells_its_epoch_and_its_live_ranks_and_what_it_does_not_know_is_left_out() -> None:
    assert read("epoch", "live_ranks", "balancedness") == ({"epoch": 7.0, "live_ranks": 1.0}, {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("vllm:num_requests_running", 7.0),
        ('vllm:num_requests_running{engine="1"}', 4.0),
        ('vllm:num_requests_running{engine="0",model_name="a \\"b\\""}', 3.0),
        ("up", 1.0),
    ],
)
def test_a_metric_is_the_sum_of_the_samples_that_have_its_labels(name: str, value: float) -> None:
    assert read(name) == ({name: value}, {})


def test_a_metric_that_is_not_there_is_told_with_the_one_that_may_be_meant() -> None:
    values, problems = read("vllm:num_request_running", 'up{job="x"}')
    assert values == {}
    assert "did you mean vllm:num_requests_running?" in problems["vllm:num_request_running"]
    assert 'no up{job="x"}' in problems['up{job="x"}']


def test_what_the_metrics_page_answers_instead_is_told() -> None:
    with answering(lambda exchange: exchange.respond(503, b'{"error": {"message": "loading"}}')) as url:
        gauges = Gauges(url, [], None)
        assert asyncio.run(gauges.read(["up", "epoch"], [])) == {}
    assert gauges.problems["up"] == "/metrics: HTTP 503: loading"
