"""How a request can go wrong: for each name that `fault=` can have, the script of the answer."""

from __future__ import annotations

from collections.abc import Callable

from windtunnel.clock import monotonic_ns
from windtunnel.engine.paced.answer import NEVER, Answer, StreamedAnswer, WholeAnswer, serve
from windtunnel.engine.pacer import Script
from windtunnel.units import NS_PER_MS
from windtunnel.wire.http1 import STATUS_REASONS
from windtunnel.wire.openai import error_body

_KEEP_ALIVE_NS = 50 * NS_PER_MS
_HEAD_PIECES = 8
_ERROR = error_body("the engine died while it generated this answer", "internal_server_error", 500)
_HTML = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body>Please sign in to the gateway.</body></html>"

_StreamFault = Callable[[StreamedAnswer], Script]
_Fault = Callable[[Answer], Script]


def fault_at(answer: Answer) -> int:
    """The number of tokens that come before the fault: half of them, where the configuration does not say."""
    after = answer.config.fault_after
    return answer.output_tokens // 2 if after is None else min(after, answer.output_tokens)


def _until_fault(answer: Answer) -> Script:
    yield from answer.head()
    yield from answer.begin()
    yield from answer.tokens(0, fault_at(answer))


def _truncated(answer: Answer) -> Script:
    yield from _until_fault(answer)
    yield from answer.end()


def _truncated_done(answer: StreamedAnswer) -> Script:
    yield from _until_fault(answer)
    yield from answer.send_done()
    yield from answer.end()


def _cut(answer: Answer) -> Script:
    yield from _until_fault(answer)
    answer.exchange.close()


def _reset(answer: Answer) -> Script:
    yield from _until_fault(answer)
    yield answer.due_ns(fault_at(answer))  # a reset drops what is not sent yet, so not with the last token
    answer.exchange.reset()


def _reset_before(answer: Answer) -> Script:
    yield from ()
    answer.exchange.reset()


def _close_before(answer: Answer) -> Script:
    yield from ()
    answer.exchange.close()


def _inband_error(answer: StreamedAnswer) -> Script:
    yield from _until_fault(answer)
    yield from answer.send_event(_ERROR)
    yield from answer.send_done()
    yield from answer.end()


def _error_only(answer: Answer) -> Script:
    yield answer.due_ns(0)
    answer.exchange.respond(200, _ERROR)


def _stall(answer: Answer) -> Script:
    yield from _until_fault(answer)
    while True:
        yield NEVER


def _stall_pings(answer: StreamedAnswer) -> Script:
    yield from _until_fault(answer)
    while True:
        yield monotonic_ns() + _KEEP_ALIVE_NS
        yield from answer.send_comment()


def _no_first(answer: Answer) -> Script:
    yield from answer.head()
    while True:
        yield NEVER


def _no_answer(answer: Answer) -> Script:
    while True:
        yield NEVER


def _malformed_event(answer: StreamedAnswer) -> Script:
    yield from _until_fault(answer)
    first = fault_at(answer)
    last = min(first + answer.config.tokens, answer.output_tokens)
    answer.damage = True
    yield from answer.tokens(first, last)
    answer.damage = False
    yield from answer.tokens(last, answer.output_tokens)
    yield from answer.conclude()
    yield from answer.end()


def _malformed_all(answer: Answer) -> Script:
    answer.damage = True
    yield from serve(answer)


def _stray(answer: StreamedAnswer) -> Script:
    yield from _until_fault(answer)
    yield from answer.send_line(b"upstream is slow, please wait")
    yield from answer.tokens(fault_at(answer), answer.output_tokens)
    yield from answer.conclude()
    yield from answer.end()


def _not_http(answer: Answer) -> Script:
    yield from answer.send(b"SSH-2.0-OpenSSH_9.6\r\n")
    answer.exchange.close()


def _html(answer: Answer) -> Script:
    yield from ()
    answer.exchange.respond(200, _HTML, headers=[("content-type", "text/html; charset=utf-8")])


def _one_piece(answer: StreamedAnswer) -> Script:
    yield answer.due_ns(max(answer.output_tokens - 1, 0))
    yield from answer.send(answer.all_at_once())
    answer.release()


def _redirect(answer: Answer) -> Script:
    yield from ()
    target = answer.exchange.request.target.partition("?")[0]
    answer.exchange.respond(307, b"", headers=[("location", f"{target}?redirected=1")])


def _redirect_loop(answer: Answer) -> Script:
    yield from ()
    answer.exchange.respond(307, b"", headers=[("location", answer.exchange.request.target)])


def _slow_head(answer: StreamedAnswer) -> Script:
    head = answer.encoder.head()
    arrived_ns = answer.exchange.arrived.monotonic_ns
    ttft_ns = answer.due_ns(0) - arrived_ns
    size = -(-len(head) // _HEAD_PIECES)
    for number, start in enumerate(range(0, len(head), size)):
        yield arrived_ns + ttft_ns * number // _HEAD_PIECES
        yield from answer.send(head[start : start + size])
    yield from answer.begin()
    yield from answer.tokens(0, answer.output_tokens)
    yield from answer.conclude()
    yield from answer.end()


def _status(status: int) -> _Fault:
    def script(answer: Answer) -> Script:
        yield from ()
        kind = "invalid_request_error" if status < 500 else "internal_server_error"
        body = error_body(f"{STATUS_REASONS.get(status, 'Status')}: this target was told to answer so", kind, status)
        retry_after = answer.config.retry_after
        answer.exchange.respond(status, body, headers=[("retry-after", retry_after)] if retry_after else [])

    return script


ANY: dict[str, _Fault] = {
    "truncated": _truncated,
    "cut": _cut,
    "reset": _reset,
    "reset_before": _reset_before,
    "close_before": _close_before,
    "error_only": _error_only,
    "stall": _stall,
    "no_first": _no_first,
    "no_answer": _no_answer,
    "malformed_all": _malformed_all,
    "not_http": _not_http,
    "html": _html,
    "redirect": _redirect,
    "redirect_loop": _redirect_loop,
    "json": serve,  # the answer is made whole
    "short": serve,  # the answer is made with fewer tokens
    "zero": serve,
}
"""Faults of streamed and of whole answers."""

STREAMED: dict[str, _StreamFault] = {
    "truncated_done": _truncated_done,
    "inband_error": _inband_error,
    "stall_pings": _stall_pings,
    "malformed_event": _malformed_event,
    "stray": _stray,
    "one_piece": _one_piece,
    "slow_head": _slow_head,
}
"""Faults of streamed answers."""

OF_WHOLE: dict[str, _Fault] = {
    "truncated_done": _truncated,
    "inband_error": _error_only,
    "stall_pings": _stall,
    "malformed_event": _malformed_all,
    "stray": _malformed_all,
    "one_piece": serve,
    "slow_head": serve,
}
"""What comes nearest to them where no stream was asked for."""


def script_of(fault: str | None, answer: StreamedAnswer | WholeAnswer) -> Script:
    """The script of an answer, in order or with a fault."""
    if fault is None:
        return serve(answer)
    if fault.isdigit():
        return _status(int(fault))(answer)
    if fault in ANY:
        return ANY[fault](answer)
    return STREAMED[fault](answer) if isinstance(answer, StreamedAnswer) else OF_WHOLE[fault](answer)
