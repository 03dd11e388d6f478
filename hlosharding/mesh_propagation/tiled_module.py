"""The outcome as a module that the partitioner understands: tiles on every value, and a copy where a user wants others.

Floor: mesh_propagation.  What a partial result becomes is what its users take; the partitioner finds the collective.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hlosharding.ir import CONTROL_FLOW, Instruction, Module, rewrite
from hlosharding.mesh_propagation.notes import OUTPUT, AxisAnnotation
from hlosharding.notations import AxisSharding
from hlosharding.sharding import Cluster, HloSharding

_COPY = "copy"
_TUPLE = frozenset({"tuple"})
_LEAF_BY_LEAF = _TUPLE | CONTROL_FLOW
"""What takes a tuple's leaves as they are made."""
_IN_FLIGHT = frozenset(["async-start", "async-update", "async-done", "copy-start", "copy-done"])
"""Ops of compiled modules, on whole values: their tuples hold what is under way, and take no tiles."""


def tiled_module(
    module: Module,
    cluster: Cluster,
    annotations: Iterable[AxisAnnotation],
    values: Mapping[str, Sequence[str]],
    *,
    whole_arguments: bool = False,
) -> Module:
    """A clone with shardings; `values` are the leaves that each instruction stands for.  Raises ShardingError."""
    writer = _TiledModuleWriter(module.clone(), cluster, values)
    for entry in annotations:
        sharding = AxisSharding.of(entry.sharding)
        if entry.annotate_for_users:
            writer.taken.setdefault(entry.value, []).append(sharding)
            writer.uses[entry.users[0], entry.operand or 0] = sharding
        else:
            writer.made[entry.value] = sharding
    return writer.write(whole_arguments)


@dataclass
class _TiledModuleWriter:
    module: Module
    cluster: Cluster
    values: Mapping[str, Sequence[str]]
    made: dict[str, AxisSharding] = field(default_factory=dict[str, AxisSharding])
    taken: dict[str, list[AxisSharding]] = field(default_factory=dict[str, list[AxisSharding]])
    uses: dict[tuple[str, int], AxisSharding] = field(default_factory=dict[tuple[str, int], AxisSharding])

    def write(self, whole_arguments: bool) -> Module:
        module = self.module
        # For its error, should a size be unknown: it speaks of the module, and not of the value that happens to be
        # first.
        self.cluster.mesh("a module with tiles")
        module.shardings = {}
        for inst in list(module.instructions):
            self._hold(inst)
        # In a second walk: uses are compared with tiles of values that stand elsewhere.  Copies come into the list
        # meanwhile.
        for inst in list(module.instructions):
            if not inst.shape.is_tuple or inst.opcode not in _LEAF_BY_LEAF:
                for number, operand in enumerate(inst.operands):
                    self._adapt(inst, number, operand, self.uses.get((inst.name, number)))
        self._return()
        if whole_arguments:
            self._cut_arguments()
        module.renumber()
        module.num_partitions = self.cluster.ways(range(self.cluster.rank), "a module with tiles")
        return module

    def held(self, value: str) -> AxisSharding | None:
        """How a value lies between ops: as it is made, unless that is partial or unknown and its users agree."""
        made, taken = self.made.get(value), self.taken.get(value, [])
        if (made is None or made.partial) and taken and all(t == taken[0] for t in taken):
            return taken[0]
        return made if made is None else AxisSharding(made.dims)

    def _hold(self, inst: Instruction) -> None:
        leaves = inst.shape.leaves
        found = [self.held(value) for value in self.values.get(inst.name, ())]
        if not any(s is not None for s in found) or len(found) != len(leaves) or inst.opcode in _IN_FLIGHT:
            return
        tiles = [
            HloSharding.replicate() if s is None else s.to_hlo(self.cluster, leaf.rank)
            for s, leaf in zip(found, leaves, strict=True)
        ]
        self.module.shardings[inst.id] = HloSharding.tuple(tiles) if inst.shape.is_tuple else tiles[0]

    def _adapt(self, user: Instruction, number: int, operand: Instruction, wanted: AxisSharding | None) -> None:
        # What an all-reduce-start makes is under way: its end alone reads it.
        if wanted is None or not operand.shape.is_array or operand.opcode == "all-reduce-start":
            return
        tiles = wanted.to_hlo(self.cluster, operand.shape.rank)
        if tiles != self.module.sharding(operand):
            rewrite.replace_operand(user, number, self._copy(operand, tiles))

    def _copy(self, value: Instruction, tiles: HloSharding) -> Instruction:
        module, body = self.module, value.computation
        name = rewrite.fresh_name(module, f"{value.name}.taken")
        place = body.instructions.index(value) + 1
        copy = rewrite.insert(body, place, _COPY, value.shape, (value,), name=name, like=value)
        rewrite.number(module, copy)
        module.shardings[copy.id] = tiles
        return copy

    def _cut_arguments(self) -> None:
        """Arguments come whole; a copy of each is the tile that its users take."""
        for parameter in self.module.entry.parameters:
            tiles = self.module.sharding(parameter)
            if tiles is not None and parameter.shape.is_array and not tiles.is_replicated():
                copy = self._copy(parameter, tiles)
                for user in [user for user in parameter.users if user is not copy]:
                    rewrite.set_operands(user, (copy if o is parameter else o for o in user.operands))
                if parameter.is_root:
                    parameter.computation.set_root(copy)
                self.module.shardings[parameter.id] = HloSharding.replicate()

    def _return(self) -> None:
        root = self.module.entry.root
        if root.shape.is_array:
            wanted = self.uses.get((OUTPUT, 0))
            tiles = None if wanted is None else wanted.to_hlo(self.cluster, root.shape.rank)
            if tiles is not None and tiles != self.module.sharding(root):
                self.module.entry.set_root(self._copy(root, tiles))
        elif root.opcode in _TUPLE and all(o.shape.is_array for o in root.operands):
            for number, operand in enumerate(root.operands):
                self._adapt(root, number, operand, self.uses.get((OUTPUT, number)))
            # Its tiles are those of the leaves as they are made, and operands may be copies with others now.
            self.module.shardings.pop(root.id, None)
