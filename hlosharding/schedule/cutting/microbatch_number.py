"""The number of the microbatch, as a parameter of its program: what random bits, or positions, are made from.

Floor: schedule.  Partitioned over time, a program asks for its device's number where it needs to know which microbatch
it works on.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlosharding.errors import ScheduleError
from hlosharding.ir import Computation, Instruction, Module, Shape, callers, rewrite, while_parts
from hlosharding.schedule.cutting.microbatched import error_at

NUMBER = "microbatch_number"
"""The parameter's name, where it is free."""


def take_number(module: Module) -> Instruction | None:
    """Let all that asks for the device's number read a new parameter, the last one; None where nothing asks.

    Loops and branches hand it in.  Raises ScheduleError for other ops whose computations ask.

    >>> import hlosharding as hs
    >>> module = hs.load('''HloModule m
    ... ENTRY e { x = u32[] parameter(0)  n = u32[] partition-id()  ROOT y = u32[] add(x, n) }''').clone()
    >>> take_number(module), module.entry.root.operands[1]
    (%microbatch_number = u32[] parameter(), %microbatch_number = u32[] parameter())
    """
    asking = list(module.of_opcodes("partition-id"))
    if not asking:
        return None
    numbers = _NumberReaders(module)
    for inst in asking:
        rewrite.replace_uses(inst, numbers.of(inst.computation))
        rewrite.remove(inst)
    return numbers.of(module.entry)


class _NumberReaders:
    """Of each computation that needs it the instruction that is the number there."""

    def __init__(self, module: Module) -> None:
        self.module, self.sites = module, callers(module)
        self._known: dict[Computation, Instruction] = {}

    def of(self, computation: Computation) -> Instruction:
        if computation is self.module.entry and computation not in self._known:
            self._known[computation] = self._parameter(computation, NUMBER)
        for site in self.sites.get(computation, ()):
            if computation not in self._known:
                self._hand_in(site)
        return self._known[computation]

    def _parameter(self, computation: Computation, name: str) -> Instruction:
        last = len(computation.parameters)
        name = rewrite.fresh_name(self.module, name)
        return rewrite.insert(computation, 0, "parameter", _U32, (), name=name, parameter_number=last)

    def _hand_in(self, site: Instruction) -> None:
        """Give a loop's, or a conditional's, computations one element more."""
        given = site.operands if site.opcode == "while" else site.operands[1:]
        # Where a computation is called from elsewhere, too, that place would have to hand in as much.
        is_shared = any(len(self.sites[callee]) > 1 for callee in site.called) or len(set(site.called)) < len(given)
        takes_tuples = all(operand.shape.is_tuple for operand in given)
        if site.opcode not in ("while", "conditional") or is_shared or not takes_tuples:
            raise _cannot_hand_in(site)
        number = self.of(site.computation)
        wider = [self._with(operand, number, site) for operand in given]
        rewrite.set_operands(site, wider if site.opcode == "while" else (site.operands[0], *wider))
        shapes = [wider[0].shape] * len(site.called) if site.opcode == "while" else [each.shape for each in wider]
        for computation, shape in zip(site.called, shapes, strict=True):
            self._receive(computation, shape)
        if site.opcode == "while":
            self._give_back(site)

    def _receive(self, computation: Computation, shape: Shape) -> None:
        [parameter] = computation.parameters
        rewrite.set_shape(parameter, shape)
        self._known[computation] = self._element(parameter, len(shape.tuple_shapes) - 1, computation)

    def _with(self, packed: Instruction, number: Instruction, reader: Instruction) -> Instruction:
        """The tuple with the number as its last element, before who reads it."""
        elements: Sequence[Instruction] = packed.operands
        if packed.opcode != "tuple":
            elements = [self._element(packed, n, packed.computation) for n in range(len(packed.shape.tuple_shapes))]
        place = packed.computation.instructions.index(reader)
        name = rewrite.fresh_name(self.module, f"{packed.name}_numbered")
        return rewrite.insert(packed.computation, place, "tuple", None, (*elements, number), name=name)

    def _element(self, packed: Instruction, index: int, where: Computation) -> Instruction:
        place = where.instructions.index(packed) + 1
        name = rewrite.fresh_name(self.module, f"{packed.name}_{index}")
        return rewrite.insert(where, place, "get-tuple-element", None, (packed,), name=name, tuple_index=index)

    def _give_back(self, loop: Instruction) -> None:
        body = while_parts(loop).body
        whole = [user for user in loop.users if user.opcode != "get-tuple-element"]
        # Who reads the carry as a whole would get one element more.
        if whole or loop.is_root or body.root.opcode != "tuple":
            raise _cannot_hand_in(loop)
        rewrite.set_operands(body.root, (*body.root.operands, self._known[body]))
        for inst in (loop, body.root):
            rewrite.set_shape(inst, loop.operands[0].shape)


_U32 = Shape.array("u32", ())


def _cannot_hand_in(site: Instruction) -> ScheduleError:
    needs = "needs the number of the microbatch in a computation that it shares, or that takes no tuple"
    remedy = "take one microbatch, or make what depends on positions (random bits, iotas) before this op"
    return error_at(site, f"%{site.name} ({site.opcode}) {needs}", remedy)
