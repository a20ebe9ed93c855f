"""Event streams are read the same whatever the split of their bytes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.wire.sse import Event, EventStream, Stray

STREAMS = {
    "plain": (b'data: {"a":1}\n\ndata: [DONE]\n\n', [b'{"a":1}', b"[DONE]"]),
    "crlf": (b'data: {"a":1}\r\n\r\ndata: 2\r\n\r\n', [b'{"a":1}', b"2"]),
    "cr": (b"data: 1\r\rdata: 2\r\r", [b"1", b"2"]),
    "no space": (b"data:1\n\ndata:  2\n\n", [b"1", b" 2"]),
    "comments": (b": ping\n\n:\n\ndata: 1\n: ping\n\n:\ndata: 2\n\n", [b"1", b"2"]),
    "fields": (b"event: delta\nid: 7\nretry: 10\ndata: 1\n\n", [b"1"]),
    "several lines": (b'data: {"a":\ndata: 1}\n\n', [b'{"a":\n1}']),
    "byte order mark": (b"\xef\xbb\xbfdata: 1\n\n", [b"1"]),
    "utf-8": ("data: grüße 你好 🎈\n\n".encode(), ["grüße 你好 🎈".encode()]),
    "no last line end": (b"data: 1\n\ndata: [DONE]", [b"1", b"[DONE]"]),
    "no last empty line": (b"data: 1\n\ndata: [DONE]\n", [b"1", b"[DONE]"]),
    "half an end at the end": (b"data: 1\r\n\r\ndata: 2\r", [b"1", b"2"]),
    "empty data": (b"data:\n\ndata: 1\n\n", [b"", b"1"]),
    "data without a colon": (b"data\n\n", [b""]),
    "separators of unicode are no line ends": ("data: a\u2028b\u0085c\n\n".encode(), ["a\u2028b\u0085c".encode()]),
}


def read(pieces: list[bytes]) -> list[Event | Stray]:
    stream = EventStream()
    out = [event for stamp, piece in enumerate(pieces, 1) for event in stream.feed(piece, stamp)]
    return out + stream.finish(len(pieces))


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_fed_whole_gives_its_events(name: str) -> None:
    raw, expected = STREAMS[name]
    assert [event.data for event in read([raw]) if isinstance(event, Event)] == expected


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_fed_byte_by_byte_gives_the_same_events(name: str) -> None:
    raw, expected = STREAMS[name]
    events = read([raw[i : i + 1] for i in range(len(raw))])
    assert [event.data for event in events if isinstance(event, Event)] == expected


@given(st.sampled_from(sorted(STREAMS)), st.lists(st.integers(0, 80), max_size=6))
def test_any_split_gives_the_same_events(name: str, cuts: list[int]) -> None:
    raw, expected = STREAMS[name]
    edges = [0, *sorted(cut % (len(raw) + 1) for cut in cuts), len(raw)]
    events = read([raw[a:b] for a, b in pairwise(edges)])
    assert [event.data for event in events if isinstance(event, Event)] == expected


def test_an_event_has_the_stamp_of_the_bytes_that_completed_its_data() -> None:
    stream = EventStream()
    assert stream.feed(b"data: 1", 10) == []
    assert stream.feed(b"\n", 20) == []
    (event,) = stream.feed(b"\ndata: 2\n\n", 30)[:1]
    assert isinstance(event, Event)
    assert event.stamp_ns == 20


def test_an_offset_names_the_byte_at_which_the_data_line_begins() -> None:
    events = read([b"data: 1\n\n", b": x\nda", b"ta: 2\n\n"])
    assert [event.offset for event in events] == [0, 13]


def test_a_line_of_no_field_is_told() -> None:
    events = read([b'{"error": "x"}\n\ndata: 1\n\n'])
    assert events[0] == Stray(b'{"error": "x"}', 0)


def test_the_type_of_an_event_lasts_for_one_event() -> None:
    first, second = read([b"event: error\ndata: 1\n\ndata: 2\n\n"])
    assert isinstance(first, Event)
    assert isinstance(second, Event)
    assert (first.type, second.type) == (b"error", b"message")


def test_comments_are_counted() -> None:
    stream = EventStream()
    stream.feed(b": ping\n\n:\n\n", 1)
    assert stream.comments == 2
