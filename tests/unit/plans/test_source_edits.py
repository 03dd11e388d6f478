"""Texts with insertions: nested, multi-line, and with letters of several bytes."""

from __future__ import annotations

import ast

from hlosharding.plans.source_change import Edit, behind_imports, body_start, edited, span_of


def test_parts_within_parts_that_begin_and_end_together() -> None:
    text = "f(x + y)"
    outer, whole, inner = Edit(0, 8, "a(", ")"), Edit(2, 7, "b(", ")"), Edit(2, 3, "c(", ")")
    for edits in ([outer, whole, inner], [inner, whole, outer]):
        assert edited(text, edits) == "a(f(b(c(x) + y)))"


def test_spans_are_of_bytes_and_over_lines() -> None:
    text = 'é = 1\nb = f("ä",\n  é)\n'
    call = ast.parse(text).body[1]
    assert isinstance(call, ast.Assign)
    assert edited(text, [Edit(*span_of(text, call.value), "g(", ")")]) == 'é = 1\nb = g(f("ä",\n  é))\n'


def test_a_function_stands_behind_the_imports() -> None:
    text = '"""A module."""\nimport jax\nfrom a import (\n    b,\n)\nx = 1\nimport late\n'
    place = behind_imports(text, ast.parse(text))
    assert text[place:] == "x = 1\nimport late\n"
    assert behind_imports("x = 1\n", ast.parse("x = 1\n")) == 0


def test_where_a_body_begins() -> None:
    text = 'def f(x):\n    """What."""\n    return x\ndef g(x): return x\n'
    first, second = ast.parse(text).body
    assert isinstance(first, ast.FunctionDef)
    assert isinstance(second, ast.FunctionDef)
    assert body_start(text, first) == (text.index("    return x"), "    ")
    assert body_start(text, second) is None
