"""A stranger's program is data: whatever stands in its strings, terminals, pages and records keep their structure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import hlosharding as hs
from hlosharding.cli import main
from hlosharding.report import (
    View,
    cost_view,
    explanations_view,
    overrides_view,
    partitioned_view,
    propagation_view,
    simulation_view,
    to_html,
    to_record,
    to_text,
    trace_view,
)
from tests.support.hostile_text import HOSTILE, kinds_of_strings, propagated_program, taken, with_text

HARMLESS = "word"
_WIDE = 100_000


@pytest.fixture(scope="module")
def program() -> bytes:
    return propagated_program()


def views(proto: bytes) -> Iterator[View]:
    """Everything that is shown of a program."""
    module = hs.load(proto, format="hlo-proto")
    propagation = hs.propagate(module)
    partitioned = hs.partition(propagation, num_partitions=8)
    yield partitioned_view(partitioned)
    yield overrides_view(partitioned)
    yield cost_view(partitioned.cost)
    yield simulation_view(hs.simulate(partitioned))
    yield trace_view(propagation)
    yield propagation_view(propagation)
    yield explanations_view([propagation.explain(i.name) for i in module.instructions[::9]])


def structure(proto: bytes) -> list[Any]:
    """Of each view: what it is made of on a terminal, on a page and in a record."""
    return [(lines(view), tags(view), kinds(view)) for view in views(proto)]


def lines(view: View) -> int:
    """How many lines a terminal shows, which are of printable characters only."""
    text = to_text(view, width=_WIDE, wraps=False)
    assert text.replace("\n", "").isprintable()
    return text.count("\n")


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[Any] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, [name for name, _ in attrs]))

    def handle_endtag(self, tag: str) -> None:
        self.found.append(tag)

    def handle_comment(self, data: str) -> None:
        self.found.append("comment")

    def handle_decl(self, decl: str) -> None:
        self.found.append("declaration")


def tags(view: View) -> list[Any]:
    """The tags of the page, with the names of their attributes."""
    parser = _Tags()
    parser.feed(to_html(view))
    parser.close()
    return parser.found


def kinds(view: View) -> list[str]:
    """What the record is made of, once it was written and read."""

    def walk(value: Any) -> Iterator[str]:
        yield type(value).__name__
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        for part in parts:
            yield from walk(part)

    return list(walk(json.loads(json.dumps(to_record(view)))))


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_string_of_a_module_changes_what_is_shown(program: bytes, text: str) -> None:
    compared = taken(program, text, structure)
    for kind, found in compared.items():
        assert found == _harmless(program, kind), kind
    assert len(compared) > 5


@cache
def _harmless(program: bytes, kind: str) -> list[Any]:
    return structure(with_text(program, kind, HARMLESS))


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_errors_are_one_line_of_printable_characters(program: bytes, text: str, tmp_path: Path, capsys: Any) -> None:
    refused = 0
    for number, kind in enumerate(kinds_of_strings(program)):
        file = tmp_path / f"{number}.pb"
        file.write_bytes(with_text(program, kind, text))
        refused += main(["propagate", str(file), "--annotate", f"{text}={{replicated}}"]) != 0
        message = capsys.readouterr().err
        assert message.rstrip("\n").isprintable(), kind
    assert refused > 5


def test_a_trace_of_a_run_is_json_whatever_the_names_are(program: bytes, tmp_path: Path) -> None:
    for text in HOSTILE:
        simulation = hs.simulate(hs.load(with_text(program, ".computations.instructions.metadata.op_name", text)))
        simulation.save_trace(tmp_path / "trace.json")
        assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
