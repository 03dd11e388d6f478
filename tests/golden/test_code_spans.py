"""Inline code of all pages is code: names of `hs.` exist, calls bind, command lines are parsed."""

from __future__ import annotations

import argparse
import ast
import contextlib
import inspect
import io
import re
import shlex
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

import hlosharding as hs
from hlosharding.cli.parser import build_parser
from tests.golden.pages import ALL_PAGES, code_spans, name_of

OPEN = re.compile(r"(?<==)(?=[,)])")
"""`hs.jit(mesh=)` names a parameter, and leaves its value open."""
FRAGMENT = re.compile(r"hlosharding (?P<command>[\w-]+)(?P<option> --?[\w-]+)?( [\w.]+| \[FILE\]|( [A-Z]+)*)")
"""A command by itself, with one option that is spoken of, or with what it takes."""


def valued(node: ast.expr) -> Any:
    """The object that `hs.a.b` is, of a call the class of its result; None: not known.  Raises AttributeError."""
    if isinstance(node, ast.Name):
        return hs if node.id == "hs" else None
    if isinstance(node, ast.Call) and (called := valued(node.func)) is not None:
        return getattr(hs, str(inspect.signature(called).return_annotation), None)
    if not isinstance(node, ast.Attribute) or (owner := valued(node.value)) is None:
        return None
    if is_dataclass(owner) and node.attr in {field.name for field in fields(owner)}:
        return node.attr
    return getattr(owner, node.attr)


def bind(call: ast.Call) -> None:
    """Hold a call to the signature of what it calls; `...` and `*arguments` stand for what is not said."""
    if (called := valued(call.func)) is None:
        return
    said = [a for a in call.args if not isinstance(a, ast.Starred) and getattr(a, "value", 0) is not ...]
    is_open = len(said) < len(call.args) or any(getattr(k.value, "value", 0) is ... for k in call.keywords)
    signature = inspect.signature(called)
    (signature.bind_partial if is_open else signature.bind)(*said, **{k.arg: k.value for k in call.keywords if k.arg})


def wrong_expression(span: str) -> str:
    """What is wrong with `hs.…`; "": nothing."""
    try:
        for node in ast.walk(ast.parse(OPEN.sub("...", span), mode="eval")):
            if isinstance(node, ast.Attribute):
                valued(node)
            elif isinstance(node, ast.Call):
                bind(node)
    except (SyntaxError, AttributeError, TypeError) as error:
        return f"{span}: {error}"
    return ""


def commands() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command."""
    [found] = [a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction)]
    return dict(found.choices)


def wrong_command(span: str) -> str:
    """What is wrong with `hlosharding …`; "": nothing."""
    span = re.split(r" \\?[|>] ", span.replace("COMMAND", "run"))[0]
    found = FRAGMENT.fullmatch(span)
    if found and found["command"] in commands():
        known = commands()[found["command"]]._option_string_actions
        if not found["option"] or found["option"].strip() in known:
            return ""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            build_parser().parse_args(shlex.split(span)[1:])
        except ValueError as error:  # a quotation that does not end
            return f"{span}: {error}"
        except SystemExit as end:
            return f"{span}: {said.getvalue().splitlines()[-1]}" if end.code else ""
    return ""


@pytest.mark.parametrize("page", ALL_PAGES, ids=name_of)
def test_inline_code_is_right(page: Path) -> None:
    spans = list(code_spans(page))
    wrong = [wrong_expression(span) for span in spans if span.startswith("hs.")]
    wrong += [wrong_command(span) for span in spans if span.startswith("hlosharding ")]
    assert [one for one in wrong if one] == []


def test_what_is_wrong_is_seen() -> None:
    assert "no attribute 'jitt'" in wrong_expression("hs.jitt(f)")
    assert "unexpected keyword" in wrong_expression("hs.jit(f, mash=)")
    assert "missing a required argument" in wrong_expression("hs.partition()")
    assert "unrecognized arguments" in wrong_command("hlosharding run FILE --chek")
    assert "invalid choice" in wrong_command("hlosharding runn")
