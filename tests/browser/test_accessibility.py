"""The page for those who do not see it, use no mouse, have a narrow screen, or paper: axe-core finds nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
TAB, ESCAPE = "\ue004", "\ue00c"


@pytest.fixture
def axe() -> str:
    if not AXE.exists():
        pytest.skip("no axe-core here: .ci/browser installs it, by npm")
    return AXE.read_text("utf-8")


@pytest.fixture(params=[(1280, "light"), (600, "light"), (1280, "dark"), (600, "dark")], ids=str)
def screen(request: pytest.FixtureRequest, browser: Any, page: Path) -> Iterator[Any]:
    width, scheme = request.param
    size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    emulated = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", emulated)
    browser.get(page.as_uri())
    yield browser
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


OPEN_SOME = """
document.querySelectorAll('main > details').forEach((section) => section.querySelector('.opener button')?.click());
const field = document.querySelector('#search input');
field.value = 'dot';
field.dispatchEvent(new Event('input'));
"""


def test_axe_finds_nothing(screen: Any, axe: str) -> None:
    screen.execute_script(axe)
    for state in ("", OPEN_SOME):
        screen.execute_script(state)
        found = screen.execute_async_script("const done = arguments[0]; axe.run().then(done)")["violations"]
        assert not [(one["id"], one["nodes"][0]["html"]) for one in found]


def test_nothing_is_cut_off(screen: Any) -> None:
    screen.execute_script(OPEN_SOME)
    wide = "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    content, window = screen.execute_script(wide)
    assert content <= window


def test_a_narrow_screen_says_in_an_open_row_what_it_has_no_column_for(screen: Any) -> None:
    screen.find_element("css selector", "#collectives .opener button").click()
    is_narrow = screen.execute_script("return innerWidth < 640")
    shape = "f32[32,64]"
    row = screen.find_element("css selector", "#collectives tbody tr").text
    left_out = screen.find_element("css selector", "#collectives tr.below dl").text
    assert (shape in row, shape in left_out) == (not is_narrow, is_narrow)


RECORD = """
const all = document.querySelectorAll("a[href], button:not([disabled]), input, summary, [tabindex='0']");
const reachable = [...all].filter((one) => one.getClientRects().length);
window.reached = [];
document.addEventListener("focusin", ({target}) => {
  window.reached.push([reachable.indexOf(target), getComputedStyle(target).outlineStyle]);
});
return reachable.length;
"""


def test_tab_reaches_everything_and_where_one_is_is_seen(browser: Any, page: Path) -> None:
    from selenium.webdriver import ActionChains

    browser.get(page.as_uri())
    count = browser.execute_script(RECORD)
    ActionChains(browser).send_keys(TAB * count).perform()
    reached = browser.execute_script("return window.reached")
    assert [place for place, _ in reached] == list(range(count))
    assert "none" not in {outline for _, outline in reached}


def test_escape_closes_a_row_and_goes_back_to_what_opened_it(browser: Any, page: Path) -> None:
    browser.get(page.as_uri())
    opener = browser.find_element("css selector", "#collectives .opener button")
    opener.click()
    browser.find_element("css selector", "#collectives tr.below a").send_keys(ESCAPE)
    assert not browser.find_elements("css selector", "#collectives tr.below")
    assert browser.switch_to.active_element == opener


def test_pictures_have_names_and_tables_have_heads(browser: Any, page: Path) -> None:
    browser.get(page.as_uri())
    count = "return [...document.querySelectorAll(arguments[0])].length"
    assert browser.execute_script(count, "figure") == browser.execute_script(count, "figure > figcaption:not(:empty)")
    assert browser.execute_script(count, "thead th:not([scope='col'])") == 0
    assert browser.execute_script(count, "tbody tr:not(.below):not(:has(.empty)):not(:has(> th[scope='row']))") == 0


@pytest.fixture
def paper(browser: Any, page: Path) -> Iterator[Any]:
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", **dark})
    browser.get(page.as_uri())
    yield browser
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


def test_paper_is_white_and_has_all_sections_and_no_buttons(paper: Any) -> None:
    assert paper.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    shown = "return [...document.querySelectorAll(arguments[0])].filter((one) => one.getClientRects().length).length"
    assert paper.execute_script(shown, "button:not(th button), input, nav") == 0
    assert paper.execute_script(shown, "h2") == len(paper.find_elements("css selector", "h2"))
    assert paper.execute_script(shown, "#timeline figure svg") == 1
