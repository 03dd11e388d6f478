"""Passes over a module: values with a name, what they require and what they ensure, run in order by one small driver.

Floor: ir.  Knows no pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hlosharding.errors import ModuleError
from hlosharding.ir.module import Module
from hlosharding.whole_files import write_whole, writing


@dataclass(frozen=True, slots=True)
class Property:
    """What can be true of a module."""

    name: str
    check: Callable[[Module], None]
    """Raises ModuleError where it is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A change of a module in place."""

    name: str
    run: Callable[[Module], None]
    requires: tuple[Property, ...] = ()
    """What must hold before."""
    ensures: tuple[Property, ...] = ()
    """All that holds afterwards."""


def run_passes(module: Module, passes: Sequence[Pass], *, dump: Path | None = None, check: bool = False) -> None:
    """Run passes in order.

    `dump`: a folder that gets the module's text before the first pass and after each.  `check`: test what each pass
    requires and ensures.  Raises ModuleError where a pass requires what the one before it does not ensure.

    >>> from hlosharding.ir import Builder, Shape
    >>> builder = Builder("m")
    >>> main = builder.computation("main")
    >>> _ = main.parameter(0, Shape.array("f32", (2,)))
    >>> named = Property("it has a name", lambda module: None)
    >>> first = Pass(name="first", run=lambda module: None, ensures=(named,))
    >>> run_passes(builder.finish(main), [first, Pass(name="second", run=lambda module: None, requires=(named,))])
    """
    _check_order(passes)
    _dump(module, dump, "00_before")
    for number, each in enumerate(passes, 1):
        _check(module, each.requires if check else ())
        each.run(module)
        _dump(module, dump, f"{number:02d}_{each.name}")
        _check(module, each.ensures if check else ())


def _check_order(passes: Sequence[Pass]) -> None:
    holds: tuple[Property, ...] = ()
    for each in passes:
        for wanted in each.requires:
            if wanted not in holds:
                raise ModuleError(f"pass {each.name} requires that {wanted.name}, which no pass before it ensures")
        holds = each.ensures


def _check(module: Module, properties: Sequence[Property]) -> None:
    for each in properties:
        each.check(module)


def _dump(module: Module, folder: Path | None, name: str) -> None:
    if folder is not None:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / f"{name}.hlo", module.to_hlo_text(metadata=True))
