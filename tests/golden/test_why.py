"""docs/why.md shows what `explain` answers today."""

from __future__ import annotations

import html
import re
from pathlib import Path

import hlosharding as hs
from examples.why import QUESTIONS, answer

PAGE = Path(__file__).resolve().parents[2] / "docs" / "why.md"
BLOCK = re.compile(r"```text\n.*?```", re.DOTALL)


def test_the_page_shows_the_answers(update_golden: bool) -> None:
    answers = iter([answer(question) for question in QUESTIONS])
    page = PAGE.read_text()
    now = BLOCK.sub(lambda _: f"```text\n{next(answers)}\n```", page)
    if update_golden:
        PAGE.write_text(now)
    else:
        assert now == page


def test_every_answer_ends_at_an_annotation_or_says_what_stopped() -> None:
    for question in QUESTIONS:
        text = answer(question)
        assert "given by the user" in text or "not split" in text


def test_notebooks_show_the_same_lines() -> None:
    module, opcode = QUESTIONS["fft"]()
    name = next(i.name for i in module.entry.instructions if i.opcode == opcode)
    found = hs.propagate(module).explain(name)
    shown = found._repr_html_()
    assert re.match("<pre[^>]*><b>%", shown)
    assert "P(&#39;data&#39;, None)" in shown
    assert html.unescape(re.sub("<[^>]*>", "", shown)) == str(found)
