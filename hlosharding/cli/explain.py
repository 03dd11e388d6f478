"""`hlosharding explain`: why a value has its sharding.

Floor: cli.
"""

from __future__ import annotations

import re
from argparse import Namespace
from difflib import get_close_matches

from hlosharding.cli.programs import partitioned_program, present, propagated_program
from hlosharding.errors import ModuleError
from hlosharding.ir import Instruction, Module
from hlosharding.propagation import Explanation, Propagation
from hlosharding.report import explanations_view, split_view

_LINE = re.compile(r".+:\d+|.+\.onnx:.+")
"""Of a Python file; in an ONNX model nodes stand for lines."""


def execute(arguments: Namespace) -> None:
    """Print the chain of causes of each value that NAME means."""
    if arguments.splits:
        _show_splits(arguments)
        return
    propagated = propagated_program(arguments)
    found = _explanations(propagated, arguments.name)
    present(explanations_view(found, whole=arguments.whole), arguments.emit)


def _show_splits(arguments: Namespace) -> None:
    """How else the op could be split, and what each split would cost."""
    partitioned = partitioned_program(arguments)
    present(split_view(partitioned.explain(arguments.name)), arguments.emit)


def _explanations(propagated: Propagation, name: str) -> list[Explanation]:
    """Of a source line all values; else what `Propagation.explain` understands."""
    if _LINE.fullmatch(name):
        return [propagated.explain(inst.name) for inst in meant(propagated.module, name)]
    return [propagated.explain(name)]


def meant(module: Module, name: str) -> list[Instruction]:
    """The values a name means: a parameter's path, an ONNX tensor, a source line, or an instruction.

    Raises ModuleError if none.
    """
    if name in module.paths:
        return [module.paths[name]]
    return _made_at(module, name) if _LINE.fullmatch(name) else [module.by_name(name)]


def _made_at(module: Module, line: str) -> list[Instruction]:
    """The values of a source line; those inside reducers and their like have no sharding and are left out."""
    places = {i.location for i in module.instructions}
    made = [i for i in module.instructions if i.location == line or i.location.endswith("/" + line)]
    if not made:
        near = get_close_matches(line, sorted(places - {""}), 3)
        remedy = f"did you mean {', '.join(near)}?" if near else "the program names no source lines"
        raise ModuleError(f"no value is made at {line}", remedy=remedy)
    return [i for i in made if i.computation.is_entry or module.sharding(i) is not None] or made
