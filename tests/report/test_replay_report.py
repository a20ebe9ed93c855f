"""A replay's figures, its table, and its page in a real browser."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from windtunnel.report.replay import (
    HEAD,
    PlanPoint,
    Replay,
    Series,
    best_values,
    cells,
    columns,
    reasons,
    rows,
    write_table,
)
from windtunnel.report.replay_page import page

PLANS = [
    PlanPoint(2, 0.99, 0.9, 0.5, 6, 0.010, {"noise": 2, "budget": 1}),
    PlanPoint(4, 0.97, 0.8, 0.25, 3, 0.020, {"noise": 1}),
]
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
    advice="Try --full-replan.",
)


def test_the_figures_of_a_policy_are_means_worst_and_median() -> None:
    none, ours, flat = rows(REPLAY)
    assert (none.plans, none.achieved, none.worst) == (0, pytest.approx(0.45), 0.4)
    assert (none.planned, none.moved_ratio, none.moved_bytes, none.plan_s) == (None, None, None, None)
    assert (ours.achieved, ours.worst, ours.planned) == (pytest.approx(0.85), 0.8, pytest.approx(0.98))
    assert (ours.moved_ratio, ours.moved_bytes, ours.plan_s) == (0.375, 9 << 20, pytest.approx(0.015))
    assert (flat.plans, flat.worst) == (1, 0.7)


def test_what_there_is_none_of_is_a_dash_and_bytes_only_stand_where_a_size_is_known() -> None:
    assert set(cells(rows(REPLAY)[0]).values()) == {"none", "0.4500", "0.4000", "–"}
    assert "moved_bytes" in columns(REPLAY)
    assert "moved_bytes" not in columns(REPLAY._replace(expert_bytes=None))
    empty = REPLAY._replace(series=[Series("windtunnel", [], [], "no slots")])
    assert rows(empty)[0].achieved is None


def test_the_best_balanced_and_the_least_moved_are_marked_where_there_is_a_choice() -> None:
    assert best_values(REPLAY) == {"achieved": pytest.approx(0.85), "worst": 0.8, "moved_ratio": 0.375}
    assert best_values(REPLAY._replace(series=REPLAY.series[:1])) == {}


def test_why_planning_ended_is_told_as_shares_of_the_layers_of_all_plans() -> None:
    assert list(reasons(REPLAY)) == [
        "windtunnel ended by noise (75% of layers), budget (25%)",
        "deepseek-flat ended by noise (67% of layers), budget (33%)",
    ]
    one = REPLAY._replace(series=[Series("windtunnel", PLANS[1:], [0.8, 0.8])])
    assert list(reasons(one)) == ["windtunnel ended by noise"]


def test_the_table_has_a_row_a_policy_and_tells_what_stopped_one_and_what_may_help() -> None:
    out = io.StringIO()
    write_table(REPLAY, out)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert lines[:2] == ["6 steps of <b> layers", "A plan after each 2 steps."]
    assert [line.split()[0] for line in lines[4:7]] == ["none", "windtunnel", "deepseek-flat"]
    assert lines[5].split() == ["windtunnel", "37.5%", "0.8500", "0.8000", "0.9800", "9.0", "MiB", "15", "ms"]
    assert lines[8:] == [*reasons(REPLAY), "deepseek-flat gave up after 1 plans: no <slots>", "Try --full-replan."]


class Terminal(io.StringIO):
    """Takes what is printed, and is as wide as COLUMNS says."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", ["30", "70", "100"])
def test_no_heading_and_no_figure_is_cut_on_a_narrow_terminal(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", "dumb")
    out = Terminal()
    write_table(REPLAY, out)
    text = out.getvalue().split("\n\n")[1]
    assert {word for title in HEAD.values() for word in title.split()} <= set(text.split())
    assert {word for row in rows(REPLAY) for cell in cells(row).values() for word in cell.split()} <= set(text.split())
    assert columns == "30" or max(len(line.rstrip()) for line in text.splitlines()) <= int(columns)


def test_the_page_needs_no_network_and_takes_names_for_text() -> None:
    html = page(REPLAY)
    assert "<h1>6 steps of &lt;b&gt; layers</h1>" in html and "no &lt;slots&gt;" in html
    assert not re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=", html)
    assert html.count('<td class="best">') == 3
    assert "<p>windtunnel ended by noise (75% of layers), budget (25%)</p>" in html
    assert "Try <code>--full-replan</code>." in html


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
    assert 'class="js-line"' in balancedness
    assert 'class="js-line"' not in moves  # between two plans nothing is moved
    assert all(f">{name}</text>" in balancedness for name in ("none", "windtunnel", "deepseek-flat"))
