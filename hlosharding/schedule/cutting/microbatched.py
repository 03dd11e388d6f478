"""The program of one microbatch, and which of its values differ from microbatch to microbatch.

Floor: schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from hlosharding.errors import ScheduleError
from hlosharding.ir import Instruction, Module, is_sharding_call, rewrite


@dataclass(frozen=True, eq=False)
class Microbatched:
    """One microbatch's program, with what comes behind the last one in it."""

    module: Module
    """Shapes are those of one microbatch."""
    count: int
    sums: frozenset[Instruction]
    """Copies of what has to be summed over all microbatches, which they alone read."""
    batch: Mapping[int, int]
    """Of the parameters that are cut into microbatches, by number, the dim."""
    joined: Mapping[int, int]
    """Of the results that each microbatch has its piece of, by number, the dim."""
    opening: frozenset[Instruction] = frozenset()
    """Those of the sums that are made ahead of all passes, because these need them."""
    number: Instruction | None = None
    """The parameter, no argument of the caller's, that is the number of the microbatch."""

    @cached_property
    def after(self) -> frozenset[Instruction]:
        """What runs once, behind the last microbatch: the sums that are not made ahead, and all that reads them."""
        found: set[Instruction] = set(self.sums - self.opening)
        for inst in self.module.entry.instructions:
            # One microbatch has no sums that would tell what runs once: an optimizer's ops are told by what they read.
            if not inst.is_root and (not found.isdisjoint(inst.operands) or (self.count == 1 and _updates(inst))):
                found.add(inst)
        return frozenset(found)

    @cached_property
    def varying(self) -> frozenset[Instruction]:
        """What differs from microbatch to microbatch."""
        found: set[Instruction] = set()
        for inst in self.module.entry.instructions:
            is_made_once = inst in self.sums or (self.count == 1 and inst in self.after)
            is_cut = inst.opcode == "parameter" and inst.parameter_number in self.batch
            if is_cut or inst is self.number or (not is_made_once and not found.isdisjoint(inst.operands)):
                found.add(inst)
        return frozenset(found)

    @cached_property
    def ahead(self) -> frozenset[Instruction]:
        """What differs from microbatch to microbatch, and is made for early sums alone."""
        found: set[Instruction] = set(self.opening)
        for inst in reversed(self.module.entry.instructions):
            if inst in self.varying and inst.opcode != "parameter" and inst.users and found.issuperset(inst.users):
                found.add(inst)
        return frozenset(found)

    def without_sum(self, inst: Instruction) -> Instruction:
        """A sum goes by the name of its terms, which are added up."""
        return inst.operands[0] if inst in self.sums else inst


def is_layout_call(inst: Instruction) -> bool:
    """Does an op of the program only say how a value lies, in all its dims, and nothing of other values?"""
    if not is_sharding_call(inst) or inst.opaque:
        return False
    sharding = inst.module.sharding(inst)
    return sharding is not None and not sharding.is_unknown() and not sharding.shard_group


def without_layout_calls(module: Module) -> Module:
    """The same program with a copy in place of each, and of those that leave dims open or tie values, in loops, too."""
    if not any(map(is_sharding_call, module.instructions)):
        return module
    made = module.clone()
    for inst in list(filter(is_sharding_call, made.instructions)):
        rewrite.change_opcode(inst, "copy")
    return made


def pack_results(module: Module) -> Module:
    """The same program with a tuple of arrays as its result, as that of traced functions: no carry, no nested tuple."""
    if module.entry.root.opcode == "tuple" and all(each.shape.is_array for each in module.entry.results):
        return module
    made = module.clone()
    root, names = made.entry.root, rewrite.names_of(made)
    arrays = list(_arrays_of(root, names))
    end, name = len(made.entry.instructions), rewrite.free_name(names, "results")
    made.entry.set_root(rewrite.insert(made.entry, end, "tuple", None, arrays, name=name))
    made.renumber()
    return made


def _arrays_of(value: Instruction, names: set[str]) -> Iterator[Instruction]:
    """What a value holds, taken out of it at the end of its computation."""
    if not value.shape.is_tuple:
        yield value
        return
    where = value.computation
    for number in range(len(value.shape.tuple_shapes)):
        name, end = rewrite.free_name(names, f"{value.name}_{number}"), len(where.instructions)
        made = rewrite.insert(where, end, "get-tuple-element", None, (value,), name=name, tuple_index=number)
        yield from _arrays_of(made, names)


def _updates(inst: Instruction) -> bool:
    """Does the op read gradients, and stands in no differentiated function itself?"""
    return "jvp(" not in inst.op_name and any(operand.is_backward for operand in inst.operands)


def place_in_source(inst: Instruction) -> str | None:
    """Where an error says that an op stands: its line, else its name in JAX."""
    return inst.location or inst.op_name or None


def error_at(inst: Instruction, what: str, remedy: str) -> ScheduleError:
    """An error that says where an op stands."""
    return ScheduleError(what, where=place_in_source(inst), remedy=remedy)


def reads_of(inst: Instruction) -> Iterator[Instruction]:
    """What an op reads of what travels: of tuples and broadcasts, what they are made of."""
    for operand in inst.operands:
        if operand.opcode in MADE_WHERE_READ:
            yield from reads_of(operand)
        else:
            yield operand


def find_reached(
    seeds: Iterable[Instruction], beyond: Callable[[Instruction], Iterable[Instruction]]
) -> set[Instruction]:
    """Some instructions, and all that lie beyond one of them."""
    found, waiting = set[Instruction](), list(seeds)
    while waiting:
        inst = waiting.pop()
        if inst not in found:
            found.add(inst)
            waiting += beyond(inst)
    return found


MADE_WHERE_READ = {"tuple", "broadcast"}
"""Never sent: their operands are fewer bytes, or cannot be together in one array."""
