"""The page as text: bounded, self-contained, and no string of a program becomes markup or ends a script."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

import hlosharding as hs
from examples.models import gpt2
from hlosharding.errors import HloShardingError
from hlosharding.report import Column, Facts, Kind, Label, Lines, Table, Text, Tree, View
from hlosharding.report.model import Picture, Thread, Within
from hlosharding.report.page import LARGEST_PAGE, render_page
from hlosharding.report.places import line_place, value_place
from tests.support.hostile_text import HOSTILE, propagated_program, taken
from tests.support.shown_programs import partitioned

TAG = "</script><script>alert(1)</script><!--<img src=x>"


class Tags(HTMLParser):
    """The tags of a page, with what they link to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]


def data_of(page: str) -> dict[str, list[dict[str, object]]]:
    [found] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(found)


def section(*parts: Table | Text | Tree | Lines | Facts) -> View:
    return View((Within("one", View(parts), title="One"),))


def table(rows: int, text: str = "row") -> Table:
    columns = (Column(key="name", heading="name"), Column(key="n", heading="n", kind=Kind.BYTES, sums=True))
    below = View((Tree(f"{text}\n  below"),))
    cells = [{"name": f"{text} {n}", "n": 1000 * n, "below": below} for n in range(rows)]
    return Table(title=text, columns=columns, rows=cells, detail="below", total="all")


def test_nothing_is_loaded_from_anywhere() -> None:
    tags = Tags(hs.report(partitioned()).to_page())
    assert tags.seen.count("script") == 2
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & ({*tags.seen} - {"link"})
    assert {link for link in tags.links if not link.startswith("#")} == {"data:,"}


def test_the_first_rows_stand_in_the_page_and_all_in_its_data() -> None:
    page = render_page(section(table(100)), title="t")
    [found] = data_of(page)["tables"]
    assert len(found["rows"]) == 100
    assert found["rows"][99] == ["row 99", ["99.0 kB", 99000]]
    assert found["total"] == ["all", ["4.95 MB", 4_950_000]]
    assert found["below"][0] == [{"tree": "row\n  below"}]
    assert page.count("<tr>") < 20


def test_what_is_left_out_is_said() -> None:
    page = render_page(section(table(5000)), title="t")
    [found] = data_of(page)["tables"]
    assert len(found["rows"]) + int(str(found["left_out"])) == 5000
    assert f"{found['left_out']:,} more rows are left out of this page." in page


@pytest.mark.parametrize("size", [1_000, 50_000])
def test_the_page_stays_small_however_long_the_names(size: int) -> None:
    page = render_page(section(table(3000, "x" * size)), title="t")
    assert len(page) <= LARGEST_PAGE
    assert "more rows are left out" in page


def test_what_cannot_be_made_small_is_refused() -> None:
    with pytest.raises(HloShardingError, match="--emit json"):
        render_page(section(Text("x" * LARGEST_PAGE)), title="t")


@pytest.mark.parametrize("text", [TAG, *HOSTILE])
def test_strange_strings_are_text(text: str) -> None:
    label = Label("n", text, text)
    parts = (table(30, text), Text(text), Tree(f"{text}\n{text}"), Lines("", [text]), Facts({"n": 1}, text, (label,)))
    view = View((Within("one", View(parts), title=text, note=text),))
    page, plain = render_page(view, title=text), render_page(View(()), title="")
    tags, expected = Tags(page).seen, Tags(plain).seen
    assert tags.count("script") == expected.count("script") == 2
    assert "img" not in tags
    assert "\x00" not in page
    assert data_of(page)["tables"]


def test_programs_with_strange_strings_anywhere_have_a_page() -> None:
    def page(program: bytes) -> str:
        return hs.report(hs.load(program, format="hlo-proto"), num_partitions=8).to_page()

    pages = taken(propagated_program(), TAG, page)
    assert pages
    for kind, made in pages.items():
        assert Tags(made).seen.count("script") == 2, kind


def test_it_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    made = hs.report(partitioned(), path=path)
    assert path.read_text("utf-8") == made.to_page()
    with pytest.raises(HloShardingError, match="cannot write"):
        made.save(tmp_path / "no" / "such" / "folder.html")
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]


def linked(name: str) -> View:
    """A row with addresses, a picture with bars: all the places where the page has a name of its own."""
    thread = Thread((value_place(name),), (line_place(name),))
    rows = [{"name": name, "thread": thread}]
    named = Table(title="", columns=(Column(key="name", heading="name"),), rows=rows, thread="thread")
    bars = {
        "end": 1.0,
        "streams": [name],
        "kinds": [[name, "red"]],
        "lines": [name],
        "bars": [[0, 0, 0.0, 1.0, name, 0]],
    }
    return View((Within("one", View((named, Picture("<svg></svg>", title=name, bars=bars))), title="One"),))


@pytest.mark.parametrize("text", [TAG, *HOSTILE])
def test_strange_addresses_are_text(text: str) -> None:
    page = render_page(linked(text), title="t")
    assert Tags(page).seen.count("script") == 2
    [found] = data_of(page)["tables"]
    assert found["threads"] == [[[value_place(text)], [line_place(text)]]]


def test_an_address_of_a_long_name_is_short() -> None:
    assert len(value_place("x" * 50_000)) < 300
    long = "HloModule m\nENTRY e {{\n  x = f32[8,8] parameter(0)\n{ops}  ROOT r = f32[8,8] negate({last})\n}}"
    names = ["x", *(f"{'n' * 5_000}{n}" for n in range(300))]
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    ops = "".join(f"  {new} = f32[8,8] dot({old}, {old}), {dims}\n" for old, new in pairwise(names))
    page = hs.report(hs.load(long.format(ops=ops, last=names[-1])), num_partitions=1).to_page()
    assert len(page) <= LARGEST_PAGE


def test_the_demo_s_page_is_below_a_megabyte() -> None:
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))
    config = gpt2.Config()
    traced = hs.jit(gpt2.training_step(mesh), mesh=mesh).trace(*gpt2.abstract_arguments(config))
    made = hs.report(traced.propagate().partition().partitioned).to_page()
    assert len(made.encode()) < 1_000_000
