"""A replay's figures, its table, and its page in a real browser."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from windtunnel.report.replay import PlanPoint, Replay, Series, best_values, cells, columns, rows, write_table
from windtunnel.report.replay_page import page

PLANS = [PlanPoint(2, 0.99, 0.9, 0.5, 6, 0.010), PlanPoint(4, 0.97, 0.8, 0.25, 3, 0.020)]
REPLAY = Replay(
    title="6 steps of <b> layers",
    method="A plan after each 2 steps.",
    first_step=2,
    series=[
        Series("none", [], [0.5, 0.5, 0.4, 0.4]),
        Series("windtunnel", PLANS, [0.9, 0.9, 0.8, 0.8]),
        Series("deepseek-flat", PLANS[:1], [0.7, 0.8], "no <slots>"),
    ],
    expert_bytes=1 << 20,
)


def test_the_figures_of_a_policy_are_means_worst_and_median() -> None:
    none, ours, flat = rows(REPLAY)
    assert (none.plans, none.achieved, none.worst) == (0, pytest.approx(0.45), 0.4)
    assert (none.planned, none.moved_ratio, none.moved_bytes, none.plan_s) == (None, None, None, None)
    assert (ours.achieved, ours.worst, ours.planned) == (pytest.approx(0.85), 0.8, pytest.approx(0.98))
    assert (ours.moved_ratio, ours.moved_bytes, ours.plan_s) == (0.375, 9 << 20, pytest.approx(0.015))
    assert (flat.plans, flat.worst) == (1, 0.7)


def test_what_there_is_none_of_is_a_dash_and_bytes_only_stand_where_a_size_is_known() -> None:
    assert set(cells(rows(REPLAY)[0]).values()) == {"none", "0", "0.4500", "0.4000", "–"}
    assert "moved_bytes" in columns(REPLAY)
    assert "moved_bytes" not in columns(REPLAY._replace(expert_bytes=None))
    empty = REPLAY._replace(series=[Series("windtunnel", [], [], "no slots")])
    assert rows(empty)[0].achieved is None


def test_the_best_figure_is_marked_where_there_is_a_choice() -> None:
    assert best_values(REPLAY) == {"achieved": pytest.approx(0.85), "worst": 0.8}
    assert best_values(REPLAY._replace(series=REPLAY.series[:1])) == {}


def test_the_table_has_a_row_a_policy_and_tells_what_stopped_one() -> None:
    out = io.StringIO()
    write_table(REPLAY, out)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert lines[:2] == ["6 steps of <b> layers", "A plan after each 2 steps."]
    assert [line.split()[0] for line in lines[4:7]] == ["none", "windtunnel", "deepseek-flat"]
    assert lines[5].split() == ["windtunnel", "0.8500", "0.8000", "0.9800", "2", "37.5%", "9.0", "MiB", "15", "ms"]
    assert lines[7] == "deepseek-flat gave up after 1 plans: no <slots>"


def test_the_page_needs_no_network_and_takes_names_for_text() -> None:
    html = page(REPLAY)
    assert "<h1>6 steps of &lt;b&gt; layers</h1>" in html and "no &lt;slots&gt;" in html
    assert not re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=", html)
    assert html.count('<td class="best">') == 2


def test_a_long_line_is_drawn_by_means_of_stretches() -> None:
    long = REPLAY._replace(series=[Series("none", [], [0.25, 0.75] * 5000)])
    assert len(page(long)) < len(page(REPLAY)) + 100_000


def in_browser(path: Path, *flags: str) -> str:
    """The page's document after its scripts ran, in a browser without a network."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("no chromium here")
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"]
    command += [f"--user-data-dir={path.parent / 'profile'}", "--virtual-time-budget=10000", *flags]
    done = subprocess.run([*command, "--dump-dom", path.as_uri()], capture_output=True, text=True, timeout=100)
    return done.stdout


def test_a_browser_draws_a_line_for_each_policy_that_has_one(tmp_path: Path) -> None:
    path = tmp_path / "r.html"
    path.write_text(page(REPLAY))
    balancedness, moves = in_browser(path).split('id="moves"')
    assert balancedness.count('class="trace scatter') == 3
    assert moves.count('class="trace scatter') == 2
    assert all(f">{name}</text>" in balancedness for name in ("none", "windtunnel", "deepseek-flat"))
