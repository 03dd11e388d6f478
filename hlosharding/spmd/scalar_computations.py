"""Computations on scalars: reducers that collectives need, and those of the user's ops, taken over; each made once.

Floor: spmd.  Equal computations are one, whatever their instructions are called.
"""

from __future__ import annotations

from collections.abc import Mapping

from hlosharding.ir import Builder, Computation, Instruction, Sameness, Shape


class ScalarComputations:
    """The computations on scalars of one program."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._reducers: dict[tuple[str, str], Computation] = {}
        self._copies: dict[Computation, Computation] = {}
        self._sameness, self._copied = Sameness(), dict[int, Computation]()
        self._acts: dict[Computation, bool] = {}

    def reducer(self, kind: str, element_type: str) -> Computation:
        """The scalar computation `kind(a, b)`, made once per element type."""
        key = (kind, element_type)
        if key not in self._reducers:
            body = self._builder.computation(f"{kind}_{element_type}")
            shape = Shape.array(element_type)
            a, b = body.parameter(0, shape, name="a"), body.parameter(1, shape, name="b")
            body.root(body.add(kind, shape, (a, b)))
            self._reducers[key] = body.computation
        return self._reducers[key]

    def copy(self, source: Computation) -> Computation:
        """A computation of scalars (a reducer, a comparator), taken over as it is; equal ones become one."""
        if source not in self._copies:
            called = {c: self.copy(c) for i in source.instructions for c in i.called}
            same = self._sameness.computation(source)
            if same not in self._copied:
                self._copied[same] = self._copy(source, called)
            self._copies[source] = self._copied[same]
        return self._copies[source]

    def acts(self, copied: Computation) -> bool:
        """Has any op of a computation that `copy` made a side effect?"""
        known = self._acts.get(copied)
        if known is None:
            known = self._acts[copied] = any(i.has_side_effect for i in copied.instructions)
        return known

    def _copy(self, source: Computation, called: Mapping[Computation, Computation]) -> Computation:
        body = self._builder.computation(source.name)
        made: dict[Instruction, Instruction] = {}
        for i in source.instructions:
            operands = [made[o] for o in i.operands]
            if i.opcode == "copy":  # what is left of an annotation, which means nothing here
                made[i] = operands[0]
                continue
            made[i] = body.add(i.opcode, i.shape, operands, like=i, called=[called[c] for c in i.called])
        body.root(made[source.root])
        return body.computation
