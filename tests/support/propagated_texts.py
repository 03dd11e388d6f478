"""Small helpers: HLO text in, printed shardings out."""

from __future__ import annotations

from typing import Any

from hlosharding.frontends import load
from hlosharding.ir import Module
from hlosharding.propagation import Propagation, propagate


def module(body: str, regions: str = "") -> Module:
    """A module whose entry computation has these lines."""
    text = f"HloModule test\n{regions}\nENTRY %main {{\n{body}\n}}\n"
    return load(text, format="hlo")


def run(body: str, regions: str = "", **options: Any) -> Propagation:
    """Propagate it."""
    return propagate(module(body, regions), **options)


def printed(body: str, name: str, regions: str = "", **options: Any) -> str | None:
    """The sharding found for one instruction, as text."""
    found = run(body, regions, **options).shardings[name]
    return None if found is None else str(found)


SUM = """
%sum {
  %left = f32[] parameter(0)
  %right = f32[] parameter(1)
  ROOT %both = f32[] add(%left, %right)
}
"""
