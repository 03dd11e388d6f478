"""A module under edit, with XLA's own edit semantics: where new instructions go, in which order users stand.

Floor: ir.  Propagation depends on the order of instructions and of users, so the passes that XLA runs before it must
leave both as XLA does: new instructions at the end, a removed user replaced by the last one, names as XLA's NameUniquer
gives them.  Passes on per-device programs, where no order matters, use `rewrite` itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from hlosharding import wire
from hlosharding.ir import rewrite
from hlosharding.ir.attributes import frame_numbers
from hlosharding.ir.builder import written_proto
from hlosharding.ir.graph import Computation, Instruction
from hlosharding.ir.module import Module
from hlosharding.ir.opcode import SIDE_EFFECTS_IN_XLA
from hlosharding.ir.shape import Shape
from hlosharding.ir.shape_inference import infer_shape, stated_type
from hlosharding.once import remembered
from hlosharding.sharding import HloSharding


class Edit:
    """The module under edit.  `finish` closes it; until then shardings are kept by instruction, not by id.

    The module is the editor's own from then on (`Edit.of_copy`: it stays as it was).
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.shardings: dict[Instruction, HloSharding] = {
            module.instructions[number]: sharding for number, sharding in module.shardings.items()
        }
        self.frames = FrameTable(self.module.proto.stack_frame_index)
        # Ordered sets: each change appends one or takes one out, for which a list of thousands would be searched.
        self._live = {c: dict.fromkeys(c.instructions) for c in self.module.computations}
        self._names = NameUniquer(i.name for i in self.module.instructions)
        self._computation_names = NameUniquer(c.name for c in self.module.computations)
        self._control_successors: dict[Instruction, list[Instruction]] = {}
        for instruction in self.module.instructions:
            for before in instruction.control_predecessors:
                self._control_successors.setdefault(before, []).append(instruction)

    @classmethod
    def of_copy(cls, module: Module) -> Edit:
        """An edit of a clone, which gets frames of its own."""
        copy = module.clone()
        copy._frames = {}
        copy.proto = wire.HloModuleProto.FromString(module.proto.SerializeToString())
        return cls(copy)

    # ---- looking

    def live(self, computation: Computation) -> Collection[Instruction]:
        """The living instructions of a computation, to ask about them while nothing changes."""
        return self._live[computation]

    def instructions(self, computation: Computation) -> Iterator[Instruction]:
        """The living instructions of a computation, in XLA's list order."""
        # A copy: who walks them adds some and takes some out.
        return iter(list(self._live[computation]))

    def opcodes(self, computation: Computation) -> set[str]:
        """Which ops the living instructions of a computation are."""
        return {i.opcode for i in self._live[computation]}

    def calls_of(self, computation: Computation) -> list[Instruction]:
        """The living instructions that call a computation, in XLA's list order."""
        return [i for i in self._live[computation] if i.called]

    def post_order(self, computation: Computation) -> list[Instruction]:
        """XLA's MakeInstructionPostOrder at this moment."""
        # The graph's own walk reads the list, which an edit leaves as it was until now.
        computation.instructions[:] = self._live[computation]
        return computation.post_order()

    def each(self, opcode: str, computations: Iterable[Computation]) -> Iterator[Instruction]:
        """The living instructions of an opcode in these computations, in post order at the moment one is reached."""
        for computation in computations:
            if opcode in self.opcodes(computation):
                yield from [i for i in self.post_order(computation) if i.opcode == opcode]

    def computations_post_order(self) -> list[Computation]:
        """XLA's MakeComputationPostOrder, callees first."""
        called = {c for k in self.module.computations for i in self._live[k] for c in i.called}
        order: dict[Computation, None] = {}
        for computation in self.module.computations:
            if computation not in called:
                for embedded in self._embedded(computation):
                    order.setdefault(embedded)
                order.setdefault(computation)
        return list(order)

    def _embedded(self, computation: Computation) -> list[Computation]:
        order: list[Computation] = []
        seen: set[Computation] = set()
        stack: list[tuple[Computation, Iterator[Instruction]]] = []

        def enter(called: Iterable[Computation]) -> None:
            # As XLA: the first callee lies on top, and each is marked when it is put there.  Marked when it is taken
            # off, one that several call could come earlier than XLA has it.
            for callee in reversed(tuple(called)):
                if callee not in seen:
                    seen.add(callee)
                    stack.append((callee, iter(self.calls_of(callee))))

        for instruction in self.calls_of(computation):
            enter(instruction.called)
            while stack:
                callee, remaining = stack[-1]
                step = next(remaining, None)
                if step is None:
                    stack.pop()
                    order.append(callee)
                else:
                    enter(step.called)
        return order

    def is_dead(self, instruction: Instruction) -> bool:
        return not instruction.users and not instruction.is_root

    def is_safely_removable(self, instruction: Instruction) -> bool:
        """XLA's IsSafelyRemovable, outside fusions."""
        return instruction.opcode != "parameter" and not self.has_control(instruction)

    def has_control(self, instruction: Instruction) -> bool:
        return bool(instruction.control_predecessors or self._control_successors.get(instruction))

    def has_control_successors(self, instruction: Instruction) -> bool:
        return bool(self._control_successors.get(instruction))

    def has_side_effect(self, instruction: Instruction) -> bool:
        """XLA's HasSideEffect in an SPMD compile, where channels of collectives are none."""
        if instruction.opcode in SIDE_EFFECTS_IN_XLA or instruction.proto.custom_call_has_side_effect:
            return True
        return any(self.has_side_effect(i) for c in instruction.called for i in self._live[c])

    # ---- changing

    def add(self, instruction: Instruction, sharding: HloSharding | None = None) -> Instruction:
        """Append an instruction (made with its operands) to its computation, under a fresh name."""
        instruction.name = self._names.fresh(instruction.name)
        self._live[instruction.computation][instruction] = None
        if sharding is not None:
            self.shardings[instruction] = sharding
        return instruction

    def create(
        self,
        computation: Computation,
        opcode: str,
        operands: Iterable[Instruction] = (),
        *,
        shape: Shape | None = None,
        name: str | None = None,
        like: Instruction | None = None,
        metadata_of: Instruction | None = None,
        **attributes: Any,
    ) -> Instruction:
        """Append a new instruction, named after its opcode unless `name` says otherwise.

        Without a shape it gets the one that follows.  `like` gives callees and all attributes, `metadata_of` metadata.
        """
        given = tuple(operands)
        proto = written_proto(like and like.proto, metadata_of and metadata_of.proto, attributes)
        made = Instruction(name or opcode, opcode, shape or stated_type(given), given, proto, computation)
        made.called = () if like is None else like.called
        if shape is None:
            made.shape = infer_shape(made)
        return self.add(made)

    def clone_into(
        self, instruction: Instruction, operands: Iterable[Instruction], computation: Computation
    ) -> Instruction:
        """Append a copy with other operands: name (made fresh), proto, callees and sharding are the original's."""
        return self.add(instruction.copy_into(computation, operands), self.shardings.get(instruction))

    def clone_computation(self, computation: Computation) -> Computation:
        """A copy with the same orders, appended to the module; its callees are the original's."""
        copy = Computation(self._computation_names.fresh(f"{computation.name}.clone"), self.module, computation.proto)
        self.module.computations.append(copy)
        self._live[copy] = {}
        new: dict[Instruction, Instruction] = {}
        for old in self._live[computation]:
            new[old] = self.add(old.copy_into(copy), self.shardings.get(old))
        # Behind all copies: an operand that was made during the edit stands in the list behind those that use it.
        for old, made in new.items():
            made.operands = tuple(new[o] for o in old.operands)
            made.users = [new[u] for u in old.users]
            for before in old.control_predecessors:
                self.add_control(new[before], made)
        # Who asks the copy for its parameters reads the list, which of other computations is the one before the edit.
        copy.instructions[:] = new.values()
        copy.set_root(new[computation.root])
        return copy

    def add_control(self, before: Instruction, after: Instruction) -> None:
        """A control dependency, once."""
        if before not in after.control_predecessors:
            after.control_predecessors = (*after.control_predecessors, before)
            self._control_successors.setdefault(before, []).append(after)

    def drop_control(self, instruction: Instruction) -> None:
        """Remove all control dependencies to and from an instruction."""
        for before in instruction.control_predecessors:
            self._control_successors[before].remove(instruction)
        instruction.control_predecessors = ()
        for after in self._control_successors.pop(instruction, []):
            after.control_predecessors = tuple(p for p in after.control_predecessors if p is not instruction)

    def replace_uses(self, old: Instruction, new: Instruction) -> None:
        """XLA's ReplaceAllUsesWithDifferentShape: users of `old` become users of `new`, in their order."""
        rewrite.replace_uses(old, new)

    def replace_operand(self, instruction: Instruction, position: int, new: Instruction) -> None:
        """XLA's ReplaceOperandWithDifferentShape."""
        rewrite.replace_operand(instruction, position, new, leave=rewrite.last_user_takes_place)

    def set_operands(self, instruction: Instruction, operands: Iterable[Instruction]) -> None:
        """Many operands replaced at once."""
        rewrite.set_operands(instruction, operands, leave=rewrite.last_user_takes_place)

    def replace(
        self, old: Instruction, new: Instruction, *, relay_control: bool = False, remove_operands: bool = True
    ) -> None:
        """XLA's ReplaceInstruction: `new` inherits what it lacks of `old`'s metadata, attributes and sharding."""
        if relay_control:
            for before in old.control_predecessors:
                self.add_control(before, new)
            for after in self._control_successors.get(old, []):
                self.add_control(new, after)
            self.drop_control(old)
        _inherit(new, old)
        if new not in self.shardings and old in self.shardings:
            self.shardings[new] = self.shardings[old]
        self.replace_uses(old, new)
        # XLA keeps the name for the same op; since no two have one name, the one that goes takes the other.
        if old.opcode == new.opcode and (
            old.opcode != "custom-call" or old.custom_call_target == new.custom_call_target
        ):
            new.name, old.name = old.name, new.name
        if remove_operands:
            self.remove_with_unused_operands(old)
        else:
            self.remove(old)

    def remove(self, instruction: Instruction) -> None:
        """Take an unused instruction out; the last user of each operand moves into its place."""
        rewrite.release_operands(instruction, leave=rewrite.last_user_takes_place)
        self._forget(instruction)

    def bypass(self, instructions: Sequence[Instruction]) -> None:
        """Let the users of each use its first operand, and take it out."""
        rewrite.bypass(instructions, leave=rewrite.last_user_takes_place)
        for instruction in instructions:
            self._forget(instruction)

    def _forget(self, instruction: Instruction) -> None:
        self.shardings.pop(instruction, None)
        del self._live[instruction.computation][instruction]

    def remove_with_unused_operands(self, instruction: Instruction) -> None:
        """XLA's RemoveInstructionAndUnusedOperands."""
        # First in, first out, as XLA: the order of removals is seen in the order of the users that are left.
        queue, removed = deque([instruction]), set[Instruction]()
        while queue:
            item = queue.popleft()
            if item in removed or not self.is_dead(item) or not self.is_safely_removable(item):
                continue
            # What the caller wants gone goes even if it acts.
            if item is not instruction and self.has_side_effect(item):
                continue
            queue.extend(item.operands)
            self.remove(item)
            removed.add(item)

    def drop_computations(self, kept: Iterable[Computation]) -> None:
        """Keep only these computations."""
        keep = set(kept)
        self.module.computations[:] = [c for c in self.module.computations if c in keep]

    def finish(self) -> Module:
        """The edited module: computations in XLA's list order, instructions in post order.

        XLA keeps instructions in the order of their making; its visits follow post order, which both lists share.
        """
        for computation in self.module.computations:
            computation.instructions[:] = self.post_order(computation)
        self.module.shardings = {}
        self.module.renumber()
        self.module.shardings = {i.id: self.shardings[i] for i in self.module.instructions if i in self.shardings}
        return self.module


def _inherit(new: Instruction, old: Instruction) -> None:
    if not new.op_name and old.op_name:
        rewrite.take_metadata(new, old)
    if not new.frontend_attributes and old.frontend_attributes:
        rewrite.set_attributes(new, frontend_attributes=old.frontend_attributes)


# ---- the table of Python stack frames, extended when calls are inlined
#
# A frame is (file location, parent frame); ids count from 1, 0 is none.


class FrameTable:
    """Joins stacks of a `StackFrameIndexProto` that is ours to extend; follows XLA's StackFrames."""

    def __init__(self, index: Any) -> None:
        self._index = index
        self._ids = {(f.file_location_id, f.parent_frame_id): n + 1 for n, f in enumerate(index.stack_frames)}

    @remembered
    def join(self, outer: int, inner: int) -> int:
        """The stack `inner` as seen from inside the stack `outer` (unchanged if it already stands there)."""
        chain = frame_numbers(self._index, inner)
        if not outer or outer in chain:
            return inner
        for frame in reversed(chain):
            outer = self._frame(self._index.stack_frames[frame - 1].file_location_id, outer)
        return outer

    def _frame(self, location: int, parent: int) -> int:
        found = self._ids.get((location, parent))
        if found is None:
            self._index.stack_frames.add(file_location_id=location, parent_frame_id=parent)
            found = self._ids[location, parent] = len(self._index.stack_frames)
        return found


# ---- names, as XLA chooses them
#
# Strings only.


class NameUniquer:
    """Names already given out, per root; follows XLA's NameUniquer and its SequentialIdGenerator.

    >>> names = NameUniquer(["add.1", "add.3"])
    >>> names.fresh("add.1"), names.fresh("add"), names.fresh("add.7"), names.fresh("tuple")
    ('add.0', 'add.2', 'add.7', 'tuple')
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._used: dict[str, set[int]] = {}
        self._next: dict[str, int] = {}
        self._unread = tuple(taken)
        """Names taken from the start: an edit that makes nothing new never reads them."""

    def fresh(self, wanted: str) -> str:
        """`wanted` if it is free, else its root with the smallest number not yet given out."""
        for name in self._unread:
            self._register(*_parts(name)[:2])
        self._unread = ()
        root, number, numbered = _parts(wanted)
        number = self._register(root, number)
        if number == 0:
            return f"{root}.0" if numbered else root
        return f"{root}.{number}"

    def _register(self, root: str, number: int) -> int:
        used = self._used.get(root)
        if used is None:
            used = self._used[root] = set()
        if number not in used:
            used.add(number)
            return number
        candidate = self._next.get(root, 0)
        while candidate in used:
            candidate += 1
        used.add(candidate)
        self._next[root] = candidate + 1
        return candidate


def _parts(name: str) -> tuple[str, int, bool]:
    """Root, number, and whether the name ends in one."""
    root, _, suffix = name.rpartition(".")
    # Alone, `isdigit` holds of superscripts, too, which `int` refuses, and of other scripts' digits, which are
    # none to XLA.
    if root and suffix.isdigit() and suffix.isascii():
        return root, int(suffix), True
    return name, 0, False
