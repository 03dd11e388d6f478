"""The ways to change a graph that is ours to change (a clone): replace, remove, insert, rename, drop what is dead.

Floor: ir.  Nobody else writes to an instruction, a computation or a module's list of either; `Edit` does it in XLA's
order by these.  Every function keeps operands and users consistent; call `module.renumber()` when done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hlosharding import wire
from hlosharding.errors import ModuleError
from hlosharding.ir.builder import write_attributes, written_proto
from hlosharding.ir.graph import MAY_ACT, Computation, Instruction, ModuleGraph, callees_first
from hlosharding.ir.shape import Shape
from hlosharding.ir.shape_inference import infer_shape, stated_type

LeaveUsers = Callable[[Instruction, Instruction], None]
"""(an operand, a user of it that goes): which order do the others stand in?"""


def others_keep_order(operand: Instruction, user: Instruction) -> None:
    """The users of `operand` without one, in the order they had."""
    operand.users.remove(user)


def last_user_takes_place(operand: Instruction, user: Instruction) -> None:
    """As XLA's Users::RemoveUser: the last user moves to the place of the one that goes."""
    position = operand.users.index(user)
    last = operand.users.pop()
    if last is not user:
        operand.users[position] = last


def release_operands(instruction: Instruction, *, leave: LeaveUsers = others_keep_order) -> None:
    """An instruction that goes is no user any more; it still knows its operands."""
    # Each once: who reads a value twice is one user of it.
    for operand in dict.fromkeys(instruction.operands):
        leave(operand, instruction)


def set_operands(
    instruction: Instruction, operands: Iterable[Instruction], *, leave: LeaveUsers = others_keep_order
) -> None:
    """Give an instruction other operands."""
    # Dicts for the looking up: the root of a step has thousands of operands.
    old = dict.fromkeys(instruction.operands)
    instruction.operands = tuple(operands)
    new = dict.fromkeys(instruction.operands)
    for operand in old:
        if operand not in new:
            leave(operand, instruction)
    for operand in new:
        if operand not in old:
            operand.users.append(instruction)


def replace_operand(
    instruction: Instruction, index: int, by: Instruction, *, leave: LeaveUsers = others_keep_order
) -> None:
    """Replace one operand."""
    operands = (*instruction.operands[:index], by, *instruction.operands[index + 1 :])
    set_operands(instruction, operands, leave=leave)


def replace_uses(
    instruction: Instruction, by: Instruction, *, where: Callable[[Instruction], bool] = lambda user: True
) -> None:
    """Let the users of `instruction` (those that `where` accepts) use `by`; a root becomes `by` too."""
    # A copy: each user that turns away leaves the list.
    for user in list(instruction.users):
        if user is not by and where(user):
            set_operands(user, (by if o is instruction else o for o in user.operands))
    computation = instruction.computation
    if computation.root is instruction and by.computation is computation:
        computation.set_root(by)


def replace_each(instead: Mapping[Instruction, Instruction]) -> None:
    """Let the users of each use what stands for it (a user that does so stays one), as `replace_uses` one by one.

    A user with thousands of operands is written once.  Roots stay.
    """
    reads: dict[Instruction, set[Instruction]] = {}
    for old, new in instead.items():
        for user in old.users:
            if user is not new:
                _reads_too(user, new, reads)
        old.users = [user for user in old.users if user is new]
    for user in reads:
        # Nothing stands for `o`, or this very user does, which must not read itself: either way it reads `o` on.
        user.operands = tuple(o if instead.get(o, user) is user else instead[o] for o in user.operands)


def _reads_too(user: Instruction, value: Instruction, reads: dict[Instruction, set[Instruction]]) -> None:
    """Make it a user of a value.  `reads`: what users whose operands are not written yet read by now."""
    read = reads.get(user) or reads.setdefault(user, set(user.operands))
    if value not in read:
        read.add(value)
        value.users.append(user)


def bypass(instructions: Iterable[Instruction], *, leave: LeaveUsers = others_keep_order) -> None:
    """Let the users of each read its first operand instead, and let it be no user: operands before users.

    Users stand as `replace_uses` and `release_operands` one by one would leave them; but a user with thousands of
    operands, as the root of a step is, is written once and not a thousand times.
    """
    instead: dict[Instruction, Instruction] = {}
    reads: dict[Instruction, set[Instruction]] = {}
    for instruction in instructions:
        # What the graph says of operands that were bypassed before is out of date: users are only written at the end.
        operands = [instead.get(o, o) for o in instruction.operands]
        value = instead[instruction] = operands[0]
        for user in instruction.users:
            _reads_too(user, value, reads)
        for operand in dict.fromkeys(operands):
            leave(operand, instruction)
        instruction.users.clear()
        if instruction.is_root:
            instruction.computation.set_root(value)
    for user in reads:
        user.operands = tuple(instead.get(o, o) for o in user.operands)


def remove(*instructions: Instruction) -> None:
    """Take unused instructions out of their computations."""
    for each in instructions:
        if each.users or each.is_root:
            raise ModuleError(f"%{each.name} is still used", where=f"computation %{each.computation.name}")
        set_operands(each, ())
    gone = frozenset(instructions)
    for computation in {each.computation for each in instructions}:
        computation.instructions[:] = [i for i in computation.instructions if i not in gone]
        for other in computation.instructions:
            if not gone.isdisjoint(other.control_predecessors):
                other.control_predecessors = tuple(p for p in other.control_predecessors if p not in gone)


def insert(
    computation: Computation,
    position: int,
    opcode: str,
    shape: Shape | None,
    operands: Iterable[Instruction],
    *,
    name: str,
    like: Instruction | None = None,
    called: Iterable[Computation] = (),
    **attributes: Any,
) -> Instruction:
    """Insert a new instruction at a text position; its name must be free.  Its id is -1 until `renumber`.

    Without a shape it gets the one that follows (`infer_shape`).  `like` gives its metadata.
    """
    given, proto = tuple(operands), written_proto(None, like and like.proto, attributes)
    instruction = Instruction(name, opcode, shape or stated_type(given), given, proto, computation)
    instruction.called = tuple(called)
    if shape is None:
        instruction.shape = infer_shape(instruction)
    computation.instructions.insert(position, instruction)
    return instruction


def place_behind(computation: Computation, places: Mapping[Instruction, Sequence[Instruction]]) -> None:
    """Move the last instructions of a computation: some behind each of these."""
    moved = {i for group in places.values() for i in group}
    kept = [i for i in computation.instructions if i not in moved]
    computation.instructions[:] = [i for place in kept for i in (place, *places.get(place, ()))]


def place_before(places: Mapping[Instruction, Sequence[Instruction]]) -> None:
    """Move instructions of the same computations: some before each of these."""
    moved = {i for group in places.values() for i in group}
    for computation in {place.computation for place in places}:
        kept = [i for i in computation.instructions if i not in moved]
        computation.instructions[:] = [i for place in kept for i in (*places.get(place, ()), place)]


def copy(instruction: Instruction, position: int, operands: Iterable[Instruction], *, to: Computation) -> Instruction:
    """Insert the same op on other operands at a text position of `to`, attributes and callees shared.

    It has the old one's name: remove that, or rename one of the two.  Its id is -1 until `renumber`.
    """
    made = instruction.copy_into(to, operands)
    to.instructions.insert(position, made)
    return made


def rename(instruction: Instruction, name: str) -> None:
    """Give it another name, which must be free."""
    instruction.name = name


def set_shape(instruction: Instruction, shape: Shape) -> None:
    """Say that it makes another shape; who uses it must fit."""
    instruction.shape = shape


def set_called(instruction: Instruction, called: Iterable[Computation]) -> None:
    """Let it call other computations."""
    instruction.called = tuple(called)


def set_attributes(instruction: Instruction, **attributes: Any) -> None:
    """Change attributes, typed or scalar fields of the proto; all others stay."""
    write_attributes(instruction.own_proto(), attributes)


def take_metadata(instruction: Instruction, like: Instruction) -> None:
    """Let it have the metadata of another one: name path and source line."""
    instruction.own_proto().metadata.CopyFrom(like.proto.metadata)


def set_metadata(instruction: Instruction, **fields: Any) -> None:
    """Change fields of its metadata."""
    metadata = instruction.own_proto().metadata
    for name, value in fields.items():
        setattr(metadata, name, value)


def drop_metadata(instruction: Instruction) -> None:
    """Let it have no metadata: it goes where its frame table does not."""
    if instruction.proto.HasField("metadata"):
        instruction.own_proto().ClearField("metadata")


def keep_frontend_attributes(instruction: Instruction, keep: Callable[[str], bool]) -> None:
    """Keep the frontend attributes whose name `keep` accepts."""
    entries = instruction.proto.frontend_attributes.map
    kept = {e.key: e.value for e in entries if keep(e.key)}
    if len(kept) < len(entries):
        set_attributes(instruction, frontend_attributes=kept)


def reorder(computation: Computation, instructions: Iterable[Instruction]) -> None:
    """Put the instructions of a computation in another order."""
    computation.instructions[:] = instructions


def place_computation(module: ModuleGraph, computation: Computation, position: int) -> None:
    """Put a computation of the module at a place in its list; its instructions get names that are free."""
    if computation in module.computations:
        module.computations.remove(computation)
    for instruction in computation.instructions:
        rename(instruction, fresh_name(module, instruction.name))
    module.computations.insert(position, computation)


def number(module: ModuleGraph, made: Instruction) -> None:
    """A provisional id for the side tables, free until the module is renumbered."""
    made.id = len(module.instructions)
    module.instructions.append(made)
    module.forget_opcodes()


def change_opcode(instruction: Instruction, opcode: str, operands: Iterable[Instruction] | None = None) -> None:
    """Turn an instruction into another op of the same name, shape and metadata; its attributes go."""
    # Asked for what it does besides: what was decoded of the old op is forgotten.
    old = instruction.own_proto()
    proto = wire.HloInstructionProto(opcode=opcode)
    proto.shape.CopyFrom(old.shape)
    proto.metadata.CopyFrom(old.metadata)
    instruction.proto, instruction.opcode, instruction.called = proto, opcode, ()
    instruction.module.forget_opcodes()
    if operands is not None:
        set_operands(instruction, operands)


def change_kind(instruction: Instruction, opcode: str, shape: Shape) -> None:
    """Turn an instruction into another op of the same operands and attributes."""
    instruction.opcode, instruction.shape = opcode, shape
    instruction.module.forget_opcodes()


def fresh_name(module: ModuleGraph, name: str) -> str:
    """`name`, or `name.N` with the smallest free N."""
    return free_name(names_of(module), name)


def names_of(module: ModuleGraph) -> set[str]:
    """Those of all instructions."""
    return {i.name for c in module.computations for i in c.instructions}


def free_name(taken: set[str], name: str) -> str:
    """`name`, or `name.N` with the smallest free N; taken from then on.

    >>> taken = {"add"}
    >>> free_name(taken, "add"), free_name(taken, "add"), free_name(taken, "dot")
    ('add.1', 'add.2', 'dot')
    """
    found, number = name, 0
    while found in taken:
        number += 1
        found = f"{name}.{number}"
    taken.add(found)
    return found


def dead_code(module: ModuleGraph) -> bool:
    """Remove unused instructions without side effect (parameters stay) and computations nobody calls."""
    changed = False
    for computation in module.computations:
        changed |= _dead_instructions(computation)
    reachable = set(callees_first([module.entry]))
    kept = [c for c in module.computations if c in reachable]
    changed |= len(kept) != len(module.computations)
    module.computations[:] = kept
    return changed


_MAY_STAY = MAY_ACT | {"parameter"}


def _stays(instruction: Instruction) -> bool:
    return instruction.opcode == "parameter" or instruction.has_side_effect


def _dead_instructions(computation: Computation) -> bool:
    live = _live_instructions(computation)
    if len(live) == len(computation.instructions):
        return False
    dead = [i for i in computation.instructions if i not in live]
    computation.instructions[:] = [i for i in computation.instructions if i in live]
    for operand in {o for i in dead for o in i.operands if o in live}:
        # Once for each operand, not for each user that goes: thousands may read one constant.
        operand.users = [u for u in operand.users if u in live]
    return True


def _live_instructions(computation: Computation) -> set[Instruction]:
    """The root, what stays of itself, and all that these need."""
    live, dead = {computation.root}, list[Instruction]()
    need, drop = live.update, dead.append
    for i in reversed(computation.instructions):
        # Most ops are told by the first two questions; `_stays` may walk all that an op calls.
        if i in live or ((i.called or i.opcode in _MAY_STAY) and _stays(i)):
            live.add(i)
            need(i.operands)
            if i.control_predecessors:
                need(i.control_predecessors)
        else:
            drop(i)
    # One walk backwards suffices where operands stand before their users, as they nearly always do.
    return live if live.isdisjoint(dead) else _live_in_any_order(computation)


def _live_in_any_order(computation: Computation) -> set[Instruction]:
    """As `_live_instructions`, where something stands before what it needs."""
    stack = [i for i in computation.instructions if (i.called or i.opcode in _MAY_STAY) and _stays(i)]
    stack.append(computation.root)
    live = set(stack)
    while stack:
        instruction = stack.pop()
        for needed in (*instruction.operands, *instruction.control_predecessors):
            if needed not in live:
                live.add(needed)
                stack.append(needed)
    return live
