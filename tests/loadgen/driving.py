"""Drives a real target with the real driver, in this process, and returns the records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.engine.serving import paced
from windtunnel.clock import monotonic_ns
from windtunnel.engine.process import EmbeddedTarget
from windtunnel.loadgen.driver import Driver
from windtunnel.loadgen.exchange import Exchange
from windtunnel.loadgen.network import resolve
from windtunnel.measure.record import Record
from windtunnel.readiness import Poller
from windtunnel.units import s_to_ns
from windtunnel.wire.control import Address, Setup, Timeouts, Work
from windtunnel.wire.http1 import parse_url
from windtunnel.wire.openai import ENDPOINTS, Dialect, request_body

_PATIENCE_S = 30.0


def drive(
    base_url: str,
    num: int = 1,
    *,
    dialect: Dialect = "completions",
    tokens: int = 8,
    stream: bool = True,
    slots: int | None = 1,
    due_s: list[float] | None = None,
    timeouts_s: tuple[float, float, float, float] = (5, 10, 10, 20),
    retries: int = 0,
    headers: list[tuple[str, str]] | None = None,
    insecure: bool = False,
    proxy: str | None = None,
    addresses: list[Address] | None = None,
    extra: dict[str, Any] | None = None,
) -> list[Record]:
    """Send `num` requests and return their records in the order of the run."""
    url = parse_url(base_url + ENDPOINTS[dialect])
    at = parse_url(proxy).origin if proxy is not None else url.origin
    setup = Setup(
        0,
        str(url),
        addresses if addresses is not None else resolve(at),
        headers or [],
        dialect,
        stream,
        Timeouts(*(s_to_ns(seconds) for seconds in timeouts_s)),
        insecure,
        proxy,
        retries,
        slots,
        "",
    )
    body = request_body(dialect, "paced", "a prompt of five words", tokens, stream=stream, ignore_eos=True, extra=extra)
    due_ns = [s_to_ns(seconds) for seconds in due_s] if due_s is not None else [0] * num
    records: list[Record] = []

    def keep(exchange: Exchange) -> None:
        records.append(exchange.record(0))

    poller = Poller()
    driver = Driver(setup, poller, keep)
    driver.begin(
        [Work(index, f"r-{index}", body, due, 5, tokens) for index, due in enumerate(due_ns)],
        monotonic_ns(),
        scheduled=due_s is not None,
    )
    give_up_ns = monotonic_ns() + s_to_ns(_PATIENCE_S)
    while not driver.finished:
        driver.step(monotonic_ns() + s_to_ns(0.1))
        assert monotonic_ns() < give_up_ns, "the run hangs"
    driver.close()
    poller.close()
    return sorted(records, key=lambda record: record.index)


@contextmanager
def paced_with_tls(certificate: tuple[str, str]) -> Iterator[str]:
    """The address of a paced target that speaks TLS, in a process of its own, which loads the certificate."""
    with EmbeddedTarget.start(f"paced:ttft=5ms,itl=1ms,tls={certificate[0]}:{certificate[1]}") as target:
        yield target.url


def drive_paced(text: str, num: int = 1, **options: Any) -> list[Record]:
    """Start a target, drive it, stop it."""
    with paced(text) as url:
        return drive(url, num, **options)
