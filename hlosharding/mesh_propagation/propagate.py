"""The mesh dialect's propagation: one sweep backward, one forward, over the rules that every other policy reads.

Floor: mesh_propagation.  A second policy beside GSPMD's: it has no levels and no fix point, merges nothing, needs no
sizes, and says of each op how its loops are split.  Communication is what lies between an annotation as a result and
one as an operand of the same value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hlosharding.ir import Module
from hlosharding.mesh_propagation.given import read_notes, read_options
from hlosharding.mesh_propagation.loop_program import LoopOp, LoopProgram, LoopValue, read_program
from hlosharding.mesh_propagation.loops import Option, implied
from hlosharding.mesh_propagation.notes import AxisAnnotation, Note, Notes
from hlosharding.mesh_propagation.offers import Conflict, Offer
from hlosharding.mesh_propagation.options import infer
from hlosharding.mesh_propagation.outcome import AxisPropagation, LoopOption
from hlosharding.notations import AxisSharding
from hlosharding.sharding import Cluster

Given = Mapping[str, Any] | Iterable[AxisAnnotation]


def propagate_axes(
    module: Module, cluster: Any, *, annotations: Given = (), options: Mapping[str, Any] | None = None
) -> AxisPropagation:
    """Complete annotations and sharding options as the mesh dialect's propagation does; the module stays as it is.

    `cluster`: what `Cluster.of` takes; sizes may be unknown.  `annotations`: {value: sharding}, orders for the op that
    makes the value, or AxisAnnotations; shardings that the module holds already are orders too.  `options`: {op: a list
    of axes per loop, or {loop: axes}}; they win over all annotations.  Orders that cannot be kept are in `.conflicts`.
    Raises AnnotationError for what names nothing or does not fit.

    >>> from hlosharding.ir import Builder, DotDims, Shape
    >>> builder = Builder("product")
    >>> main = builder.computation("main")
    >>> x = main.parameter(0, Shape.parse("f32[8,4]"), name="x")
    >>> w = main.parameter(1, Shape.parse("f32[4,16]"), name="w")
    >>> y = main.root(main.add("dot", Shape.parse("f32[8,16]"), (x, w), name="y", dot_dims=DotDims((1,), (0,))))
    >>> found = propagate_axes(builder.finish(main), "?", annotations={"y": "[[], [0]]"})
    >>> str(found.operand("y", 1)), str(found.options["y"])
    ('[[], [0]]', '[[], [0]]')
    """
    known = Cluster.of(cluster)
    program = read_program(module)
    notes = read_notes(module, program, known, annotations)
    sweeps = _Sweeps(program, notes, known, read_options(program, known, options or {}))
    sweeps.run()
    return sweeps.outcome(module)


class _Sweeps:
    """The state of one run."""

    def __init__(self, program: LoopProgram, notes: Notes, cluster: Cluster, options: dict[LoopOp, Option]) -> None:
        self.program, self.notes, self.cluster, self.options = program, notes, cluster, options
        self.conflicts: list[Conflict] = []
        self.yielded: list[Conflict] = []
        self._failed: set[LoopOp] = set()

    def run(self) -> None:
        """Backward, forward, and what is made whole."""
        made_whole = [op for op in self.program.ops if op.is_made_whole and op not in self.options]
        ops = [op for op in self.program.ops if not op.is_made_whole or op in self.options]
        for op in reversed(ops):
            self._visit(op, forward=False)
        for op in ops:
            self._visit(op, forward=True)
        # Last, since only now it is known which of their values an op with an option reads.
        for op in made_whole:
            self._make_whole(op)

    def _visit(self, op: LoopOp, *, forward: bool) -> None:
        option = self.options.get(op)
        # An op that failed on the way back is not asked again: the same conflict would be told twice.
        if op not in self._failed and option is None:
            option = self._infer(op, forward=forward)
        elif forward:  # annotated on the way back
            return
        if option is not None:
            self.options[op] = option
            self._annotate(op, option)

    def _infer(self, op: LoopOp, *, forward: bool) -> Option | None:
        inference = infer(op, self.notes, self.cluster)
        if inference is None:
            return None
        if inference.conflicts:
            self._failed.add(op)
            self.conflicts += inference.conflicts
            return None
        # On the way back an op that nothing splits waits: its operands may know more on the way forward.
        if not forward and not any(inference.option):
            return None
        # Told with the option alone: an op that waits is asked again, and would tell them twice.
        self.yielded += inference.yielded
        return inference.option

    def _annotate(self, op: LoopOp, option: Option) -> None:
        """Complete what lacks an order; an order that the option does not keep is a conflict."""
        signature = op.signature
        for number, (value, dims) in enumerate(zip(op.results, signature.results, strict=True)):
            made = implied(op, option, dims, result=True)
            self._write(op, f"result {number}", self.notes.results, value, made)
        for number, (value, dims) in enumerate(zip(op.operands, signature.operands, strict=True)):
            made = implied(op, option, dims, result=False)
            self._write(op, f"operand {number} (%{value.name})", self.notes.uses, (op, number), made)

    def _write(self, op: LoopOp, tensor: str, notes: dict[Any, Note], key: Any, made: AxisSharding) -> None:
        note = notes.get(key)
        if note is None or not note.required:
            notes[key] = Note(made, False, op.name)
            return
        if note.sharding == made:
            return
        offer = Offer(f"{tensor}, annotated by {note.by},", note.sharding.axes, required=True)
        reason = f"the annotation is {note.sharding}, and the op's option makes {made}"
        self.conflicts.append(Conflict(op.name, op.where, "", (offer,), reason, "the option stays"))

    def _make_whole(self, op: LoopOp) -> None:
        for value in op.results:
            if value not in self.notes.results and self._is_seen(value):
                self.notes.results[value] = Note(AxisSharding(), False, op.name)

    def _is_seen(self, value: LoopValue) -> bool:
        return any(place in self.notes.uses for place in self.notes.places(value))

    def outcome(self, module: Module) -> AxisPropagation:
        """What was found, by name."""
        options = {
            op.name: LoopOption(tuple(f.name for f in op.signature.factors), AxisSharding(self.options[op]))
            for op in self.program.ops
            if op in self.options
        }
        found = self.notes.annotations()
        values = {inst.name: tuple(v.name for v in leaves) for inst, leaves in self.program.values.items()}
        return AxisPropagation(module, self.cluster, found, options, tuple(self.conflicts), tuple(self.yielded), values)
