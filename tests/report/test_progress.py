"""The progress of a run, as a line and as a bar."""

from __future__ import annotations

import io

import pytest
from msgspec import structs
from rich.console import Console

from windtunnel.report.progress import Progress, progress_bar, progress_line

NOW = Progress(total=1000, done=412, in_flight=64, failed=2, rate_per_s=38.16, median_ttft_ms=51.24, elapsed_s=11.2)


def rendered(progress: Progress, columns: int = 120) -> str:
    stream = io.StringIO()
    Console(file=stream, width=columns).print(progress_bar(progress))
    return stream.getvalue()


def test_a_line_says_how_far_the_run_is() -> None:
    assert progress_line(NOW) == "412/1000 done, 64 in flight, 2 failed, 38.2 req/s, median TTFT 51.2 ms, 11 s"


def test_a_median_that_is_not_there_yet_is_left_out() -> None:
    early = structs.replace(NOW, median_ttft_ms=None)
    assert progress_line(early) == "412/1000 done, 64 in flight, 2 failed, 38.2 req/s, 11 s"


def test_a_long_run_is_told_in_minutes() -> None:
    assert progress_line(structs.replace(NOW, elapsed_s=125.0)).endswith(", 2 min 5 s")


def test_a_bar_has_the_figures_of_the_line_on_one_line() -> None:
    text = rendered(NOW)
    assert text.count("\n") == 1
    assert "412/1000 64 in flight, 2 failed, 38.2 req/s, median TTFT 51.2 ms, 11 s" in text


@pytest.mark.parametrize(
    "changes", [{}, {"done": 1000, "failed": 100, "rate_per_s": 2345.6, "median_ttft_ms": 12345.6}]
)
def test_a_terminal_of_80_columns_has_room_for_all_figures(changes: dict[str, float]) -> None:
    now = structs.replace(NOW, **changes)
    text = rendered(now, columns=80)
    assert text.count("\n") == 1
    assert progress_line(now).split(" done, ")[1] in text and f"{now.done}/1000" in text
    assert "━" in text


def test_a_bar_grows_and_is_full_at_the_end() -> None:
    empty, half, full = (rendered(structs.replace(NOW, done=done)).count("━") for done in (0, 500, 1000))
    assert (empty, half, full) == (0, 10, 20)
