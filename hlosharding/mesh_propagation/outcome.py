"""What axis propagation found: annotations, options, conflicts, and a page that shows them op by op.

Floor: mesh_propagation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hlosharding.ir import Module
from hlosharding.mesh_propagation.mesh_text import Stage, mesh_text
from hlosharding.mesh_propagation.notes import AxisAnnotation
from hlosharding.mesh_propagation.offers import Conflict
from hlosharding.mesh_propagation.tiled_module import tiled_module
from hlosharding.notations import AxisSharding
from hlosharding.notebook import InNotebooks
from hlosharding.sharding import Cluster, HloSharding


@dataclass(frozen=True, slots=True)
class LoopOption:
    """How an op's loops are split: their names, and the axes of each.  `str` gives the list of lists."""

    loops: tuple[str, ...]
    sharding: AxisSharding
    """A list per loop."""

    def along(self, loop: str) -> tuple[int | str, ...]:
        """The axes that split the loop of that name."""
        return self.sharding.along(self.loops.index(loop))

    def __str__(self) -> str:
        return str(self.sharding)


@dataclass(frozen=True)
class AxisPropagation(InNotebooks):
    """The result of `propagate_axes`, which has an example.  `str` shows every op with its option and annotations."""

    module: Module
    cluster: Cluster
    annotations: tuple[AxisAnnotation, ...]
    """All, given and completed, in program order."""
    options: Mapping[str, LoopOption]
    """By op name; ops that nothing reached have none and are replicated."""
    conflicts: tuple[Conflict, ...]
    """Orders that could not be kept."""
    yielded: tuple[Conflict, ...]
    """Hints that gave way: here data moves between devices."""
    values: Mapping[str, tuple[str, ...]]
    """Instruction name -> the values it stands for, by leaf: a tuple's element is what went into the tuple."""

    def sharding(self, name: str) -> AxisSharding | None:
        """How the value of that name is made; None if nothing reached it.  Raises ModuleError for an unknown name."""
        return self._find(name, None, None)

    def operand(self, user: str, position: int) -> AxisSharding | None:
        """How an op ("output": the caller) sees one of its operands."""
        return self._find(None, user.removeprefix("%"), position)

    def hlo_sharding(self, name: str) -> HloSharding | None:
        """`sharding(name)` as tiles; raises ShardingError where sizes are unknown or partial values are no sums."""
        found = self.sharding(name)
        return None if found is None else found.to_hlo(self.cluster, self.module.by_name(name).shape.rank)

    def to_module(self, *, whole_arguments: bool = False) -> Module:
        """A clone whose values carry these shardings as tiles, for `hs.partition`; users that differ take copies.

        `whole_arguments`: each device is given all of each argument, and cuts its tile itself.  Raises ShardingError
        where sizes are unknown.
        """
        return tiled_module(self.module, self.cluster, self.annotations, self.values, whole_arguments=whole_arguments)

    def to_mesh_text(self, stage: Stage = "annotated") -> str:
        """The program in the text of MLIR's RFC.

        "annotated": plain tensors and `mesh.annotate` ops.  "materialized": tensors whose type has their sharding, and
        collectives where a user takes a value otherwise than it is made.  What each device runs is
        `hs.partition(found.to_module()).to_stablehlo_text()`.  Raises ShardingError for loops and branches.
        """
        options = {name: option.sharding for name, option in self.options.items()}
        return mesh_text(self.module, self.cluster, self.annotations, options, stage)

    def _find(self, value: str | None, user: str | None, position: int | None) -> AxisSharding | None:
        if value is not None and "{" not in value:
            name = self.module.by_name(value).name
            leaves = self.values.get(name, ())
            value = leaves[0] if len(leaves) == 1 else name
        for entry in self.annotations:
            users = entry.users[0] if entry.users else None
            if users == user and entry.operand == position and value in (None, entry.value):
                return entry.sharding if isinstance(entry.sharding, AxisSharding) else None
        return None

    def __str__(self) -> str:
        lines = [str(self.cluster)]
        shown: set[str] = set()
        for entry in self.annotations:
            owner = entry.users[0] if entry.users else ""
            if owner and owner not in shown and owner in self.options:
                shown.add(owner)
                option = self.options[owner]
                lines.append(f"%{owner}: loops {' '.join(option.loops) or 'none'}, option {option}")
            lines.append(_line(entry))
        lines += [f"conflict: {conflict}" for conflict in self.conflicts]
        return "\n".join(lines + [f"yielded: {conflict}" for conflict in self.yielded])


def _line(entry: AxisAnnotation) -> str:
    mark = ", required" if entry.required else ""
    if not entry.annotate_for_users:
        return f"%{entry.value} = {entry.sharding}{mark}"
    if entry.users == ("output",):
        return f"return %{entry.value} as {entry.sharding}{mark}"
    return f"  takes %{entry.value} as {entry.sharding}{mark}"
