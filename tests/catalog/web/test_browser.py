"""The pages in a real browser, with JavaScript and without."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.catalog.web.test_server import record_like
from windtunnel.catalog.export import pages as export
from windtunnel.catalog.record import Record
from windtunnel.catalog.store import Store

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATHS = ("/", "/search?q=many", "/projects/link", "/explain", "/diff?a=link@1.0&b=link@2.0", "/api", "/nothing")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium lets these tests run")

# Each text's contrast with what lies behind it (WCAG 2.2), the worst first.
CONTRASTS = """() => {
  const channel = c => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const rgba = text => text.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const color = rgba(getComputedStyle(e).backgroundColor);
      if (color.length < 4 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.body.querySelectorAll("*")) {
    const says = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
    if (!says || !element.getClientRects().length) continue;
    const a = luminance(rgba(getComputedStyle(element).color)), b = luminance(behind(element));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    found.push([ratio, element.className, element.textContent.slice(0, 40)]);
  }
  return found.sort((a, b) => a[0] - b[0]);
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(params=[True, False], ids=["with JavaScript", "without"])
def page(browser: Browser, address: str, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page that says nothing on the console and asks nobody else for anything."""
    context = browser.new_context(base_url=address, java_script_enabled=request.param)
    page = context.new_page()
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("dialog", lambda dialog: troubles.append(dialog.message))
    page.on("request", lambda asked: troubles.append(asked.url) if not asked.url.startswith(address) else None)
    yield page
    context.close()
    assert not troubles


@pytest.fixture
def phone(browser: Browser, address: str) -> Iterator[Page]:
    context = browser.new_context(base_url=address, viewport={"width": 390, "height": 800})
    yield context.new_page()
    context.close()


def paths_of(records: list[Record]) -> list[str]:
    """The pages of records that differ most."""
    return [f"/errors/{record_like(records, words).id}" for words in ("odd java", "in state=", "part 0", "door is")]


def test_a_search_leads_to_a_record_to_its_lines_and_to_its_json(page: Page) -> None:
    page.goto("/")
    page.fill("main input[name=q]", "transfer failed in state")
    page.keyboard.press("Enter")
    page.click(".hits a >> nth=0")
    assert page.inner_text("h1") == "transfer from {peer} failed in state={state}"
    page.click(".claims .cite a >> nth=0")
    assert page.locator("tr:target td.number").inner_text() in page.url
    page.click("footer a[href^='/api/errors/']")
    page.get_by_text('"schema":"error-record/1"').wait_for()


def test_a_pasted_traceback_is_explained_and_leads_to_its_record(page: Page) -> None:
    page.goto("/explain")
    page.fill("#text", "TransferFailed: transfer from rank 3 failed in state=ERR")
    page.click("main button")
    match = page.locator(".match >> nth=0")
    assert "TransferFailed" in match.inner_text() and "rank 3" in match.inner_text()
    match.locator("a.what").click()
    assert "failed in state=" in page.inner_text("h1")


def test_a_pasted_log_stays_in_its_field_as_it_was_with_its_colours(page: Page) -> None:
    text = "\n\x1b[31mERROR\x1b[0m transfer from <b>rank</b> 3 failed in state=ERR &amp; \u202e\n"
    page.goto("/explain")
    page.fill("#text", text)
    page.click("main button")
    page.wait_for_selector("#answer")
    assert page.input_value("#text") == text
    assert "<b>rank</b> 3" in page.inner_text("#answer")


def test_versions_are_compared_by_the_form(page: Page) -> None:
    page.goto("/diff")
    page.select_option("select[name=a]", "link@1.0")
    page.select_option("select[name=b]", "link@2.0")
    page.click("main button")
    assert "Raised under other conditions" in page.inner_text("main")


def test_filters_and_folded_places_need_no_script(page: Page, records: list[Record]) -> None:
    page.goto("/projects/link")
    page.click(".facets >> text=log")
    assert page.locator(".hits > li").count() == 1
    page.click(".facets a.chosen")
    assert page.locator(".hits > li").count() == len(records)
    page.goto(f"/errors/{record_like(records, 'many of').id}")
    assert page.locator("details.site").count() == 60
    folded = page.locator("#site-60 table")
    assert not folded.is_visible()
    page.click("#site-60 summary")
    assert folded.is_visible()


def test_a_message_is_copied_as_it_stands(browser: Browser, address: str, records: list[Record]) -> None:
    context = browser.new_context(base_url=address, permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    record = record_like(records, "in state=")
    page.goto(f"/errors/{record.id}")
    page.click("text=Copy")
    page.wait_for_selector("text=Copied")
    assert page.evaluate("navigator.clipboard.readText()") == record.text
    context.close()


def test_exported_pages_need_no_server(browser: Browser, catalog: Path, tmp_path: Path, records: list[Record]) -> None:
    with Store.open(catalog) as store:
        export(store.project("link"), store.records("link"), store.hits("link"), tmp_path / "pages")
    context = browser.new_context()
    page = context.new_page()
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(message.text))
    page.on("requestfailed", lambda asked: troubles.append(asked.url))
    page.goto((tmp_path / "pages" / "index.html").as_uri())
    assert page.locator(".hits > li").count() == len(records)
    page.click(".hits >> text=in state=")
    assert "failed in state=" in page.inner_text("h1")
    assert page.evaluate("getComputedStyle(document.querySelector('.excerpt')).borderRadius") == "8px"
    context.close()
    assert not troubles


def test_the_keyboard_reaches_the_content_first_and_is_seen(page: Page) -> None:
    page.goto("/projects/link")
    page.keyboard.press("Tab")
    focused = page.locator(":focus")
    assert focused.inner_text() == "Skip to content"
    box = focused.bounding_box()
    assert box is not None and box["x"] >= 0 and box["y"] >= 0
    page.keyboard.press("Enter")
    page.wait_for_url("**/*#content")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_a_contrast_of_4_5_and_every_page_one_title(
    browser: Browser, address: str, scheme: Literal["light", "dark"], records: list[Record]
) -> None:
    context = browser.new_context(base_url=address, color_scheme=scheme)
    page = context.new_page()
    for path in (*PATHS, *paths_of(records)):
        page.goto(path)
        ratio, names, text = page.evaluate(CONTRASTS)[0]
        assert ratio >= 4.5, (path, names, text)
        assert page.locator("h1").count() == page.locator("main").count() == 1
    page.goto("/")
    dark, light = "rgb(20, 24, 27)", "rgb(251, 250, 247)"
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == (dark if scheme == "dark" else light)
    context.close()


def test_nothing_is_wider_than_a_phone(phone: Page, records: list[Record]) -> None:
    for path in (*PATHS, *paths_of(records)):
        phone.goto(path)
        assert phone.evaluate("document.documentElement.scrollWidth") <= 390, path
    phone.goto(f"/errors/{record_like(records, 'part 0').id}")
    assert phone.evaluate(
        "(e => e.scrollWidth > e.clientWidth || e.scrollWidth > 300)(document.querySelector('.excerpt'))"
    )


def test_print_shows_what_is_folded_and_leaves_out_what_can_be_clicked(page: Page, records: list[Record]) -> None:
    page.goto(f"/errors/{record_like(records, 'many of').id}")
    page.emulate_media(media="print")
    assert page.locator("#site-60 table").is_visible()
    for what in (".find", ".ways", ".toc"):
        assert not page.locator(what).is_visible()
