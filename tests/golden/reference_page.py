"""docs/reference.md: every public name by room, with its signature and its docstring."""

from __future__ import annotations

import importlib
import inspect
import os
from collections import Counter
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import hlosharding as hs
from hlosharding import errors
from tests.golden.ops_page import ROOT

PAGE = ROOT / "docs" / "reference.md"
ROOMS = {module: names for module, names in reversed(hs._NAMES.items()) if module != errors.__name__}
"""Names by room, the highest floor first."""
WIDTH = 110
HEAD = """# Reference

Made by `make golden` from the docstrings, whose examples run as doctests: what a name takes, what each parameter
means, what it raises. Each name is linked to its source, each room to its page. The [guide](guide.md) shows them at
work; the command line has [its own page](cli.md).

"""


class _Bare:
    """An annotation as it is written in the source, without quotes."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _bare(annotation: Any) -> Any:
    return _Bare(annotation) if isinstance(annotation, str) else annotation


def _bared(parameter: inspect.Parameter) -> inspect.Parameter:
    """As its source writes it; a default that is a function has no text that stays."""
    default = _Bare("...") if inspect.isfunction(parameter.default) else parameter.default
    return parameter.replace(annotation=_bare(parameter.annotation), default=default)


def said(value: Any) -> str:
    """The first paragraph of the docstring, on one line."""
    return " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())


def described(value: Any) -> str:
    """The whole docstring; examples are code."""
    parts = (inspect.getdoc(value) or "").split("\n\n")
    return "\n\n".join(f"```python\n{part}\n```" if part.startswith(">>>") else part for part in parts)


def signature(name: str, value: Any) -> str:
    """The call, a parameter a line where one line is too short.  "": nothing that a user calls."""
    if isinstance(value, ModuleType):
        return ""
    found = inspect.signature(value)
    shown = [_bared(p) for p in found.parameters.values() if _is_public(p.name)]
    is_class = isinstance(value, type)
    if is_class and not shown:  # named constructors make it
        return ""
    result = inspect.Signature.empty if is_class else _bare(found.return_annotation)
    line = f"{name}{inspect.Signature(shown, return_annotation=result)}"
    return line if len(line) <= WIDTH else _in_lines(name, shown, line.rpartition(") -> ")[2] if not is_class else "")


def _in_lines(name: str, parameters: list[inspect.Parameter], result: str) -> str:
    marked: list[str] = []
    for before, parameter in zip([None, *parameters], parameters, strict=False):
        kind = None if before is None else before.kind
        if kind is parameter.POSITIONAL_ONLY and parameter.kind is not kind:
            marked.append("/")
        if parameter.kind is parameter.KEYWORD_ONLY and kind not in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL):
            marked.append("*")
        marked.append(str(parameter))
    lines = "".join(f"    {one},\n" for one in marked)
    return f"{name}(\n{lines})" + (f" -> {result}" if result else "")


def members(value: Any) -> list[str]:
    """What a class (its methods and properties) or a module (its functions) has under public names."""
    if isinstance(value, ModuleType):
        found = {name: getattr(value, name) for name in getattr(value, "__all__", None) or vars(value)}
        functions = {n: v for n, v in found.items() if inspect.isfunction(inspect.unwrap(v))}
        own = {n: v for n, v in functions.items() if v.__module__ == value.__name__}
    else:
        own = {n: getattr(value, n) for n in _defined_here(value)}
    return [f"- `{_short(n, v)}`: {said(v)}" for n, v in sorted(own.items()) if _is_public(n) and said(v)]


def _defined_here(kind: type) -> dict[str, None]:
    """Names of functions and properties of the class and of those of this library below it."""
    ours = [base for base in kind.__mro__ if base.__module__.partition(".")[0] == "hlosharding"]
    callables = (property, cached_property, classmethod, staticmethod)
    return {n: None for c in ours for n, v in vars(c).items() if isinstance(v, callables) or inspect.isfunction(v)}


def _short(name: str, value: Any) -> str:
    """A function with the names of its parameters; a property by itself."""
    if isinstance(value, property | cached_property):
        return name
    shown = [
        _bared(p).replace(annotation=p.empty) for p in inspect.signature(value).parameters.values() if p.name != "self"
    ]
    return f"{name}{inspect.Signature(shown)}"


def _is_public(name: str) -> bool:
    return not name.startswith("_")


def _link(name: str, value: Any) -> str:
    path = Path(inspect.getsourcefile(inspect.unwrap(value)) or "")
    return f"[`hs.{name}`]({os.path.relpath(path, PAGE.parent)})"


def entry(name: str) -> str:
    """One name: where it is defined, how it is called, what it is, what it has."""
    value = getattr(hs, name)
    call = signature(name, value)
    parts = [f"### {_link(name, value)}", f"```python\n{call}\n```" if call else "", described(value)]
    has = members(value) if isinstance(value, type | ModuleType) else []
    return "\n\n".join(part for part in [*parts, "\n".join(has)] if part) + "\n"


def room(path: str) -> str:
    """The names of one room."""
    name = path.rpartition(".")[2]
    head = f"## [{name}](../hlosharding/{name}/README.md)\n\n{said(importlib.import_module(path))}\n"
    return "\n".join([head, *map(entry, ROOMS[path])])


def errors_table() -> str:
    """The exceptions: all take the same arguments."""
    names = [name for name in hs.__all__ if name in vars(errors)]
    rows = "".join(f"| {_link(name, getattr(hs, name))} | {said(getattr(hs, name))} |\n" for name in names)
    return f"## errors\n\n{said(errors)}\n\n| error | |\n|---|---|\n{rows}"


def index() -> str:
    """A line for each room, each name linked to its place on the page."""
    seen: Counter[str] = Counter()
    lines: list[str] = []
    for path in ROOMS:
        linked: list[str] = []
        for name in ROOMS[path]:
            anchor = f"hs{name.lower()}"  # as GitHub makes it of the heading; a second one of that name gets a number
            linked.append(f"[`{name}`](#{anchor}{f'-{seen[anchor]}' if seen[anchor] else ''})")
            seen[anchor] += 1
        lines.append(f"| {path.rpartition('.')[2]} | {' '.join(linked)} |")
    return "| room | names |\n|---|---|\n" + "\n".join([*lines, "| errors | [all](#errors) |"]) + "\n"


def page() -> str:
    """The whole page."""
    return HEAD + "\n".join([index(), *map(room, ROOMS), errors_table()])
