"""The graph: instructions in computations in a module, with the sharding side table and what the user's mesh was.

Floor: ir.  Instructions are equal by identity; nothing about shardings, costs or causes is kept on them: those live in
side tables keyed by `id`.  Name, opcode, shape, operands and callees are the graph's; an instruction's proto holds all
else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import Any, Self, TypeVar

import numpy.typing as npt

from hlosharding import wire
from hlosharding.collector import collector_waits
from hlosharding.errors import ModuleError
from hlosharding.ir.attributes import Frame, Stack
from hlosharding.ir.function_boundary import FunctionBoundary
from hlosharding.ir.instruction_attributes import InstructionAttributes, decoded
from hlosharding.ir.opcode import SIDE_EFFECTS
from hlosharding.ir.shape import Shape
from hlosharding.sharding import HloSharding, MeshInfo


class Instruction(InstructionAttributes):
    """A node of a computation.  Graph fields are changed by `ir.rewrite` and `ir.Builder` only.

    `operands`, `called` and `control_predecessors` are tuples; `users` is a list without repeats, in the order
    in which the uses were added.  `id` is the dense position in `module.instructions`.
    """

    def __init__(
        self,
        name: str,
        opcode: str,
        shape: Shape,
        operands: tuple[Instruction, ...],
        proto: Any,
        computation: Computation,
    ) -> None:
        self.id = -1
        self.name = name
        self.opcode = opcode
        self.shape = shape
        self.operands = operands
        self.proto = proto
        self.computation = computation
        self.users: list[Instruction] = []
        self.called: tuple[Computation, ...] = ()
        self.control_predecessors: tuple[Instruction, ...] = ()
        for operand in operands:
            # A new instruction can only be the last user: no search through long lists.
            if not operand.users or operand.users[-1] is not self:
                operand.users.append(self)

    @property
    def module(self) -> ModuleGraph:
        return self.computation.module

    @property
    def is_root(self) -> bool:
        """True for the root of its computation."""
        return self.computation.root is self

    @property
    def is_entry_root(self) -> bool:
        return self.is_root and self.computation.is_entry

    def copy_into(self, computation: Computation, operands: Iterable[Instruction] = ()) -> Instruction:
        """The same op of `operands`, of the same proto: where in the computation it stands is the caller's business."""
        made = Instruction(self.name, self.opcode, self.shape, tuple(operands), self.proto, computation)
        made.called = self.called
        return made

    @property
    def has_side_effect(self) -> bool:
        """True when the op may not be removed though nobody uses it."""
        if self.opcode in MAY_ACT and _acts(self):
            return True
        return bool(self.called) and any(i.opcode in MAY_ACT and _acts(i) for i in self.called_instructions())

    def called_instructions(self) -> Iterator[Instruction]:
        """The instructions of what it calls, and of what those call, each once."""
        return (inst for computation in callees_first(self.called) for inst in computation.instructions)

    @property
    def frames(self) -> Stack:
        """The Python stack the op was traced from, innermost frame first."""
        meta = self.proto.metadata
        if meta.stack_frame_id:
            return self.module.frames(meta.stack_frame_id)
        return Stack((Frame(meta.source_file, "", meta.source_line, 0),) if meta.source_file else ())

    @property
    def location(self) -> str:
        """ "file.py:31" of the innermost frame outside installed packages; "" when unknown."""
        return self.frames.location

    @property
    def where(self) -> str:
        """Name and source line, as errors say it."""
        return f"%{self.name} {self.location}".strip()

    @property
    def path(self) -> str:
        """Of a parameter what the user calls it: `params['w']`; its name where nobody says."""
        return self.op_name or self.name

    @property
    def is_backward(self) -> bool:
        """Does the op stand in a backward pass?  JAX writes that into its name."""
        return "transpose(" in self.op_name

    def __repr__(self) -> str:
        return f"%{self.name} = {self.shape} {self.opcode}({', '.join('%' + o.name for o in self.operands)})"


class BuiltInstruction(Instruction):
    """An instruction that a pass made: its proto is written at first use, since nobody asks for most of them."""

    def __init__(
        self,
        name: str,
        opcode: str,
        shape: Shape,
        operands: tuple[Instruction, ...],
        write: partial[Any],
        computation: Computation,
    ) -> None:
        # As any instruction's, but for the proto: to set one and take it away again costs a third of all this.
        self.id = -1
        self.name = name
        self.opcode = opcode
        self.shape = shape
        self.operands = operands
        self.computation = computation
        self.users = []
        self.called = ()
        self.control_predecessors = ()
        self.write = write
        for operand in operands:
            if not operand.users or operand.users[-1] is not self:
                operand.users.append(self)

    @decoded
    def proto(self) -> Any:
        """The HloInstructionProto."""
        return self.write()


def _acts(inst: Instruction) -> bool:
    """Has the op itself a side effect?"""
    if inst.opcode in SIDE_EFFECTS or (inst.opcode == "custom-call" and inst.proto.custom_call_has_side_effect):
        return True
    return inst.opcode == "all-reduce" and bool(inst.channel_id) and not inst.use_global_device_ids


MAY_ACT = SIDE_EFFECTS | {"custom-call", "all-reduce"}
"""Opcodes that may have a side effect of their own."""


class Computation:
    """An ordered list of instructions with a root.  The order is that of the text and matters to XLA."""

    def __init__(self, name: str, module: ModuleGraph, proto: Any = None) -> None:
        self.name = name
        self.module = module
        self.proto = proto if proto is not None else wire.HloComputationProto(name=name)
        self.instructions: list[Instruction] = []
        self._root: Instruction | None = None

    @property
    def root(self) -> Instruction:
        if self._root is None:
            raise ModuleError(f"computation %{self.name} has no root")
        return self._root

    def set_root(self, root: Instruction) -> None:
        """Make `root` the result of the computation."""
        self._root = root

    @property
    def results(self) -> Sequence[Instruction]:
        """What it gives: the elements of a tuple that its root packs, else the root."""
        return self.root.operands if self.root.opcode == "tuple" else (self.root,)

    @property
    def is_entry(self) -> bool:
        return self.module.entry is self

    @property
    def parameters(self) -> tuple[Instruction, ...]:
        """Parameters by number."""
        found = [i for i in self.instructions if i.opcode == "parameter"]
        return tuple(sorted(found, key=lambda i: i.parameter_number))

    def post_order(self) -> list[Instruction]:
        """XLA's MakeInstructionPostOrder: depth first from each userless instruction, in text order."""
        order: dict[Instruction, None] = {}
        entered: set[Instruction] = set()
        # Not by recursion: operands of operands go deeper than Python's stack.
        stack = [i for i in reversed(self.instructions) if not i.users]
        while stack:
            current = stack[-1]
            if current not in entered:
                entered.add(current)
                # Pushed in reverse, so that the first operand is visited first; control predecessors before all.
                before = [o for o in reversed(current.operands) if o not in entered]
                if current.control_predecessors:
                    before += [o for o in current.control_predecessors if o not in entered]
                if before:
                    stack += before
                    continue
            stack.pop()
            order[current] = None  # which stays where it is if it stands there already
        return list(order)

    def __repr__(self) -> str:
        return f"Computation(%{self.name}, {len(self.instructions)} instructions)"


class ModuleGraph:
    """All of a module but its wire forms (`Module` adds those).

    `shardings` maps an instruction's id to its HloSharding.  `mesh` is the user's mesh (a `MeshInfo`), or None.
    `weights` holds values for trailing parameters that the file itself carried, and `tensors` by the name of a tensor
    there that of its instruction, `stages` by node in which stage of a pipeline the file would have it (ONNX).
    `signature` describes the Python function a trace came from.  `callbacks` are Python functions that custom calls
    name by number; `partitionings` what the user gave with functions under `custom_partitioning`, which calls name
    likewise.  `custom_calls` are the targets of those that may run beside the ones whose shapes are known to be safe;
    None for a program that was traced in this process: all.  `elided` names a constant whose values the text left out
    (`{...}`, as XLA dumps large ones), for which jaxlib made up others; "" if there is none.
    `open_outputs` and `open_parameters`: whose shardings at the edge are propagation's to choose, one bool for all or
    one per leaf of the result / per parameter (`allow_spmd_sharding_propagation_to_output` / `_to_parameters` in XLA).
    `stands_for`: in a part of a program (`excerpt`), by id, for how many instructions of the whole one stands if not
    for itself alone.
    """

    def __init__(self, name: str, *, num_partitions: int = 1) -> None:
        self.name = name
        self.num_partitions = num_partitions
        self.num_replicas = 1
        self.computations: list[Computation] = []
        self.instructions: list[Instruction] = []
        self.shardings: dict[int, HloSharding] = {}
        self.mesh: MeshInfo | None = None
        self.weights: dict[str, npt.NDArray[Any]] = {}
        self.tensors: Mapping[str, str] = {}
        self.stages: Mapping[str, int] = {}
        self.open_outputs: bool | tuple[bool, ...] = False
        self.open_parameters: bool | tuple[bool, ...] = False
        self.stands_for: Mapping[int, int] = {}
        self.signature: FunctionBoundary | None = None
        self.callbacks: tuple[Callable[..., Any], ...] = ()
        self.partitionings: tuple[Any, ...] = ()
        self.custom_calls: frozenset[str] | None = frozenset()
        self.elided = ""
        self.proto: Any = wire.HloModuleProto(name=name)
        self._entry: Computation | None = None
        self._frames: dict[int, Stack] = {}

    @property
    def entry(self) -> Computation:
        if self._entry is None:
            raise ModuleError(f"module {self.name} has no entry computation")
        return self._entry

    def set_entry(self, computation: Computation) -> None:
        """Make `computation` the one that runs."""
        self._entry = computation

    def sharding(self, instruction: Instruction) -> HloSharding | None:
        """The sharding of an instruction, or None."""
        return self.shardings.get(instruction.id)

    @cached_property
    def _by_name(self) -> dict[str, Instruction]:
        return {i.name: i for i in self.instructions}

    def by_name(self, name: str) -> Instruction:
        """The instruction of that name (with or without %).  Raises ModuleError with near misses."""
        found = self._by_name.get(name.removeprefix("%"))
        if found is None:
            from difflib import get_close_matches

            near = get_close_matches(name, self._by_name, 3)
            remedy = f"did you mean {', '.join(near)}?" if near else "the names are those of the HLO text"
            raise ModuleError(f"no instruction %{name.removeprefix('%')}", remedy=remedy)
        return found

    def find(self, name: str) -> Instruction | None:
        """The instruction of that name, or None."""
        return self._by_name.get(name)

    @cached_property
    def paths(self) -> dict[str, Instruction]:
        """What users call values in the program that they wrote: entry parameters by path, tensors of an ONNX model."""
        found = {tensor: self._by_name[name] for tensor, name in self.tensors.items() if name in self._by_name}
        return found | {p.op_name: p for p in self.entry.parameters if p.op_name}

    @cached_property
    def _by_opcode(self) -> dict[str, list[Instruction]]:
        found: dict[str, list[Instruction]] = defaultdict(list)
        for instruction in self.instructions:
            found[instruction.opcode].append(instruction)
        return dict(found)

    def of_opcodes(self, *opcodes: str) -> list[Instruction]:
        """The instructions of these opcodes in text order, as of the last `renumber`: what is asked for is mostly rare.

        >>> import hlosharding as hs
        >>> module = hs.load("HloModule m\\n\\nENTRY e {\\n x = f32[2] parameter(0)\\n ROOT y = f32[2] sine(x)\\n}\\n")
        >>> module.of_opcodes("sine", "cosine")
        [%y = f32[2] sine(%x)]
        """
        found = [self._by_opcode[opcode] for opcode in dict.fromkeys(opcodes) if opcode in self._by_opcode]
        if len(found) < 2:
            return list(*found)
        return sorted(chain(*found), key=lambda instruction: instruction.id)

    def forget_opcodes(self) -> None:
        """An instruction became another op: `of_opcodes` looks anew."""
        self.__dict__.pop("_by_opcode", None)

    @property
    def is_scheduled(self) -> bool:
        """Whether XLA put the instructions in the order in which they run: it does so when it compiles a module."""
        return self.proto.HasField("schedule")

    @property
    def distinct_shardings(self) -> list[HloSharding]:
        """Every sharding of the side table once: programs have few, on thousands of instructions."""
        return list({id(s): s for s in self.shardings.values()}.values())

    def renumber(self) -> None:
        """Make ids dense again after a rewrite, in text order; the sharding table follows."""
        old, self.shardings = self.shardings, {}
        self.instructions = [i for c in self.computations for i in c.instructions]
        for position, instruction in enumerate(self.instructions):
            number = instruction.id
            instruction.id = position
            if number in old and number >= 0:
                self.shardings[position] = old[number]
        self.__dict__.pop("_by_name", None)
        self.__dict__.pop("paths", None)
        self.forget_opcodes()

    def frames(self, frame_id: int) -> Stack:
        """The Python stack of a frame id, innermost first (memoised)."""
        if frame_id not in self._frames:
            self._frames[frame_id] = Stack.from_index(self.proto.stack_frame_index, frame_id)
        return self._frames[frame_id]

    @collector_waits
    def clone(self) -> Self:
        """A copy whose graph and side table can be changed; protos are shared until they are replaced."""
        out = type(self)(self.name, num_partitions=self.num_partitions)
        out.num_replicas = self.num_replicas
        out.open_outputs, out.open_parameters = self.open_outputs, self.open_parameters
        out.mesh, out.weights, out.signature, out.proto = self.mesh, self.weights, self.signature, self.proto
        out.tensors, out.stages = self.tensors, self.stages
        out._frames, out.callbacks, out.partitionings = self._frames, self.callbacks, self.partitionings
        out.custom_calls, out.elided = self.custom_calls, self.elided
        new_computation = {c: Computation(c.name, out, c.proto) for c in self.computations}
        new: dict[Instruction, Instruction] = {}
        of = new.__getitem__
        for old, computation in new_computation.items():
            for i in old.instructions:
                copy = new[i] = Instruction(i.name, i.opcode, i.shape, (), i.proto, computation)
                copy.id = i.id
            computation.instructions = list(map(of, old.instructions))
            computation.set_root(new[old.root])
            out.computations.append(computation)
        for i, copy in new.items():
            copy.operands = tuple(map(of, i.operands))
            copy.users = list(map(of, i.users))
            if i.called:
                copy.called = tuple(new_computation[c] for c in i.called)
            if i.control_predecessors:
                copy.control_predecessors = tuple(new[p] for p in i.control_predecessors)
        out.set_entry(new_computation[self.entry])
        out.instructions = [new[i] for i in self.instructions]
        out.shardings = dict(self.shardings)
        return out

    def __repr__(self) -> str:
        count = len(self.instructions)
        return f"{type(self).__name__}({self.name}, {count} instructions, {self.num_partitions} partitions)"


def callees_first(computations: Iterable[Computation]) -> list[Computation]:
    """These and all that they call, directly or not: depth first, each behind what it calls.

    That is the given order where it already has callees first, as XLA keeps it.
    """
    return depth_first(computations, lambda caller: (callee for i in caller.instructions for callee in i.called))


Node = TypeVar("Node", bound=Hashable)


def depth_first(nodes: Iterable[Node], before: Callable[[Node], Iterable[Node]]) -> list[Node]:
    """These and all that stand before them, directly or not: each behind those, of which the first come first."""
    order: list[Node] = []
    placed: set[Node] = set()

    # Not by recursion: loops may be nested a thousand deep.
    stack: list[tuple[Node, Iterator[Node]]] = []

    def enter(node: Node) -> None:
        if node not in placed:
            placed.add(node)
            stack.append((node, iter(before(node))))

    for node in nodes:
        enter(node)
        while stack:
            earlier = next(stack[-1][1], None)
            if earlier is None:
                order.append(stack.pop()[0])
            else:
                enter(earlier)
    return order
