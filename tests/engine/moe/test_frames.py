"""Work and answers survive the way over a socket, in whatever pieces they come."""

from __future__ import annotations

import numpy as np
import pytest

from windtunnel.engine.moe.frames import (
    Answer,
    Frames,
    Kind,
    Status,
    Work,
    answer_frame,
    answer_of,
    frame,
    work_frame,
    work_of,
)

RNG = np.random.default_rng(0)
WORK = Work(
    2**40, 2**45, 3, np.array([1, 1, 5], np.uint16), np.array([9, 9, 70], np.uint16),
    RNG.integers(-127, 127, (3, 8), np.int8),
)  # fmt: skip
ANSWER = Answer(2**40, Status.DONE, RNG.integers(-127, 127, (3, 8), np.int8))
STALE = Answer(7, Status.STALE, np.empty((0, 0), np.int8))
STREAM = work_frame(WORK) + answer_frame(ANSWER) + frame(Kind.READY) + answer_frame(STALE)


@pytest.mark.parametrize("size", [1, 2, 7, len(STREAM) - 1, len(STREAM), len(STREAM) + 1])
def test_frames_come_whole_in_whatever_pieces(size: int) -> None:
    frames = Frames()
    whole = [one for start in range(0, len(STREAM), size) for one in frames.feed(STREAM[start : start + size])]
    assert [kind for kind, _ in whole] == [Kind.WORK, Kind.ANSWER, Kind.READY, Kind.ANSWER]
    work, answer, stale = work_of(whole[0][1]), answer_of(whole[1][1]), answer_of(whole[3][1])
    assert work[:3] == WORK[:3]
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(work[3:], WORK[3:], strict=True))
    assert answer[:2] == ANSWER[:2] and np.array_equal(answer.activations, ANSWER.activations)
    assert stale[:2] == STALE[:2] and len(stale.activations) == 0


def test_a_length_that_can_not_be_is_refused() -> None:
    with pytest.raises(ValueError, match="bytes"):
        Frames().feed(b"\xff\xff\xff\xff\x02")
