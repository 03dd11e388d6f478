"""HLO text and HloModuleProto bytes, StableHLO text and bytecode to a Module.

Floor: frontends.  jaxlib parses and verifies the text once its shardings are checked; the order of the text is kept.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from google.protobuf.message import DecodeError

from hlosharding import wire, xla_bridge
from hlosharding.errors import LoadError, ModuleError, ShardingError
from hlosharding.frontends.hlo.sharding_scanner import scan_hlo, scan_stablehlo, stated_partitions
from hlosharding.frontends.shardy import without_shardy_marks
from hlosharding.ir import Computation, Module, rewrite
from hlosharding.ir import custom_call_targets as targets

_PARTITIONS = re.compile(r"\bnum_partitions=(\d+)")
_OPEN = re.compile(r"\ballow_spmd_sharding_propagation_to_(parameters|output)=\{([\w, ]*)\}")
_ELIDED = " constant({...})"
"""XLA's text of a constant of more than ten elements, unless it is asked for all (`print_large_constants`)."""
_REPLICAS = re.compile(r"\breplica_count=(\d+)")


def from_hlo_text(text: str) -> Module:
    """A module of HLO text, as it stands.

    >>> from_hlo_text("HloModule m\\nENTRY e {\\n  ROOT x = f32[4] parameter(0), sharding={devices=[2]<=[2]}\\n}")
    Module(m, 1 instructions, 2 partitions)
    """
    if "\0" in text:
        raise LoadError("HLO text holds a zero byte", remedy='pass format="hlo-proto" for binary files')
    found = scan_hlo(text)
    proto = xla_bridge.hlo_text_to_proto(text)
    try:
        ordered = in_text_order(proto)
    except DecodeError:  # protobuf follows messages a hundred deep, jaxlib's parser as deep as they come
        raise LoadError("a shape is nested too deep to be followed", remedy="take flatter tuples") from None
    module = _module(ordered)
    header = text[text.find("HloModule") :].partition("\n")[0]
    module.num_partitions = partitions_in(header) or devices_of(found)
    said = {edge: tuple(word.strip() == "true" for word in words.split(",")) for edge, words in _OPEN.findall(header)}
    module.open_parameters, module.open_outputs = said.get("parameters", False), said.get("output", False)
    if replicas := _REPLICAS.search(header):
        module.num_replicas = max(1, int(replicas[1]))
    before, elided, _ = text.partition(_ELIDED)
    if elided:
        module.elided = before.rpartition(" = ")[0].split()[-1].removeprefix("%")
    return module


def partitions_in(header: str) -> int | None:
    """The `num_partitions` that the first line of an HLO text states.

    >>> partitions_in("HloModule m, num_partitions=8")
    8
    """
    stated = _PARTITIONS.search(header)
    return int(stated[1]) if stated and int(stated[1]) > 0 else None


def from_hlo_proto(data: bytes) -> Module:
    """A module of a serialized HloModuleProto (or of an HloProto, as XLA's dumps hold it), as it stands."""
    module = _module(_unwrapped(data))
    module.num_partitions = devices_of(module.shardings.values())
    return module


def devices_of(shardings: Any) -> int:
    """How many devices shardings speak of: the largest count or device number + 1, at least 1."""
    count = 1
    for sharding in shardings:
        for leaf in sharding.leaves:
            count = max(count, leaf.num_devices or 1, 1 + (leaf.device or 0))
    return count


def in_text_order(proto: bytes) -> Any:
    """jaxlib serializes parsed text in post order with ids in text order: back to the order of the text."""
    module = wire.HloModuleProto.FromString(proto)
    _sort_by_id(module.computations)
    for computation in module.computations:
        _sort_by_id(computation.instructions)
    return module


def _sort_by_id(items: Any) -> None:
    ids = [item.id for item in items]
    if ids != sorted(ids):
        items.sort(key=lambda item: item.id)


def _module(proto: Any) -> Module:
    try:
        module = Module.from_proto(proto)
        _drop_shared_paths(module)
    except (ModuleError, ShardingError) as error:
        raise LoadError(f"not a valid HLO module: {error.what}", where=error.where, remedy=error.remedy) from error
    _check_tuples(module)
    changed = [_into_id_order(computation) for computation in module.computations]
    if any(changed):
        module.renumber()
    return module


def _drop_shared_paths(module: Module) -> None:
    """What names several parameters tells none from the others: to TensorFlow all are `XLA_Args`."""
    times = Counter(p.op_name for p in module.entry.parameters)
    for parameter in module.entry.parameters:
        if times[parameter.op_name] > 1:
            parameter.proto.metadata.op_name = ""


def _check_tuples(module: Module) -> None:
    """Raises LoadError for the sharding of a tuple on a value that is none, or has other leaves: as XLA's Validate."""
    if not any(sharding.is_tuple() for sharding in module.distinct_shardings):
        return
    for inst in module.instructions:
        sharding = module.sharding(inst)
        if sharding is None or not sharding.is_tuple():
            continue
        try:
            sharding.validate(inst.shape)
        except ShardingError as error:
            raise LoadError(f"not a valid HLO module: {error.what}", where=repr(inst), remedy=error.remedy) from error


def _into_id_order(computation: Computation) -> bool:
    """As XLA's HloComputation::CreateFromProto: users in the order of the wire, instructions by id; true if changed."""
    numbers = [i.proto.id for i in computation.instructions]
    if numbers == sorted(numbers):
        return False
    ordered = sorted(computation.instructions, key=lambda i: i.proto.id)
    position = {instruction: n for n, instruction in enumerate(ordered)}
    # A stranger's ids may put an operand behind its user: then the order of the wire stays.
    is_lawful = all(position[o] < n for n, i in enumerate(ordered) for o in i.operands)
    if is_lawful:
        rewrite.reorder(computation, ordered)
    return is_lawful


def _unwrapped(data: bytes) -> Any:
    """The message, or the bytes if they hold none."""
    # HloProto wraps the module as its field 1, where HloModuleProto has its name: a message is never a clean name.
    for part_of in (bytes, _first_field):
        try:
            found = wire.HloModuleProto.FromString(part_of(data))
        except (DecodeError, UnicodeDecodeError):
            continue
        if found.computations:
            return found
    return data


def _first_field(data: bytes) -> bytes:
    """The bytes of field 1 where that is the first field of the message; else none."""
    if not data.startswith(b"\x0a"):
        return b""
    length = shift = 0
    for position in range(1, min(len(data), 11)):
        length |= (data[position] & 0x7F) << shift
        shift += 7
        if data[position] < 0x80:
            return data[position + 1 : position + 1 + length]
    return b""


# ---- StableHLO text and bytecode to a Module
#
# jaxlib converts; shardings in `mhlo.sharding` attributes are checked first, Shardy's own attributes arrive as
# frontend attributes and are given their meaning by `frontends.shardy`.


MLIR_BYTECODE = b"ML\xefR"


def from_stablehlo(source: str | bytes) -> Module:
    """A module of StableHLO text, bytecode or a portable artifact; not prepared yet."""
    text = source if isinstance(source, str) else xla_bridge.stablehlo_bytecode_to_text(source)
    found = scan_stablehlo(text)
    module = from_lowering(_with_mlir_names(from_hlo_proto(xla_bridge.stablehlo_to_hlo_proto(source))))
    module.num_partitions = max(devices_of(found), module.num_partitions, stated_partitions(text))
    return module


def _with_mlir_names(module: Module) -> Module:
    """Parameters that XLA called `XLA_Args.5` and the like, after a location that several have, are MLIR's `arg0`."""
    stems = [p.name.rpartition(".")[0] for p in module.entry.parameters]
    times, taken = Counter(stems), rewrite.names_of(module)
    for stem, parameter in zip(stems, module.entry.parameters, strict=True):
        if stem and times[stem] > 1:
            rewrite.rename(parameter, rewrite.free_name(taken, f"arg{parameter.parameter_number}"))
    return module


def from_lowering(module: Module) -> Module:
    """A module just converted from what JAX lowered: Shardy's marks get their meaning, and the edge is open where
    nothing is said of it, as JAX tells XLA in its options, which no text holds.
    """
    if not (module.open_parameters or module.open_outputs):
        module.open_parameters = tuple(p.id not in module.shardings for p in module.entry.parameters)
        module.open_outputs = _open_outputs(module)
    out = without_shardy_marks(module)
    if out.mesh is not None:
        out.num_partitions = max(out.num_partitions, out.mesh.num_devices)
    return out


def _open_outputs(module: Module) -> bool | tuple[bool, ...]:
    given = tuple(result.custom_call_target == targets.FUNC_RESULT_SHARDING for result in module.entry.results)
    if any(given):
        return tuple(not said for said in given)
    return module.sharding(module.entry.root) is None
