"""The page in a real browser: it loads, folds, sorts, filters, turns pages, turns dark, and talks to nobody."""

from __future__ import annotations

import json
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import pytest

import hlosharding as hs
from hlosharding.report import Column, Kind, Table, Text, Tree, View
from hlosharding.report.model import Picture, Thread, Within
from hlosharding.report.page import render_page
from hlosharding.report.places import spelled, value_place
from tests.support.hostile_text import HOSTILE

SECTIONS = [
    "Worst findings",
    "Summary",
    "Timeline",
    "Collectives",
    "Program",
    "Functions",
    "Roofline",
    "Source files",
    "Replicated values",
    "Memory",
    "Shardings",
]


@pytest.fixture
def shown(browser: Any, page: Path) -> Any:
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(page.as_uri())
    return browser


def css(browser: Any, selector: str) -> list[Any]:
    return browser.find_elements("css selector", selector)


def column(browser: Any, section: str, heading: str) -> list[str]:
    """The cells of a column of a section's first table, as they stand there."""
    script = """
      const table = document.querySelector(`#${arguments[0]} table`);
      const heads = [...table.tHead.rows[0].cells].map((cell) => cell.innerText.replace(/ [▲▼]$/, ""));
      const place = heads.indexOf(arguments[1]);
      const rows = [...table.tBodies[0].rows].filter((row) => row.className !== "below");
      return rows.map((row) => row.cells[place].innerText);
    """
    return browser.execute_script(script, section, heading)


def paper(browser: Any) -> str:
    return browser.execute_script("return getComputedStyle(document.body).backgroundColor")


def press(browser: Any, section: str, heading: str) -> None:
    [button] = [one for one in css(browser, f"#{section} th button") if one.text == heading][:1]
    button.click()


def test_it_loads_without_a_word_in_the_console_or_a_request(shown: Any, page: Path) -> None:
    assert [one.text for one in css(shown, "h2")] == [*SECTIONS, "Comparison"]
    assert shown.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in shown.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert {url for url in asked if not url.startswith("data:")} == {page.as_uri()}


def test_sections_fold_and_links_unfold_them(shown: Any) -> None:
    shown.find_element("css selector", "#collectives > summary").click()
    assert not shown.find_element("css selector", "#collectives .table").is_displayed()
    shown.find_element("link text", "Collectives").click()
    assert shown.find_element("css selector", "#collectives .table").is_displayed()


def test_columns_sort_by_value_both_ways_and_back(shown: Any, program: hs.Partitioned) -> None:
    as_given = column(shown, "replicated", "value")
    press(shown, "replicated", "to save")
    press(shown, "replicated", "to save")
    [head] = css(shown, "#replicated th[aria-sort]")
    assert head.get_attribute("aria-sort") == "ascending"
    saved = [
        float(cell.split()[0]) * {"B": 1, "kB": 1e3}[cell.split()[1]] for cell in column(shown, "replicated", "to save")
    ]
    assert saved == sorted(saved)
    assert saved[0] < saved[-1]
    press(shown, "replicated", "to save")
    assert column(shown, "replicated", "value") == as_given


def test_rows_are_filtered_and_counted(shown: Any) -> None:
    field = shown.find_element("css selector", "#collectives input")
    field.send_keys("m.py:57")
    assert set(column(shown, "collectives", "source")) == {"m.py:57"}
    field.send_keys("nothing")
    assert [one.text for one in css(shown, "#collectives td.empty")] == ["no row has that"]


def test_only_one_page_of_rows_stands_in_the_document(shown: Any, program: hs.Partitioned) -> None:
    first = column(shown, "collectives", "source")
    assert len(first) == 15 < len(program.collectives)
    shown.find_element("css selector", "#collectives button[aria-label='rows after']").click()
    second = column(shown, "collectives", "source")
    assert second
    assert not set(first) & set(second)


def test_a_row_opens_to_the_causes_and_closes(shown: Any) -> None:
    opener = css(shown, "#collectives .opener button")[0]
    opener.click()
    told = shown.find_element("css selector", "#collectives tr.below").text
    assert "needed by %" in told
    assert "given by the user on" in told
    assert "what would remove it" in told
    assert opener.get_attribute("aria-expanded") == "true"
    opener.click()
    assert not css(shown, "#collectives tr.below")


def test_blocks_of_the_program_open_to_their_ops(shown: Any) -> None:
    css(shown, "#program .opener button")[0].click()
    assert "%h0" in shown.find_element("css selector", "#program tr.below").text


def soon(browser: Any, found: Callable[[], Any]) -> Any:
    """What is found, once it is there: a page answers to a new address, or to the clipboard, after the click ends."""
    from selenium.webdriver.support.wait import WebDriverWait

    return WebDriverWait(browser, 10).until(lambda _: found())


def target(browser: Any) -> str:
    """What the row says to which one was led: it has the focus."""
    focused = "return document.activeElement.matches('tr.target') && document.activeElement.innerText"
    return soon(browser, lambda: browser.execute_script(focused))


def test_a_link_to_a_row_lasts(browser: Any, page: Path, program: hs.Partitioned) -> None:
    last = len(program.collectives) - 1  # on a later page of the table
    browser.get(f"{page.as_uri()}#c{last}")
    assert f"#{last}" in target(browser).split()
    browser.get(f"{page.as_uri()}#v-x7")  # inside a block that is closed
    assert "%x7" in target(browser)
    browser.get(f"{page.as_uri()}#nothing")
    assert not browser.get_log("browser")


def test_from_a_finding_to_its_row_its_op_and_the_picture(shown: Any) -> None:
    css(shown, "#findings button[aria-label='more of collective']")[0].click()
    told = shown.find_element("css selector", "#findings tr.below")
    assert "needed by %" in told.text
    told.find_element("partial link text", "collective #").click()
    assert "all-reduce" in target(shown)
    below = shown.find_element("css selector", "#collectives tr.below")
    below.find_element("partial link text", "op x").click()
    assert "%x" in target(shown)
    below = shown.find_element("css selector", "#program tr.below tr.below")
    assert "finding" not in below.text
    below.find_element("link text", "in the picture").click()
    [drawn] = soon(shown, lambda: css(shown, "g.target"))
    assert "dot" in drawn.text
    drawn.click()
    assert "%x" in target(shown)


def test_the_whole_page_is_searched(shown: Any) -> None:
    field = shown.find_element("css selector", "#search input")
    field.send_keys("%x7")
    first = css(shown, "#found a")[0]
    assert "%x7" in first.text
    field.send_keys("\ue015")  # down
    assert shown.switch_to.active_element == first
    first.send_keys("\ue013")  # and up
    assert shown.switch_to.active_element == field
    field.send_keys("\ue007")
    assert "%x7" in target(shown)
    assert not shown.find_element("id", "found").is_displayed()
    field.send_keys(" no such thing")
    assert shown.find_element("id", "found").text == "nothing has that"
    field.send_keys("\ue00c")
    assert not shown.find_element("id", "found").is_displayed()


@pytest.mark.parametrize("key", ["\ue007", " "])
def test_the_keyboard_does_what_the_mouse_does(shown: Any, key: str) -> None:
    css(shown, "#collectives .opener button")[0].send_keys(key)
    assert css(shown, "#collectives tr.below")


def test_dark_and_light(shown: Any) -> None:
    button = shown.find_element("id", "theme")
    before, said = paper(shown), button.text
    button.click()
    assert paper(shown) != before
    assert button.text != said
    button.click()
    assert paper(shown) == before


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_follows_the_system(shown: Any, scheme: str) -> None:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    shown.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    colour = paper(shown)
    shown.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    lightness = sum(int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")) / 3
    assert (lightness < 64) == (scheme == "dark")


def test_a_narrow_window_has_no_sideways_scroll(shown: Any) -> None:
    size = {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    shown.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    page = "document.documentElement"
    content, window = shown.execute_script(f"return [{page}.scrollWidth, {page}.clientWidth]")
    shown.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert content <= window <= 400


HOSTILE_TAGS = "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\"> {{7*7}}"


@pytest.mark.parametrize("text", [HOSTILE_TAGS, *HOSTILE])
def test_strange_names_are_text(browser: Any, tmp_path: Path, text: str) -> None:
    below = View((Tree(f"{text}\n  {text}"),))
    rows = [
        {
            "name": f"{text}{n}",
            "below": below,
            "thread": Thread((value_place(f"{text}{n}"),), (value_place(f"{text}0"),)),
        }
        for n in range(20)
    ]
    column_ = Column(key="name", heading=text, kind=Kind.CODE)
    bars = {
        "end": 1.0,
        "streams": [text],
        "kinds": [[text, "red"]],
        "lines": [text],
        "bars": [[0, 0, 0, 1, spelled(f"{text}0"), 0]],
    }
    drawing = f'<svg><g id="p-1" data-place="{escape(value_place(f"{text}0"))}"><text>t</text></g></svg>'
    picture = Picture(drawing, title=text, bars=bars)
    parts = (Text(text), Table(title=text, columns=(column_,), rows=rows, detail="below", thread="thread"), picture)
    page = tmp_path / "strange.html"
    page.write_text(render_page(View((Within("section", View(parts), title=text, note=text),)), title="mine"), "utf-8")
    browser.get_log("browser")
    browser.get(page.as_uri())
    for opener in css(browser, ".opener button")[:2]:
        opener.click()
    browser.find_element("css selector", ".timeline").send_keys("\ue014")
    browser.find_element("css selector", "#search input").send_keys(text.split()[0])
    assert css(browser, ".thread a")
    assert css(browser, ".told a")
    assert browser.title == "mine"
    assert browser.get_log("browser") == []
    assert len(css(browser, "script")) == 2
    assert not css(browser, "img")
    assert "49" not in browser.find_element("tag name", "main").text.replace("{{7*7}}", "")


def drawn_bars(browser: Any) -> list[float]:
    """Widths of the timeline's bars, in pixels."""
    script = "return [...document.querySelectorAll('.timeline rect[data-bar]')].map((bar) => bar.width.baseVal.value)"
    return browser.execute_script(script)


def told(browser: Any) -> str:
    return browser.find_element("css selector", ".told").text


def drag(browser: Any, begin: float, end: float) -> None:
    """Across the timeline, from one share of its width to another."""
    from selenium.webdriver import ActionChains

    timeline = browser.find_element("css selector", ".timeline")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", timeline)
    wide = timeline.rect["width"]
    actions = (
        ActionChains(browser).move_to_element_with_offset(timeline, int((begin - 0.5) * wide), 20).click_and_hold()
    )
    actions.move_by_offset(int((end - begin) * wide), 0).release().perform()


def test_the_timeline_zooms_and_moves(shown: Any) -> None:
    timeline, before = shown.find_element("css selector", ".timeline"), drawn_bars(shown)
    timeline.send_keys("www")
    assert max(drawn_bars(shown)) > 2 * max(before)
    closer = drawn_bars(shown)
    timeline.send_keys("d")
    assert drawn_bars(shown) != closer
    timeline.send_keys("sssss")
    assert drawn_bars(shown) == before
    shown.find_element("css selector", "button[aria-label='zoom in']").click()
    assert drawn_bars(shown) != before
    timeline.send_keys("0")
    assert drawn_bars(shown) == before


def test_dragging_selects_and_says_the_sum(shown: Any, program: hs.Partitioned) -> None:
    drag(shown, 0.02, 0.99)  # begins left of the first bar: all there is
    run = hs.simulate(program, program.machine)
    sums = [event.seconds for event in run.timeline if event.instruction.opcode == "all-reduce"]
    assert f"all-reduce {sum(sums) * 1e6:.3g} us ({len(sums)})" in told(shown)
    assert css(shown, ".timeline .area")
    shown.find_element("css selector", ".timeline").send_keys("\ue00c")
    assert told(shown) == ""
    assert not css(shown, ".timeline .area")


def test_the_arrows_go_from_bar_to_bar_and_a_bar_leads_to_its_rows(shown: Any) -> None:
    timeline = shown.find_element("css selector", ".timeline")
    timeline.send_keys("\ue014")
    first = told(shown)
    assert "takes" in first
    timeline.send_keys("\ue014")
    assert told(shown) not in ("", first)
    timeline.send_keys("\ue015")  # down, to the communication of that time
    shown.find_element("css selector", ".told").find_element("partial link text", "#").click()
    assert "all-reduce" in target(shown)


def test_a_row_leads_to_its_bars(shown: Any) -> None:
    shown.find_element("css selector", "#collectives .opener button").click()
    shown.find_element("css selector", "#collectives tr.below").find_element("link text", "in the timeline").click()
    assert soon(shown, lambda: css(shown, ".timeline .chosen"))
    assert "all-reduce" in told(shown)


def test_a_line_to_paste_is_copied_or_selected(browser: Any, tmp_path: Path) -> None:
    rows = ({"line": "annotate %w={replicated}"},)
    table = Table(title="", columns=(Column(key="line", heading="line", kind=Kind.CODE),), rows=rows)
    page = tmp_path / "code.html"
    page.write_text(render_page(View((Within("one", View((table,)), title="One"),)), title="mine"), "utf-8")
    browser.get(page.as_uri())
    browser.find_element("css selector", "button[aria-label='copy annotate %w={replicated}']").click()
    said = soon(browser, lambda: browser.find_element("id", "said").get_attribute("textContent"))
    assert said in ("copied", "selected")
    assert said == "copied" or browser.execute_script("return String(getSelection())") == "annotate %w={replicated}"
