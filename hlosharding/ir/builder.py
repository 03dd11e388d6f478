"""The way to make a new graph: one instruction at a time, typed attributes in, protos made here.

Floor: ir.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from hlosharding import wire
from hlosharding.errors import ModuleError
from hlosharding.ir import attributes as attrs
from hlosharding.ir.graph import BuiltInstruction, Computation, Instruction, callees_first
from hlosharding.ir.literal import write_literal
from hlosharding.ir.module import Module
from hlosharding.ir.shape import Shape, write_shape
from hlosharding.ir.shape_inference import infer_shape, stated_type
from hlosharding.sharding import HloSharding


def _records(field: str) -> Callable[[Any, Any], None]:
    def write(proto: Any, records: Any) -> None:
        *holder, repeated = field.split(".")
        target = proto
        for part in holder:
            proto.ClearField(part)
            target = getattr(target, part)
            # Touched even when there are no records: XLA asks whether a convolution without spatial dims has a window.
            target.SetInParent()
        target.ClearField(repeated)
        for record in records:
            record.write(getattr(target, repeated).add())

    return write


def _numbers(field: str) -> Callable[[Any, Any], None]:
    def write(proto: Any, numbers: Any) -> None:
        getattr(proto, field)[:] = [int(n) for n in numbers]

    return write


def _record(field: str) -> Callable[[Any, Any], None]:
    def write(proto: Any, record: Any) -> None:
        proto.ClearField(field)
        # Touched even when all its fields are zero: a present but empty record means something.
        getattr(proto, field).SetInParent()
        record.write(getattr(proto, field))

    return write


def _pairs(proto: Any, pairs: Any) -> None:
    proto.ClearField("source_target_pairs")
    for source, target in pairs:
        proto.source_target_pairs.add(source=int(source), target=int(target))


def _frontend_attributes(proto: Any, entries: Any) -> None:
    proto.ClearField("frontend_attributes")
    for key, value in dict(entries).items():
        proto.frontend_attributes.map.add(key=key, value=value)


def _operand_shapes(proto: Any, shapes: Any) -> None:
    for own, shape in zip(proto.operand_shapes_with_layout, shapes, strict=True):
        write_shape(own, shape)


def _literal(proto: Any, array: Any) -> None:
    proto.literal.CopyFrom(write_literal(np.asarray(array)))


# Typed attribute -> how it is written.  Any other keyword is a scalar field of the proto itself.
_WRITERS: dict[str, Callable[[Any, Any], None]] = {
    "dimensions": _numbers("dimensions"),
    "gather_slice_sizes": _numbers("gather_slice_sizes"),
    "dynamic_slice_sizes": _numbers("dynamic_slice_sizes"),
    "fft_length": _numbers("fft_length"),
    "dot_dims": _record("dot_dimension_numbers"),
    "conv_dims": _record("convolution_dimension_numbers"),
    "gather_dims": _record("gather_dimension_numbers"),
    "scatter_dims": _record("scatter_dimension_numbers"),
    "window": _records("window.dimensions"),
    "slice_dims": _records("slice_dimensions"),
    "padding": _records("padding_config.dimensions"),
    "replica_groups": attrs.write_replica_groups,
    "source_target_pairs": _pairs,
    "literal": _literal,
    "operand_shapes": _operand_shapes,
    "outfeed_shape": lambda proto, shape: write_shape(proto.outfeed_shape, shape),
    "frontend_attributes": _frontend_attributes,
}


def write_attributes(proto: Any, attributes: dict[str, Any]) -> None:
    """Write typed attributes into a proto that nobody else holds."""
    for name, value in attributes.items():
        writer = _WRITERS.get(name)
        if writer is not None:
            writer(proto, value)
        elif isinstance(value, str) and name == "opaque":
            proto.backend_config = value.encode()
        else:
            setattr(proto, name, value)


class ComputationBuilder:
    """Adds instructions to one computation; `root` or the last instruction becomes its result."""

    def __init__(self, computation: Computation, fresh_name: Callable[[str], str]) -> None:
        self.computation = computation
        self._fresh_name = fresh_name

    def add(
        self,
        opcode: str,
        shape: Shape,
        operands: Sequence[Instruction] = (),
        *,
        like: Instruction | None = None,
        metadata_of: Instruction | None = None,
        called: Sequence[Computation] = (),
        name: str | None = None,
        **attributes: Any,
    ) -> Instruction:
        """Append an instruction.

        `like` copies another instruction's attributes and metadata first; `metadata_of` its metadata alone.
        `attributes` are typed (`dot_dims=DotDims(...)`, `dimensions=(0,)`) or scalar proto fields (`channel_id=1`).
        """
        if like is not None and not attributes:
            return self.add_like(like, opcode, shape, operands, called, name or like.name)
        fresh = self._fresh_name(name or (like.name if like is not None else opcode))
        write = partial(written_proto, like and like.proto, metadata_of and metadata_of.proto, attributes)
        instruction = BuiltInstruction(fresh, opcode, shape, tuple(operands), write, self.computation)
        instruction.know(attributes)
        instruction.called = tuple(called)
        self.computation.instructions.append(instruction)
        return instruction

    def op(
        self,
        opcode: str,
        operands: Sequence[Instruction] = (),
        *,
        element_type: str | None = None,
        like: Instruction | None = None,
        metadata_of: Instruction | None = None,
        called: Sequence[Computation] = (),
        name: str | None = None,
        **attributes: Any,
    ) -> Instruction:
        """Append an instruction whose shape follows (`infer_shape`); a type that does not is given, or operand 0's.

        >>> main = Builder("m").computation("main")
        >>> x = main.parameter(0, Shape.array("f32", (4, 8)))
        >>> main.op("transpose", (x,), dimensions=(1, 0)).shape
        f32[8,4]
        >>> main.op("convert", (x,), element_type="bf16").shape
        bf16[4,8]
        """
        made = self.add(
            opcode, stated_type(operands, element_type), operands,
            like=like, metadata_of=metadata_of, called=called, name=name, **attributes,
        )  # fmt: skip
        made.shape = infer_shape(made)
        return made

    def add_like(
        self,
        like: Instruction,
        opcode: str,
        shape: Shape,
        operands: Sequence[Instruction],
        called: Sequence[Computation],
        name: str,
    ) -> Instruction:
        """Append an instruction with all the attributes of another: as `add`, for the passes that copy thousands.

        The proto is shared: shape, name, operands and sharding are written from the graph.
        """
        computation = self.computation
        instruction = Instruction(self._fresh_name(name), opcode, shape, tuple(operands), like.proto, computation)
        instruction.share_decoded(like)
        if called:
            instruction.called = tuple(called)
        computation.instructions.append(instruction)
        return instruction

    def parameter(
        self, number: int, shape: Shape, *, name: str | None = None, like: Instruction | None = None
    ) -> Instruction:
        """Append parameter `number`."""
        return self.add("parameter", shape, like=like, name=name or f"param_{number}", parameter_number=number)

    def constant(self, value: Any, *, metadata_of: Instruction | None = None) -> Instruction:
        """Append a constant of a numpy array or scalar (its dtype decides the element type)."""
        # A copy: the proto is written later, when the caller may have changed his.
        array = np.array(value)
        shape = Shape.from_dtype(array.dtype, array.shape)
        return self.add("constant", shape, metadata_of=metadata_of, literal=array)

    def root(self, instruction: Instruction) -> Instruction:
        """Make `instruction` the result."""
        self.computation.set_root(instruction)
        return instruction


def written_proto(like: Any | None, metadata_of: Any | None, attributes: dict[str, Any]) -> Any:
    """A proto with the fields of another one, or its metadata alone, and typed attributes."""
    proto = wire.HloInstructionProto()
    if like is not None:
        proto.CopyFrom(like)
    elif metadata_of is not None and metadata_of.HasField("metadata"):
        proto.metadata.CopyFrom(metadata_of.metadata)
    write_attributes(proto, attributes)
    return proto


class Builder:
    """Makes a module.

    >>> b = Builder("m")
    >>> main = b.computation("main")
    >>> x = main.parameter(0, Shape.array("f32", (4,)))
    >>> y = main.root(main.add("negate", x.shape, (x,)))
    >>> b.finish(main)
    Module(m, 2 instructions, 1 partitions)
    """

    def __init__(self, name: str, *, num_partitions: int = 1, like: Module | None = None) -> None:
        self.module = Module(name, num_partitions=num_partitions)
        if like is not None:
            self.module.mesh, self.module.signature, self.module.weights = like.mesh, like.signature, like.weights
            self.module.callbacks, self.module.custom_calls = like.callbacks, like.custom_calls
            self.module.elided = like.elided
            # The frame table: copied metadata points into it.
            self.module.proto.stack_frame_index.CopyFrom(like.proto.stack_frame_index)
        # With each name the number it has reached: of a thousand equal wishes none counts from 1 again.
        self._taken: dict[str, int] = {}

    def computation(self, name: str) -> ComputationBuilder:
        """Start a computation.  Finish callees before their callers."""
        computation = Computation(self._fresh(name), self.module)
        self.module.computations.append(computation)
        return ComputationBuilder(computation, self._fresh)

    def drop(self, computation: Computation) -> None:
        """Take back a computation that nobody calls; its names are free again."""
        self.module.computations.remove(computation)
        for name in (computation.name, *(i.name for i in computation.instructions)):
            self._taken.pop(name, None)

    def _fresh(self, name: str) -> str:
        count = self._taken.get(name)
        if count is None:
            self._taken[name] = 0
            return name
        while True:
            count += 1
            candidate = f"{name}.{count}"
            if candidate not in self._taken:
                self._taken[name] = count
                self._taken[candidate] = 0
                return candidate

    def finish(self, entry: ComputationBuilder, shardings: dict[Instruction, HloSharding] | None = None) -> Module:
        """Close the module: entry, callees before callers, dense ids, side table."""
        module = self.module
        for computation in module.computations:
            if computation._root is None:
                if not computation.instructions:
                    raise ModuleError(f"computation %{computation.name} is empty")
                computation.set_root(computation.instructions[-1])
        module.set_entry(entry.computation)
        module.computations[:] = callees_first(module.computations)
        module.renumber()
        module.shardings = {i.id: s for i, s in (shardings or {}).items()}
        return module
