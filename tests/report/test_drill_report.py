"""A drill on the console and as a page."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from playwright.sync_api import sync_playwright
from tests.catalog.web.test_browser import CONTRASTS
from tests.report.drills import action, drill

from windtunnel.report.drill import ActionReport, Drill, Event, Series
from windtunnel.report.drill_chart import chart
from windtunnel.report.drill_console import drill_lines, timeline
from windtunnel.report.drill_page import page
from windtunnel.report.text import plain

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SVG = "{http://www.w3.org/2000/svg}"


def told(result: Drill) -> str:
    return plain(drill_lines(result))


def test_the_console_tells_the_figures_and_what_was_expected_of_them() -> None:
    text = told(drill())
    assert "✗ failed 2   expected 0" in text and "✓ recover_s 1.25 s" in text
    assert "requests 320" in text and "goodput_lost_ratio 25%" in text and "detect_s 0.93 s" in text
    assert text.endswith("not passed\n")
    assert told(drill(passed=True)).endswith("passed\n")
    assert told(drill(interrupted="SIGINT")).endswith("interrupted by SIGINT\n")


def test_each_action_has_a_row_and_one_that_was_not_done_its_reason() -> None:
    text = told(drill())
    assert re.search(r"hang_rank 1 +3\.00 s +0\.93 s +1\.25 s +2 +25% +0\.31 s", text)
    assert re.search(r"kill_rank 0 +7\.90 s +– +never ", text)
    assert "✗ rebalance (after 3 s) was not done: the load was over before" in text
    assert re.search(r"kill_rank 1 +1\.00 s +– +unknown ", told(drill(actions=[unclear()])))


def unclear() -> ActionReport:
    return action("kill_rank 1", 1.0, None, comparable=False)


def test_the_timeline_tells_the_story_and_leaves_the_small_steps_to_json() -> None:
    story = [(event.at_s, event.what) for event in timeline(drill())]
    assert story == [
        (3.0, "hang_rank 1"),
        (3.93, "lost"),
        (3.95, "published"),
        (4.2, "joined"),
        (4.25, "back at its level after hang_rank 1"),
    ]
    assert "published · epochs 2 to 4" in told(drill())


def test_what_a_server_says_does_not_steer_the_terminal() -> None:
    text = told(drill(events=[Event(1.0, "coordinator", "lost", {"reason": "\x1b[2J"})]))
    assert "\x1b" not in text and "\\x1b[2J" in text


def test_a_long_story_is_cut_with_how_much_is_left_out() -> None:
    events = [Event(n / 10, "drill", f"event {n}", {}) for n in range(60)]
    assert "and 20 more: --json has all" in told(drill(events=events, actions=[]))


def test_a_drill_without_tokens_or_actions_is_shown_too() -> None:
    empty = drill(series=Series(0.1, [], [], []), actions=[], events=[], ranks=[], expectations=[], duration_s=0.0)
    assert "not passed" in told(empty)
    ElementTree.fromstring(svg(empty))


def svg(result: Drill) -> str:
    return chart(result).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ')


def shapes(result: Drill, name: str) -> list[dict[str, str]]:
    return [dict(each.attrib) for each in ElementTree.fromstring(svg(result)).iter() if each.get("class") == name]


def test_the_chart_has_a_line_for_each_action_that_was_done_and_no_label_covers_another() -> None:
    result = drill()
    assert len(shapes(result, "action")) == 3
    labels = [each for each in ElementTree.fromstring(svg(result)).iter(f"{SVG}text") if each.get("class") == "label"]
    assert [label.text for label in labels] == ["hang_rank 1", "load num_prompts=40", "kill_rank 0"]
    assert labels[0].get("y") != labels[1].get("y"), "they begin at almost the same place"
    assert labels[2].get("text-anchor") == "end", "there is no room to its right"


def test_a_ranks_lane_shows_when_it_hung_was_away_and_served() -> None:
    result = drill()
    lanes = [(name, float(s["x"])) for name in ("serving", "hung", "away") for s in shapes(result, name)]
    of_rank_1 = sorted((x, name) for name, x in lanes)
    assert [name for _, name in of_rank_1] == ["serving", "serving", "hung", "away", "serving"]
    assert len(shapes(result, "epoch")) == 3
    assert not shapes(drill(ranks=[]), "serving")


def test_a_rank_that_is_resumed_in_time_serves_again() -> None:
    resumed = [action("hang_rank 1", 3.0, 0.4), action("resume_rank 1", 3.4)]
    assert len(shapes(drill(actions=resumed, events=[]), "hung")) == 1
    assert len(shapes(drill(actions=resumed, events=[]), "serving")) == 3


def test_stretches_until_service_was_back_are_one_band_where_they_overlap() -> None:
    overlapping = [action("kill_rank 0", 3.0, 2.0), action("kill_rank 1", 4.0, 2.0), action("kill_rank 2", 7.0, 0.5)]
    bands = shapes(drill(actions=overlapping), "during")
    assert len(bands) == 2
    assert float(bands[0]["width"]) > 5 * float(bands[1]["width"])


def test_failures_have_a_panel_only_where_there_are_any() -> None:
    assert len(shapes(drill(), "failed")) == 1
    calm = Series(0.1, [800.0] * 80, [4.0] * 80, [0] * 80)
    assert not shapes(drill(series=calm), "failed")


def test_the_page_is_whole_in_itself_and_escapes_what_it_is_told() -> None:
    html = page(drill())
    assert "A rank &lt;hangs&gt; &amp; dies" in html and "<hangs>" not in html
    assert not re.search(r"<(script|link|img|iframe)|url\(|https?://(?!127)", html)


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium lets this test run")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_shows_the_page_on_any_screen_without_a_script(scheme: str, width: int, tmp_path: Path) -> None:
    (tmp_path / "drill.html").write_text(page(drill()), encoding="utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        screen = {"width": width, "height": 900}
        context = browser.new_context(viewport=screen, color_scheme=scheme)
        shown = context.new_page()
        troubles: list[str] = []
        shown.on("console", lambda message: troubles.append(message.text))
        shown.on("request", lambda asked: troubles.append(asked.url) if not asked.url.startswith("file:") else None)
        shown.goto((tmp_path / "drill.html").as_uri())
        assert shown.inner_text("h1") == "A rank <hangs> & dies not passed"
        assert shown.locator("svg.timeline").bounding_box()
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
        shown.click("summary >> nth=0")
        assert shown.locator("tr.phase").first.is_visible()
        contrasts = shown.evaluate(CONTRASTS)
        assert contrasts[0][0] >= 4.5, contrasts[:3]
        browser.close()
    assert not troubles
