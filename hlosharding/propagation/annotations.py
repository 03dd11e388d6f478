"""What the user wrote: `Sharding` calls become copies, open dims and shard groups are noted, provided shardings fixed.

Floor: propagation.  Follows XLA's ProcessShardingInstruction and the set-up half of ShardingPropagation::Run.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hlosharding import wire
from hlosharding.errors import PropagationError
from hlosharding.ir import custom_call_targets as targets
from hlosharding.ir import unspecified_dims
from hlosharding.propagation import policy
from hlosharding.propagation.graph import PropagationGraph
from hlosharding.propagation.op_view import same_dims
from hlosharding.propagation.provenance import Trail
from hlosharding.sharding import HloSharding, OpMetadata, ShardGroup

CSE_MARK = "_sharding_propagation_cse_prevention"


@dataclass
class Annotations:
    """What the `Sharding` calls of a module said beyond a sharding."""

    unspecified: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Instruction -> dims that propagation may still split."""
    group_of: dict[int, int] = field(default_factory=dict)
    shard_as: dict[int, list[int]] = field(default_factory=dict)
    shard_like: dict[int, list[int]] = field(default_factory=dict)
    changed: bool = False

    def members(self, i: int) -> list[int]:
        """All members of `i`'s shard group; a number used both as and like means the as group."""
        number = self.group_of[i]
        return self.shard_as.get(number) or self.shard_like[number]


def read_annotations(graph: PropagationGraph, *, cse_prevention: bool, trail: Trail) -> Annotations:
    """Process every `Sharding` call and shard group, per computation in reverse post order."""
    notes = Annotations()
    calls = {i for i in graph.custom_calls() if graph.target(i) == targets.SHARDING}
    grouping = {id(s) for s in graph.distinct_shardings() if _group(s)}
    grouped = {i for i, s in enumerate(graph.sharding) if id(s) in grouping} if grouping else set()
    for computation in sorted({graph.computation[i] for i in calls | grouped}):
        for i in reversed(list(graph.post_order(computation))):
            if i in calls:
                _process_call(graph, notes, i, cse_prevention, trail)
            elif grouping and not cse_prevention:
                _register_member(graph, notes, i)
    graph.list_copies()
    return notes


def _process_call(graph: PropagationGraph, notes: Annotations, i: int, cse_prevention: bool, trail: Trail) -> None:
    sharding, operand = _sharding_of_call(graph, i), graph.operands[i][0]
    open_dims = unspecified_dims(graph.instructions[i].opaque)
    # An unknown sharding only carries a shard group or open dims; on a parameter a copy is needed all the same.
    replaced = not cse_prevention and (not sharding.is_unknown() or graph.is_parameter(operand))
    if replaced:
        graph.become_copy(i)
        notes.changed = True
    moves_group = not cse_prevention and not replaced and _group(sharding) is not None
    if moves_group:
        held = graph.sharding[operand] or HloSharding.unknown()
        graph.sharding[operand] = held.with_shard_group(_group(sharding))
    elif not cse_prevention:
        _register_member(graph, notes, i)
    if open_dims:
        notes.unspecified[i] = open_dims
    elif graph.sharding[operand] is None:
        graph.sharding[operand] = graph.sharding[i]
        trail.note(operand, -1, "annotation", [i], None, graph.sharding[i])
    if moves_group:
        graph.bypass(i)


def _sharding_of_call(graph: PropagationGraph, i: int) -> HloSharding:
    sharding = graph.sharding[i]
    if sharding is None:
        raise PropagationError(
            f"the Sharding call %{graph.instructions[i].name} has no sharding",
            where=graph.instructions[i].location or None,
            remedy="give it one, e.g. sharding={replicated}",
        )
    return sharding


def _group(sharding: HloSharding | None) -> ShardGroup | None:
    return None if sharding is None or sharding.is_tuple() else sharding.shard_group


def _register_member(graph: PropagationGraph, notes: Annotations, i: int) -> None:
    """Note the shard group of an instruction, and clear the mark."""
    sharding = graph.sharding[i]
    group = _group(sharding)
    if group is None or sharding is None:
        return
    members = (notes.shard_as if group.kind == "as" else notes.shard_like).setdefault(group.number, [])
    if members and not same_dims(graph.instructions[i].shape, graph.instructions[members[0]].shape):
        raise PropagationError(
            f"%{graph.instructions[i].name} and %{graph.instructions[members[0]].name} are in shard group"
            f" {group.number}, but have different dims",
            remedy="group arrays of equal dims only",
        )
    members.append(i)
    notes.group_of[i] = group.number
    graph.sharding[i] = sharding.with_shard_group(None)


def mark_for_cse(sharding: HloSharding) -> HloSharding:
    """The sharding, marked as only there to keep common-subexpression elimination from joining layers."""
    return sharding.with_metadata((OpMetadata(op_name=CSE_MARK),))


def is_cse_mark(sharding: HloSharding) -> bool:
    """Was it added by an earlier CSE-prevention run?"""
    return not sharding.is_tuple() and len(sharding.metadata) == 1 and sharding.metadata[0].op_name == CSE_MARK


def clear_cse_marks(graph: PropagationGraph) -> bool:
    """Drop shardings of earlier CSE-prevention runs; was there any?"""
    # By identity: the same sharding without the mark is equal to it, for `==` ignores metadata.
    marks = {id(s) for s in graph.distinct_shardings() if is_cse_mark(s)}
    if marks:
        graph.sharding = [None if id(s) in marks else s for s in graph.sharding]
    return bool(marks)


def assign_metadata(graph: PropagationGraph) -> bool:
    """Give leaves without metadata that of their instruction; did any change?"""
    changed = False
    for i, sharding in enumerate(graph.sharding):
        metadata = graph.instructions[i].proto.metadata
        if sharding is None or not metadata.ByteSize():
            continue
        carrier = HloSharding.from_proto(wire.OpSharding(metadata=[metadata]))
        new = sharding.with_metadata(carrier.metadata, overwrite=False)
        if new is not sharding:
            graph.sharding[i], changed = new, True
    return changed


def strip_metadata(graph: PropagationGraph) -> bool:
    """Take all metadata off; did any change?"""
    # By identity, too: of equal shardings that are spelled differently each keeps its spelling.
    new = {id(s): s.without_metadata() for s in graph.distinct_shardings()}
    changed = any(id(s) != number for number, s in new.items())
    if changed:
        graph.sharding = [None if s is None else new[id(s)] for s in graph.sharding]
    return changed


def check_while_bodies(graph: PropagationGraph) -> None:
    """A body with a channel op on device D lives on D as a whole (CheckAndUpdateDeviceAssignmentsInWhileBody)."""
    for i in graph.control_flow():
        if graph.is_loop(i):
            _check_while_body(graph, i, graph.called[i][0])


def _check_while_body(graph: PropagationGraph, loop: int, body: int) -> None:
    channel: int | None = None
    device: int | None = None
    seen: dict[int, int] = {}
    for i in graph.order[body]:
        held = _device(graph, i)
        if held is None:
            continue
        if device is not None:
            _check_device(graph, i, held, channel, device)
        elif _is_channel_op(graph, i):
            channel, device = i, held
            for other, where in sorted((d, n) for d, n in seen.items()):
                _check_device(graph, where, other, channel, device)
        else:
            seen[held] = i
    if device is None:
        return
    for i in (loop, graph.roots[body]):
        held = _device(graph, i)
        if held is not None:
            _check_device(graph, i, held, channel, device)
    root = graph.roots[body]
    if _device(graph, root) is None:
        leaf = HloSharding.maximal(device)
        shape = graph.instructions[root].shape
        graph.sharding[root] = leaf.normalize_tuple(len(shape.leaves)) if shape.is_tuple else leaf


def _device(graph: PropagationGraph, i: int) -> int | None:
    sharding = graph.sharding[i]
    return None if sharding is None else sharding.device


def _check_device(graph: PropagationGraph, i: int, device: int, channel: int | None, wanted: int) -> None:
    if device == wanted or channel is None:
        return
    raise PropagationError(
        f"Instruction: {graph.instructions[i].name} is on device: {device}, which conflicts with device: {wanted}"
        f" of channel instruction: {graph.instructions[channel].name}"
    )


def _is_channel_op(graph: PropagationGraph, i: int) -> bool:
    opcode, instruction = graph.opcode[i], graph.instructions[i]
    if opcode in policy.CHANNEL_TRANSFERS:
        return not instruction.proto.is_host_transfer
    return opcode in policy.CHANNEL_REDUCTIONS and bool(instruction.channel_id)


def find_provided(graph: PropagationGraph, *, to_outputs: bool, to_parameters: bool) -> set[int]:
    """The instructions whose sharding may not change; a while as fixed root first gets a copy behind it."""
    fixed: set[int] = set()
    for ids in graph.order:
        for i in ids:
            sharding = graph.sharding[i]
            if sharding is None or sharding.is_unknown() or graph.is_parameter(i):
                continue
            if i != graph.entry_root:
                fixed.add(i)
    root = graph.entry_root
    sharding = graph.sharding[root]
    if not to_outputs and not (sharding is not None and sharding.is_unknown()):
        # A loop shares its sharding with its body, which propagation may change: the result is held fast on a copy.
        if graph.is_loop(root):
            copy = graph.copy_behind_root()
            graph.sharding[copy] = sharding
            root = copy
        fixed.add(root)
    if not to_parameters:
        for i in graph.parameters[graph.entry]:
            sharding = graph.sharding[i]
            if sharding is not None and not sharding.is_unknown():
                fixed.add(i)
    return fixed


def unknown_becomes_replicated(graph: PropagationGraph) -> None:
    """Unknown was a place holder; propagation starts from replicated."""
    if not any(s.is_unknown() for s in graph.distinct_shardings()):
        return
    for i, sharding in enumerate(graph.sharding):
        if sharding is not None and sharding.is_unknown():
            new = HloSharding.replicate(sharding.leaves[0].metadata if sharding.leaves else ())
            graph.sharding[i] = new.normalize_tuple(len(sharding.leaves)) if sharding.is_tuple() else new
