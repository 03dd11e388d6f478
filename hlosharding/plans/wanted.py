"""What a plan wants of a program, and the program as XLA gets it from a stock `jax.jit`.

Floor: plans.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hlosharding.compiler import Partitioned
from hlosharding.errors import PlanError
from hlosharding.frontends import is_inserted
from hlosharding.ir import Instruction, Module, rewrite
from hlosharding.propagation import propagate
from hlosharding.sharding import REPLICATED, HloSharding

Leaves = tuple[HloSharding | None, ...]
"""Of each argument, or each result; None: left to XLA."""


@dataclass(frozen=True)
class WantedShardings:
    """The shardings of a partitioned program, and what its writer said in the source himself."""

    source: Module
    """As it was given, with all annotations."""
    shardings: Mapping[str, HloSharding]
    """Of every value, as the program that runs has it."""
    inputs: Leaves
    outputs: Leaves

    @classmethod
    def of(cls, partitioned: Partitioned) -> WantedShardings:
        """Raises PlanError for a program that XLA compiled already."""
        propagation = partitioned.propagation
        if propagation is None or partitioned.module is propagation.module:
            raise PlanError("the program was split already", remedy="export the plan of the program it was made from")
        # XLA is told what the source says, and makes that; what is bypassed here is no wish.
        chosen = {one.name: one.chosen for one in partitioned.sharding_overrides if not one.is_bypassed}
        shardings = {name: found or REPLICATED for name, found in propagation.shardings.items()} | chosen
        local = partitioned.module
        inputs = (leaf for p in local.entry.parameters for leaf in _leaves(local.sharding(p)))
        return cls(propagation.source, shardings, tuple(inputs), _leaves(local.sharding(local.entry.root)))

    def stock(self, inputs: Leaves, outputs: Leaves, constrained: Iterable[Instruction] = ()) -> Module:
        """The program as a stock `jax.jit` hands it to XLA: shardings at its edge, those that the source says itself,
        and constraints."""
        made = self.source.clone()
        # What `annotate` and plans put in is not in the user's source.  Taken for said there, it spared lines that XLA
        # needs: a scanned attention layer took 1.7 times the FLOPs, and six times the bytes.
        for call in list(filter(is_inserted, made.instructions)):
            rewrite.change_opcode(call, "copy")
        own = {i.id for i in made.instructions if _is_said_in_source(i, made.sharding(i))}
        made.shardings = {number: sharding for number, sharding in made.shardings.items() if number in own}
        _put_boundary(made, inputs, outputs)
        for inst in constrained:
            made.shardings[inst.id] = self.shardings[inst.name]  # a clone has the ids of what it is made of
        return made

    def unreached(self, program: Module, among: Iterable[Instruction]) -> list[Instruction]:
        """Of these values, those that XLA would lay out otherwise."""
        found = propagate(program).shardings
        return [inst for inst in among if (found.get(inst.name) or REPLICATED) != self.shardings.get(inst.name)]


def _leaves(sharding: HloSharding | None) -> tuple[HloSharding, ...]:
    assert sharding is not None, "the partitioner shards the whole boundary"
    return tuple(sharding.leaves)


def _is_said_in_source(inst: Instruction, sharding: HloSharding | None) -> bool:
    """By `with_sharding_constraint` or `shard_map`."""
    if sharding is None or inst.is_entry_root or (inst.opcode == "parameter" and inst.computation.is_entry):
        return False
    is_manual = any(leaf.is_manual() or leaf.is_manual_subgroup() for leaf in sharding.leaves)
    return is_manual or inst.opcode == "custom-call"


def _put_boundary(module: Module, inputs: Leaves, outputs: Leaves) -> None:
    """What is None stays open, as `jax.jit` leaves it."""
    start = 0
    is_open: list[bool] = []
    for parameter in module.entry.parameters:
        count = len(parameter.shape.leaves)
        leaves, start = inputs[start : start + count], start + count
        is_open.append(None in leaves)
        _put(module, parameter, leaves)
    _put(module, module.entry.root, outputs)
    module.open_parameters = tuple(is_open)
    module.open_outputs = tuple(leaf is None for leaf in outputs)


def _put(module: Module, inst: Instruction, leaves: Leaves) -> None:
    said = [leaf if leaf is not None else REPLICATED for leaf in leaves]
    if any(leaf is not None for leaf in leaves):
        module.shardings[inst.id] = HloSharding.tuple(said) if inst.shape.is_tuple else said[0]
