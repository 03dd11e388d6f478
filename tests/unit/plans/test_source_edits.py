"""Texts with insertions: nested, multi-line, and with letters of several bytes."""

from __future__ import annotations

import ast

import pytest

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


@pytest.mark.parametrize(
    ("text", "indentation"),
    [
        ("def f(x):\n\treturn x\n", "\t"),
        ("def f(x):\n\x0c  return x\n", "\x0c  "),
        ("def f(x):\n    @wrap(x)\n    def g(): return x\n    return g\n", "    "),
        ("def f(x,\n      y): return x\n", None),
        ('def f(x):\n    """What."""; return x\n', None),
    ],
)
def test_what_stands_ahead_of_a_body_goes_ahead_of_what_is_put_there(text: str, indentation: str | None) -> None:
    [function] = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    found = body_start(text, function)
    assert (found and found[1]) == indentation
    if found is not None:
        [changed] = ast.parse(edited(text, [Edit(found[0], found[0], f"{found[1]}x = 1\n")])).body
        assert isinstance(changed, ast.FunctionDef)
        assert list(map(ast.unparse, changed.body)) == ["x = 1", *map(ast.unparse, function.body)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_end_where_pythons_do(end: str) -> None:
    """Not at what `str.splitlines` takes for their ends, too."""
    text = f"\x0ca = '\u2028\x85\x1c'{end}b = a{end}"
    assign = ast.parse(text).body[1]
    assert isinstance(assign, ast.Assign)
    start, stop = span_of(text, assign.value)
    assert text.encode()[start:stop] == b"a"
    assert text.encode()[start - 4 : start] == b"b = "
