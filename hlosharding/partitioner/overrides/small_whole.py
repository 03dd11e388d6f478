"""Another table of shardings to try: small values whole, where each device has what makes them, or sums make them.

Floor: partitioner.  Looks at instructions and shardings alone.  Propagation splits a sum where a matrix beside it is
split: it is scattered, and gathered again for the next sum.  What is so small is moved for latency alone, and computing
all of it takes no longer than a part.  Through loops, too: what a loop carries is whole if all that it is given is.

    a f32[4096,4096] split by rows    propagated: g split                                here: g whole
    s f32[4096] = sum of a's rows     reduce-scatter                                     all-reduce
    g f32[4096] = log(s)
    b = a + g (over the rows)         all-gather g
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hlosharding.ir import GENERATORS, Computation, Instruction, callers, hands_on, while_parts
from hlosharding.partitioner.iteration_space import as_compared, lift, project
from hlosharding.partitioner.overrides.held_values import held_as, is_packed
from hlosharding.partitioner.overrides.op_sets import BINDING, ProgramShardings
from hlosharding.partitioner.prices import SMALL
from hlosharding.rules import Signature, signature_of
from hlosharding.sharding import REPLICATED, HloSharding

_LEAST_WAITED = 0.03
"""Of the time of a step: for less no program is written and priced."""


def small_whole_shardings(program: ProgramShardings) -> dict[int, HloSharding]:
    """By id, small values as whole, and the tuples that hold them; empty where little is waited for parts of such."""
    if program.waits_for_small <= _LEAST_WAITED * program.cost.seconds:
        return {}
    found = _Whole(program, callers(program.module))
    found.run()
    return dict(found.changed())


@dataclass(slots=True)
class _Whole:
    """The largest set of small values of which each is made of whole ones, or of sums."""

    program: ProgramShardings
    callers: Mapping[Computation, list[Instruction]]
    values: set[Instruction] = field(default_factory=set[Instruction])

    def run(self) -> None:
        """All first; then those that are parts of what is split are taken out, and what is made of them."""
        given = self.program.shardings
        tiled = [i for i in self.program.module.instructions if i.id in given and given[i.id].kind == "tiled"]
        # A device has room for as much as it holds of another value.
        most = min(SMALL, max((i.shape.byte_size / given[i.id].num_tiles for i in tiled), default=0))
        waiting = [i for i in tiled if i.shape.byte_size <= most and self._is_free(i)]
        self.values.update(waiting)
        size = -1
        while size != len(self.values):
            size = len(self.values)
            self.values.difference_update([i for i in waiting if i in self.values and not self._is_made_whole(i)])

    def changed(self) -> Iterator[tuple[int, HloSharding]]:
        """By id: the values, and what holds them."""
        for inst in self.values:
            yield inst.id, REPLICATED
        for inst in self.program.module.instructions:
            given = self.program.shardings.get(inst.id)
            if given is None or not inst.shape.is_tuple or inst.name in self.program.annotated or self._is_bound(inst):
                continue
            whole = {n: REPLICATED for n in range(len(inst.shape.tuple_shapes)) if self._holds_whole(inst, n)}
            if whole:
                yield inst.id, held_as(inst, given, whole)

    def _is_free(self, inst: Instruction) -> bool:
        is_bound = inst.opcode in BINDING and inst.opcode != "get-tuple-element"
        return inst.shape.is_array and not is_bound and inst.name not in self.program.annotated and not inst.is_root

    def _is_bound(self, inst: Instruction) -> bool:
        """Is it what the program is given, or gives?"""
        return inst.computation.is_entry and (inst.is_root or inst.opcode == "parameter")

    def _is_made_whole(self, inst: Instruction) -> bool:
        if inst.opcode == "get-tuple-element":
            return self._holds_whole(inst.operands[0], inst.tuple_index)
        signature = signature_of(inst)
        if not isinstance(signature, Signature) or len(signature.results) != 1:
            return all(map(self._is_whole, inst.operands))
        return all(
            project(lift(self._lies(o), place, len(signature.factors)), signature.results[0]) is REPLICATED
            for o, place in zip(inst.operands, signature.operands, strict=True)
        )

    def _holds_whole(self, holder: Instruction, number: int) -> bool:
        """Is element `number` of a tuple small and whole, wherever it comes from?"""
        sources = list(self._sources(holder, number))
        return all(s is not None and self._is_whole(s) for s in sources) and any(s in self.values for s in sources)

    def _sources(self, holder: Instruction, number: int) -> Iterator[Instruction | None]:
        """The values that may be element `number`; None for what is not known."""
        packed: list[Instruction]
        match holder.opcode:
            case "tuple":
                packed = [holder]
            case "while":
                packed = [_carried(holder, number)]
            case "conditional":
                packed = [branch.root for branch in holder.called]
            case "parameter":
                sites = self.callers.get(holder.computation, ())
                packed = [one for site in sites for one in _given(site, holder, number)]
            case _:
                packed = []
        yield from [one.operands[number] if is_packed(one) else None for one in packed] or [None]

    def _is_whole(self, inst: Instruction) -> bool:
        return self._lies(inst) is REPLICATED

    def _lies(self, inst: Instruction) -> HloSharding:
        given = self.program.shardings.get(inst.id)
        is_whole = inst in self.values or inst.opcode in GENERATORS or given is None
        return REPLICATED if is_whole else as_compared(given)


def _carried(loop: Instruction, number: int) -> Instruction:
    """The tuple that says how a loop carries an element: what it starts with may be parts, brought there once."""
    body = while_parts(loop).body
    return loop.operands[0] if is_packed(body.root) and hands_on(body, number) else body.root


def _given(site: Instruction, parameter: Instruction, number: int) -> Iterator[Instruction]:
    """The tuples in which a call site hands a computation an element of its parameter."""
    if site.opcode == "while":
        yield _carried(site, number)
    elif site.opcode == "conditional":
        yield from (o for o, b in zip(site.operands[1:], site.called, strict=True) if b is parameter.computation)
    else:
        yield parameter  # no tuple: what it holds is not known
