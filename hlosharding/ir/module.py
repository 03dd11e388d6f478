"""A program: the graph, read from HLO's own proto and written back.

Floor: ir.  The proto each instruction keeps is canonical; graph and side table are written over it, so fields we do not
know survive.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any

from google.protobuf.message import DecodeError

from hlosharding import wire, xla_bridge
from hlosharding.errors import ModuleError
from hlosharding.ir import attributes as attrs
from hlosharding.ir.graph import Computation, Instruction, ModuleGraph, callees_first
from hlosharding.ir.shape import Shape, write_shape
from hlosharding.sharding import HloSharding

_REMEDY = "pass a serialized xla.HloModuleProto"


class Module(ModuleGraph):
    """An HLO module.

    >>> import hlosharding as hs
    >>> module = hs.load("HloModule m\\nENTRY e {\\n  ROOT x = f32[4] parameter(0), sharding={devices=[2]<=[2]}\\n}")
    >>> x = module.by_name("x")
    >>> str(x.shape), str(module.sharding(x)), module.entry.root is x
    ('f32[4]', '{devices=[2]<=[2]}', True)
    """

    @staticmethod
    def from_proto(data: Any) -> Module:
        """Read a HloModuleProto, serialized or as a message, which is the module's own from then on.

        Raises ModuleError, naming what is missing or doubled, and on bytes that are none.
        """
        try:
            proto = wire.HloModuleProto.FromString(data) if isinstance(data, bytes) else data
        except DecodeError as error:
            raise ModuleError("these bytes are no HloModuleProto", remedy=_REMEDY) from error
        if not proto.computations:
            raise ModuleError("the module has no computations", remedy=_REMEDY)
        module = Module(proto.name)
        by_id = {c.id: Computation(c.name, module, c) for c in proto.computations}
        for computation in by_id.values():
            module.computations.append(computation)
            _read_computation(computation, by_id)
        module.set_entry(by_id[_entry_id(proto)])
        # Instructions and computations own their protos from here on, uncopied: a constant may fill the memory.
        for computation in by_id.values():
            del computation.proto.instructions[:]
        del proto.computations[:]
        module.proto = proto
        module.renumber()
        for instruction in module.instructions:
            if instruction.proto.HasField("sharding"):
                module.shardings[instruction.id] = _sharding(instruction.proto.sharding.SerializeToString())
        return module

    def to_hlo_proto(self) -> bytes:
        """The serialized HloModuleProto, shardings included."""
        return proto_of(self).SerializeToString()

    def to_hlo_text(self, *, metadata: bool = False) -> str:
        """HLO text as XLA prints it; `metadata` adds op names and frame tables."""
        text = xla_bridge.hlo_proto_to_text(self.to_hlo_proto(), metadata=metadata)
        head, newline, rest = text.partition("\n")
        # XLA keeps these in a module's configuration, not in its proto: read again, the text would be for one device,
        # and its edge closed.
        said = {
            "allow_spmd_sharding_propagation_to_parameters": _flags(self.open_parameters),
            "allow_spmd_sharding_propagation_to_output": _flags(self.open_outputs),
            "num_partitions": str(self.num_partitions) if self.num_partitions > 1 else "",
            "replica_count": str(self.num_replicas) if self.num_replicas > 1 else "",
        }
        head += "".join(f", {name}={word}" for name, word in said.items() if word and f"{name}=" not in head)
        return head + newline + rest

    def to_stablehlo_text(self) -> str:
        """StableHLO text; collectives of a partitioned module stay explicit."""
        return xla_bridge.hlo_proto_to_stablehlo(with_listed_groups(self))


def _flags(is_open: bool | tuple[bool, ...]) -> str:
    """As XLA writes them: one for all, or one each; nothing where all are closed, which is the default."""
    flags = is_open if isinstance(is_open, tuple) else (is_open,)
    return "{" + ",".join(str(flag).lower() for flag in flags) + "}" if any(flags) else ""


# ---- module to HloModuleProto and back, without loss
#
# Operands, called computations, ids and shardings are written from the graph; every other field is the instruction's
# own proto as it was read.


@lru_cache(maxsize=4096)
def _sharding(data: bytes) -> HloSharding:
    return HloSharding.from_proto(data)


def _entry_id(proto: Any) -> int:
    ids = {c.id: c.name for c in proto.computations}
    if proto.entry_computation_id in ids:
        return proto.entry_computation_id
    for number, name in ids.items():
        if name == proto.entry_computation_name:
            return number
    raise ModuleError(f"entry computation {proto.entry_computation_name!r} is not in the module")


def _read_computation(computation: Computation, by_id: dict[int, Computation]) -> None:
    instructions: dict[int, Instruction] = {}
    instruction_of = instructions.__getitem__
    for p in computation.proto.instructions:
        try:
            operands = tuple(map(instruction_of, p.operand_ids))
            called, before = p.called_computation_ids, p.control_predecessor_ids  # of most there are none
            called = tuple(map(by_id.__getitem__, called)) if called else ()
            before = tuple(map(instruction_of, before)) if before else ()
        except KeyError as error:
            raise ModuleError(
                f"%{p.name} refers to id {error.args[0]}, which is not defined before it",
                where=f"computation %{computation.name}",
            ) from None
        if p.id in instructions:
            raise ModuleError(f"id {p.id} is used twice", where=f"computation %{computation.name}, %{p.name}")
        if p.HasField("frontend_attributes") and not p.frontend_attributes.map:
            p.ClearField("frontend_attributes")  # XLA writes an empty one everywhere, and passes ask for it
        instruction = Instruction(p.name, p.opcode, _shape(p), operands, p, computation)
        instruction.called, instruction.control_predecessors = called, before
        instructions[p.id] = instruction
        computation.instructions.append(instruction)
    root = instructions.get(computation.proto.root_id)
    if root is None:
        raise ModuleError(f"root id {computation.proto.root_id} is missing", where=f"computation %{computation.name}")
    computation.set_root(root)


@lru_cache(maxsize=4096)
def _shape_of(data: bytes) -> Shape:
    return Shape.from_proto(wire.ShapeProto.FromString(data))


def _shape(p: Any) -> Shape:
    try:
        return _shape_of(p.shape.SerializeToString())
    except ModuleError as error:
        raise ModuleError(error.what, where=f"%{p.name} ({p.opcode})", remedy=error.remedy) from None


def proto_of(module: ModuleGraph) -> Any:
    """The HloModuleProto of a module."""
    out = wire.HloModuleProto()
    out.CopyFrom(module.proto)
    out.name = module.name
    del out.computations[:]
    # XLA reads computations in order, and refuses a call of one that it has not read yet.
    computation_ids = {c: n for n, c in enumerate(callees_first(module.computations))}
    for computation in computation_ids:
        _write_computation(computation, computation_ids, out.computations.add(), module)
    entry = module.entry
    out.entry_computation_name, out.entry_computation_id = entry.name, computation_ids[entry]
    _write_program_shape(entry, out.host_program_shape)
    _write_schedule(module, computation_ids, out)
    return out


def with_listed_groups(module: ModuleGraph) -> bytes:
    """The serialized proto for XLA's way to StableHLO, which drops the order of a mesh's devices."""
    out = proto_of(module)
    for inst in (inst for computation in out.computations for inst in computation.instructions):
        if inst.HasField("mesh_replica_groups"):
            attrs.write_replica_groups(inst, attrs.read_replica_groups(inst))
    return out.SerializeToString()


def _write_schedule(module: ModuleGraph, ids: dict[Computation, int], out: Any) -> None:
    """The schedule in today's ids; none if it does not fit any more (XLA refuses a module with half of one)."""
    if not out.HasField("schedule"):
        return
    known = {c.proto.id: c for c in ids}
    sequences = [(known.get(e.key), list(e.value.instruction_ids)) for e in out.schedule.sequences]
    out.ClearField("schedule")
    for computation, order in sequences:
        old = {} if computation is None else {i.proto.id: n for n, i in enumerate(computation.instructions)}
        if computation is None or sorted(order) != sorted(old):
            out.ClearField("schedule")
            return
        entry = out.schedule.sequences.add(key=ids[computation])
        entry.value.instruction_ids.extend((ids[computation] << 32) | old[number] for number in order)


def _write_computation(computation: Computation, ids: dict[Computation, int], out: Any, module: ModuleGraph) -> None:
    out.CopyFrom(computation.proto)
    out.name, out.id = computation.name, ids[computation]
    # As XLA numbers them: the computation in the high half, the position in the low one.
    numbers = {i: (out.id << 32) | n for n, i in enumerate(computation.instructions)}
    for instruction, number in numbers.items():
        p = out.instructions.add()
        p.CopyFrom(instruction.proto)
        p.name, p.opcode, p.id = instruction.name, instruction.opcode, number
        write_shape(p.shape, instruction.shape)
        p.operand_ids[:] = [numbers[o] for o in instruction.operands]
        p.control_predecessor_ids[:] = [numbers[o] for o in instruction.control_predecessors]
        p.called_computation_ids[:] = [ids[c] for c in instruction.called]
        sharding = module.shardings.get(instruction.id)
        if sharding is None:
            p.ClearField("sharding")
        else:
            p.sharding.ParseFromString(sharding.to_proto())
    out.root_id = numbers[computation.root]
    _write_program_shape(computation, out.program_shape)


def _write_program_shape(computation: Computation, out: Any) -> None:
    parameters = computation.parameters
    # Kept as read while it still says the same: it may hold layouts.
    is_said = out.result.element_type and Shape.from_proto(out.result) is computation.root.shape
    if is_said and [Shape.from_proto(s) for s in out.parameters] == [p.shape for p in parameters]:
        return
    out.Clear()
    for parameter in parameters:
        out.parameters.add().CopyFrom(parameter.shape.proto)
        out.parameter_names.append(parameter.name)
    out.result.CopyFrom(computation.root.shape.proto)


def digest(module: ModuleGraph) -> bytes:
    """A checksum of all that is said of a module but its source lines: graph, attributes, shardings, mesh, boundary.

    Equal modules of two processes have the same one, wherever their functions stand: only who calls whom counts.
    """
    found = sha256()
    shapes: dict[Shape, str] = {}
    numbers = {i: n for n, i in enumerate(i for c in module.computations for i in c.instructions)}
    computations = {c: n for n, c in enumerate(module.computations)}
    _add(found, _facts(module, computations), _without_places(module.proto))
    for computation in module.computations:
        _add(found, (computation.name, numbers[computation.root]), computation.proto.SerializeToString())
        for i in computation.instructions:
            shape = shapes.get(i.shape) or shapes.setdefault(i.shape, str(i.shape))
            called = tuple(map(computations.__getitem__, i.called))
            operands, before = map(numbers.get, i.operands), map(numbers.get, i.control_predecessors)
            _add(found, (i.name, i.opcode, shape, *operands, called, *before), i.proto.SerializeToString())
    spelled: dict[int, str] = {id(s): str(s) for s in module.distinct_shardings}
    _add(found, tuple((number, spelled[id(s)]) for number, s in sorted(module.shardings.items())))
    return found.digest()


def _add(found: Any, said: tuple[Any, ...], proto: bytes = b"") -> None:
    # With the length, so that the bytes of two messages in a row cannot be divided otherwise.
    found.update(f"{said} {len(proto)}\n".encode() + proto)


def _without_places(proto: Any) -> bytes:
    """Without lines, files (a notebook's are named after its process) and the number that XLA counts modules by."""
    copy = wire.HloModuleProto.FromString(proto.SerializeToString())
    copy.ClearField("id")
    for field in ("file_names", "function_names", "file_locations"):
        copy.stack_frame_index.ClearField(field)
    return copy.SerializeToString()


def _facts(module: ModuleGraph, computations: Mapping[Computation, int]) -> tuple[Any, ...]:
    mesh, signature = module.mesh, module.signature
    return (
        *(module.name, computations[module.entry], module.num_partitions, module.num_replicas),
        *(module.open_parameters, module.open_outputs),
        None if mesh is None else (mesh.names, mesh.sizes, mesh.device_ids),
        [(name, str(w.dtype), w.shape, sha256(w.tobytes()).hexdigest()) for name, w in module.weights.items()],
        None if signature is None else (signature.names, signature.parameters),
    )
