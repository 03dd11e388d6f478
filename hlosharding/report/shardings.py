"""The shardings that propagation found: of parameters, of everything; and one by itself.

Floor: report.
"""

from __future__ import annotations

import re
from typing import Any

from hlosharding.ir import Module
from hlosharding.propagation import Propagation
from hlosharding.report.model import Column, Drawing, Facts, Kind, Row, Table, Text, Thread, View, fields_of
from hlosharding.report.places import value_place
from hlosharding.sharding import HloSharding, spell

_INDEX = re.compile(r"\[\d+\]")
_ROOT = re.compile(r"^[\w.]+(\[\d+\])*")
_RestOfRow = tuple[str, str]

_SHAPE = Column(key="shape", heading="shape", kind=Kind.SHAPE, priority=1)
_OPERATION = Column(key="operation", heading="operation", priority=3)
_FOUND = Column(key="sharding", heading="sharding found", kind=Kind.SHARDING)
_TIMES = Column(key="times", heading="times", kind=Kind.COUNT, sums=True, priority=2)


def propagation_view(propagated: Propagation) -> View:
    """Every value with its sharding, in program order, a section a computation; reducers and their like left out."""
    module = propagated.module
    facts = Facts.of(
        module=module.name,
        num_partitions=module.num_partitions,
        changed=propagated.changed,
        shardings=propagated.shardings,
    )
    return View((facts, _values(module)), schema="hlosharding.propagation/1")


def _values(module: Module) -> Table:
    rows, breaks = list[Row](), set[int]()
    for computation in module.computations:
        if not computation.is_entry and not any(module.sharding(inst) for inst in computation.instructions):
            continue
        breaks.add(len(rows))
        rows += [
            {
                "value": f"ROOT %{inst.name}" if inst.is_root else f"%{inst.name}",
                "operation": inst.opcode,
                "sharding": module.sharding(inst),
                **fields_of(inst, "shape location"),
            }
            for inst in computation.instructions
        ]
    columns = (
        Column(key="value", heading="value"),
        _OPERATION,
        _SHAPE,
        Column(key="sharding", heading="sharding", kind=Kind.SHARDING),
        Column(key="location", heading="source", kind=Kind.LOCATION, priority=2),
    )
    return Table(title="Shardings", columns=columns, rows=rows, breaks=frozenset(breaks), mesh=module.mesh)


def parameters_view(propagated: Propagation, mesh: Any = None) -> View:
    """The sharding found for each parameter; layers that agree share a row, and so do an optimizer's moments."""
    mesh = mesh if mesh is not None else propagated.module.mesh
    known: dict[tuple[str, _RestOfRow], str] = {}
    rows: list[Row] = []
    for parameter in propagated.module.entry.parameters:
        sharding = propagated.module.sharding(parameter)
        path = shared_path(parameter.path, (str(parameter.shape), spell(sharding, mesh)), known)
        thread = Thread((value_place(parameter.name),))
        row = {"parameter": path, "shape": parameter.shape, "sharding": sharding, "times": 1, "thread": thread}
        rows.append(row)
    columns = (Column(key="parameter", heading="parameter"), _SHAPE, _FOUND, _TIMES)
    title = "Parameters, with their layers and moments"
    table = Table(title=title, key="parameters", columns=columns, rows=rows, mesh=mesh, joins=True, thread="thread")
    return View((table,))


def path_of_layers(path: str) -> str:
    """That all layers of a parameter have.

    >>> path_of_layers("params['layers'][3]['up']")
    "params['layers'][*]['up']"
    """
    return _INDEX.sub("[*]", path)


def shared_path(path: str, rest: _RestOfRow, known: dict[tuple[str, _RestOfRow], str]) -> str:
    """The path of an earlier row of the same parameter (other layer, or whose moment this is), else its own.

    `known` finds rows by what follows the name of the argument: a moment's path ends like its parameter's.
    """
    tail = _ROOT.sub("", path)
    path = path.removesuffix(tail) + path_of_layers(tail)
    tail = path_of_layers(tail)
    for start, letter in enumerate(path):
        if letter in ".[" and (path[start:], rest) in known:
            return known[path[start:], rest]
    if tail:
        known[tail, rest] = path
    return path


def sharding_view(sharding: HloSharding) -> View:
    """Its text, how often each dim is split, and the devices of each tile, row-major; a drawing.

    >>> sharding_view(HloSharding.parse("{devices=[2]<=[2]}")).parts[0].items["split"]
    (2,)
    """
    is_tiled = sharding.kind == "tiled"
    facts = Facts.of(
        text=str(sharding),
        kind=sharding.kind,
        split=tuple(map(int, sharding.data_dims)) if is_tiled else None,
        tiles=sharding.tiles.array.reshape(sharding.num_tiles, -1).tolist() if is_tiled else None,
        leaves=[sharding_view(leaf) for leaf in sharding.leaves] if sharding.is_tuple() else [],
    )
    drawing = (Drawing(sharding, tuple(map(int, sharding.data_dims))),) if is_tiled else ()
    return View((facts, Text(sharding), *drawing), schema="hlosharding.sharding/1")
