"""Peak memory of a program on one device, by liveness: what must exist at once, nothing of fragmentation.

Floor: cost.  A value lives from its definition to its last use; tuples, bitcasts and the like are names for values; an
op may write over an operand that dies there; a loop's carry is one buffer, passed through.  Arguments stay for the
whole run unless they are donated; results take room from their definition on, not before (XLA lets temporaries use
their place).  What lies in the host's memory is counted apart.  The order is the schedule where XLA wrote one, else
the best of text order, post order, and an order that frees first.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain
from typing import Any, NamedTuple

from hlosharding.cost.fusing import POINTWISE, Reads, find_read_in_place
from hlosharding.cost.host_offload import leaves_on_host
from hlosharding.cost.kernels import Kernels
from hlosharding.cost.memory_order import FreeingFirst, schedules
from hlosharding.deep_stack import deep_stack
from hlosharding.ir import Computation, Instruction, Module, blaming, hands_on, while_parts
from hlosharding.ir import custom_call_targets as targets

_ALIASES = frozenset(
    "add-dependency bitcast copy-done domain get-tuple-element opt-barrier reshape tuple"
    " all-gather-done all-reduce-done async-done async-update collective-permute-done recv-done send-done".split()
)
_NO_MEMORY = frozenset({"after-all"})
_OVERWRITES_SAME = frozenset({"all-reduce", "all-reduce-start", "sort"})
"""May write result n over operand n; elementwise ops over whatever of the same size they read in place."""
_OVERWRITES_FIRST = frozenset({"dynamic-update-slice", "scatter", "set-dimension-size"})
_FOREVER = 1 << 60


class Peak(NamedTuple):
    """The worst moment of a program."""

    bytes: int
    at: str
    """Name of the instruction of the entry during which it occurs."""


@dataclass(frozen=True, eq=False)
class PeakMemory:
    """The worst moment of a program, found when it is first asked for: not everybody who prices programs asks."""

    module: Module
    kernels: Kernels
    """Which there are."""

    @cached_property
    def found(self) -> Peak:
        with blaming(self.module):
            return deep_stack(peak_memory)(self.module, self.kernels)

    def is_at_most(self, nbytes: float) -> bool:
        """Does the program hold no more?  One order that does not is enough: others are not looked for."""
        # A cached property lies there once it was asked for: to ask for it here would find it.
        if "found" in vars(self):
            return self.found.bytes <= nbytes
        with blaming(self.module):
            is_enough = deep_stack(_Memory(self.module, kernels=self.kernels).runs_within)(nbytes)
        return is_enough or self.found.bytes <= nbytes


def peak_memory(module: Module, kernels: Kernels | None = None) -> Peak:
    """Bytes one device needs at the worst moment: arguments, results and all values alive.

    `kernels`: which there are, where that is known already; by default those of a CPU, which keep least inside.

    >>> import hlosharding.ir as ir
    >>> b = ir.Builder("m")
    >>> main = b.computation("main")
    >>> x = main.parameter(0, ir.Shape.array("f32", (100,)))
    >>> y = main.add("all-gather", ir.Shape.array("f32", (400,)), (x,), dimensions=(0,))
    >>> _ = main.add("slice", ir.Shape.array("f32", (10,)), (y,))
    >>> peak_memory(b.finish(main))
    Peak(bytes=2040, at='slice')
    """
    return _Memory(module, kernels=kernels).entry_peak()


def temporary_memory(module: Module) -> int:
    """Bytes one device needs at the worst moment beside arguments and results: what XLA's `memory_analysis` calls
    temporaries.

    >>> import hlosharding.ir as ir
    >>> b = ir.Builder("m")
    >>> main = b.computation("main")
    >>> x = main.parameter(0, ir.Shape.array("f32", (100,)))
    >>> y = main.add("all-gather", ir.Shape.array("f32", (400,)), (x,), dimensions=(0,))
    >>> _ = main.add("slice", ir.Shape.array("f32", (10,)), (y,))
    >>> temporary_memory(b.finish(main))
    1600
    """
    return _Memory(module).entry_peak(temporaries=True).bytes


def host_memory(module: Module) -> int:
    """Bytes one device needs in its host's memory at the worst moment: values that were moved there, inputs and
    results that the user keeps there."""
    inputs, outputs = _kept_on_host(module)
    away = leaves_on_host(module)
    # Without those that the program itself moves.
    outputs -= away.get(module.entry.root, frozenset())
    inputs -= {n for n, parameter in enumerate(module.entry.parameters) if parameter in away}
    leaves = [leaf for p in module.entry.parameters for leaf in p.shape.leaves]
    results = module.entry.root.shape.leaves
    kept = sum(leaves[n].byte_size for n in inputs) + sum(results[n].byte_size for n in outputs)
    return kept + (_Memory(module, on_host=True).entry_peak().bytes if away else 0)


def _kept_on_host(module: Module) -> tuple[set[int], set[int]]:
    """Numbers of the flat inputs and results with a memory kind of the host."""
    signature = module.signature
    kinds = ((), ()) if signature is None else (signature.input_memory, signature.output_memory)
    inputs, outputs = ({n for n, kind in enumerate(side) if kind is not None and "host" in kind} for side in kinds)
    return inputs, outputs


def operand_leaves(op: Instruction, given: int) -> range:
    """Leaves of what a start makes that are other names of so many `given`: (operands, results, context), but that a
    copy has its result first."""
    is_start = op.opcode.endswith("-start") or op.opcode == "send"
    first = 1 if op.opcode == "copy-start" else 0
    return range(first, first + given) if is_start and len(op.shape.leaves) > given else range(0)


class _Memory:
    """Peaks of a module's computations, each computed once: of what lies on the device, or of what lies on the host."""

    def __init__(self, module: Module, *, on_host: bool = False, kernels: Kernels | None = None) -> None:
        self.on_host, self.host_leaves = on_host, leaves_on_host(module)
        self.module = module
        self.kernels = Kernels(module) if kernels is None else kernels
        self.order = schedules(module)
        self.peaks: dict[Computation, int] = {}

    def entry_peak(self, *, temporaries: bool = False) -> Peak:
        return self._best(self.module.entry, self._freed_inputs, temporaries=temporaries)

    def runs_within(self, nbytes: float) -> bool:
        """Does so much do for the order of the text, or of XLA's schedule?"""
        entry = self.module.entry
        order, hidden = self.order.get(entry) or _text_order(entry), self.kernels[entry]
        walk = _BufferWalk(_Buffers(self, entry, order, hidden), order, self._freed_inputs)
        return walk.peak(nbytes) is not None

    @property
    def _freed_inputs(self) -> set[int]:
        # An input that the user keeps on the host is copied to the device: a value like others.
        return _donated_leaves(self.module) | _kept_on_host(self.module)[0]

    def byte_size(self, inst: Instruction) -> int:
        """Of an instruction's arrays, those in the memory that is counted."""
        if not self.host_leaves:
            return 0 if self.on_host else inst.shape.byte_size
        away = self.host_leaves.get(inst, frozenset())
        return sum(leaf.byte_size for n, leaf in enumerate(inst.shape.leaves) if (n in away) == self.on_host)

    def inner_peak(self, computation: Computation, *, owned: bool) -> int:
        """Bytes at the worst moment of a called computation, its parameters included."""
        if computation not in self.peaks:
            leaves = sum(len(p.shape.leaves) for p in computation.parameters)
            self.peaks[computation] = self._best(computation, frees=set(range(leaves)) if owned else set()).bytes
        return self.peaks[computation]

    def _best(self, computation: Computation, frees: set[int], *, temporaries: bool = False) -> Peak:
        hidden = self.kernels[computation]
        scheduled = self.order.get(computation)
        orders = [scheduled] if scheduled else _orders(computation, hidden, frees)
        # Named once for all orders, which took 17 % off the time that a peak takes.
        buffers, best = _Buffers(self, computation, orders[0], hidden), Peak(_FOREVER, "")
        # The last order is mostly the best: the others are given up where they hold more.  Of equal ones the first.
        for order in reversed(orders):
            if temporaries:  # the numbers of buffers tell which of two of one size is placed first
                buffers = _Buffers(self, computation, order, hidden)
            best = _BufferWalk(buffers, order, frees).peak(best.bytes, temporaries=temporaries) or best
        return best

    def inner_bytes(self, op: Instruction) -> int:
        """Bytes an op's computations need beyond its operands and results."""
        if op.opcode == "while":
            parts = while_parts(op)
            return max(0, *(self.inner_peak(part, owned=True) - self.byte_size(part.parameters[0]) for part in parts))
        if op.opcode in ("conditional", "call"):
            return max(0, *(self._beyond(callee) for callee in op.called))
        return 0

    def _beyond(self, callee: Computation) -> int:
        given = sum(self.byte_size(p) for p in callee.parameters) + self.byte_size(callee.root)
        return self.inner_peak(callee, owned=False) - given


def order_by_memory(computation: Computation, hidden: Container[Instruction]) -> Sequence[Instruction]:
    """An order in which what frees memory runs as soon as it can.  `hidden`: values that no kernel writes.

    >>> import hlosharding as hs
    >>> module = hs.load('''HloModule m
    ... ENTRY e {
    ...   x = f32[64] parameter(0)
    ...   first = f32[64,64] broadcast(x), dimensions={0}
    ...   second = f32[64,64] broadcast(x), dimensions={1}
    ...   row = f32[1,64] slice(first), slice={[0:1], [0:64]}
    ...   other = f32[1,64] slice(second), slice={[0:1], [0:64]}
    ...   ROOT sum = f32[1,64] add(row, other)
    ... }''')
    >>> [inst.name for inst in order_by_memory(module.entry, ())]
    ['x', 'first', 'row', 'second', 'other', 'sum']
    """
    return _orders(computation, hidden, ())[-1]


def _orders(
    computation: Computation, hidden: Container[Instruction], frees: Collection[int]
) -> list[Sequence[Instruction]]:
    text, post = _text_order(computation), computation.post_order()
    # A text whose operands stand behind their readers is no order; post order has been taken already.
    if text is not computation.instructions:
        return [text]
    # Where they differ in length something is dead, which post order leaves out.
    some = [text] if post == text or len(post) != len(text) else [text, post]
    owned = _find_owned(computation, frees)
    return [*some, FreeingFirst(some[-1], _ALIASES, hidden, computation, owned).order()]


def _text_order(computation: Computation) -> Sequence[Instruction]:
    text = computation.instructions
    return text if _is_topological(text) else computation.post_order()


def _find_owned(computation: Computation, frees: Collection[int]) -> set[Instruction]:
    """Parameters, and elements of those that are tuples, that the computation may write over."""
    found: set[Instruction] = set()
    start = 0
    for parameter in computation.parameters if frees else ():
        shape = parameter.shape
        if shape.is_tuple:
            elements = (user for user in parameter.users if user.opcode == "get-tuple-element")
            found.update(e for e in elements if start + shape.first_leaves[e.tuple_index] in frees)
        elif start in frees:
            found.add(parameter)
        start += len(shape.leaves)
    return found


def _is_topological(order: Sequence[Instruction]) -> bool:
    seen: set[Instruction] = set()
    for op in order:
        if not seen.issuperset(op.operands):
            return False
        seen.add(op)
    return True


def _donated_leaves(module: Module) -> set[int]:
    """Leaf numbers, over all parameters, that the caller gives away."""
    proto = module.proto
    return {leaf for leaf, _ in _donations(module, [*proto.input_output_alias.entries, *proto.buffer_donor.entries])}


def _result_places(module: Module) -> dict[int, int]:
    """Of the flat results that lie in the place of a donated argument: whose, by leaf numbers."""
    entries = _donations(module, module.proto.input_output_alias.entries)
    return {e.output_shape_index[0] if e.output_shape_index else 0: leaf for leaf, e in entries}


def _donations(module: Module, entries: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """Entries that name a parameter, each with the number, over all parameters, of the leaf that it donates."""
    parameters = module.entry.parameters if entries else ()
    first = [0, *accumulate(len(p.shape.leaves) for p in parameters)]
    for e in entries:
        if e.parameter_number < len(parameters):
            # An index of more than one step would be a tuple within a tuple, which no entry has.
            yield first[e.parameter_number] + (e.parameter_shape_index[0] if e.parameter_shape_index else 0), e


class _Life(NamedTuple):
    """From when to when a buffer is held."""

    buffer: int
    born: int
    last_use: int
    victims: tuple[int, ...]
    """Buffers that it may overwrite."""

    def meets(self, other: _Life) -> bool:
        """Are both held at once, and neither takes the other's place?"""
        return not (self._makes_room_for(other) or other._makes_room_for(self))

    def _makes_room_for(self, other: _Life) -> bool:
        end = max(self.last_use, self.born)
        return end < other.born or (end == other.born and self.buffer in other.victims)


_Made = list[tuple[int, tuple[int, ...]]]
"""Buffers that an op makes, each with those that it may overwrite."""


@dataclass(eq=False)
class _Buffers:
    """Who holds which buffer, in one computation, and who reads it."""

    memory: _Memory
    computation: Computation
    order: Sequence[Instruction]
    """In which they are numbered."""
    hidden: Mapping[Instruction, Reads]

    def __post_init__(self) -> None:
        self.size: list[int] = []
        self.held: dict[Instruction, tuple[int, ...]] = {}
        self.made: dict[Instruction, _Made] = {}
        self.inputs = sum(len(p.shape.leaves) for p in self.computation.parameters)
        self._name_buffers()
        self.read = dict(self._find_read())
        self.results = self.held.get(self.computation.root, ())

    def _new(self, nbytes: int) -> int:
        self.size.append(nbytes)
        return len(self.size) - 1

    def _name_buffers(self) -> None:
        for parameter in self.computation.parameters:
            self.held[parameter] = tuple([self._new(leaf.byte_size) for leaf in parameter.shape.leaves])
        for op in self.order:
            made: _Made = []
            if op in self.hidden or op.opcode in _NO_MEMORY:
                self.held[op] = ()
            elif op.opcode != "parameter":
                self.held[op] = self._results(op, made)
            if made:
                self.made[op] = made
        if self.memory.host_leaves or self.memory.on_host:
            self._count_one_memory()

    def _count_one_memory(self) -> None:
        """Buffers in the other memory take no room in this one."""
        away = {self.held[op][n] for op, leaves in self.memory.host_leaves.items() if self.held.get(op) for n in leaves}
        self.size = [n if (b in away) == self.memory.on_host else 0 for b, n in enumerate(self.size)]

    def _results(self, op: Instruction, made: _Made) -> tuple[int, ...]:
        opcode = op.opcode
        if opcode in _ALIASES or (opcode == "custom-call" and op.custom_call_target in targets.ANNOTATIONS):
            alias = self._alias(op)
            if alias is not None:
                return alias
        if opcode == "while":
            return self._carry(op, made)
        read = find_read_in_place(op, self.hidden) if opcode in POINTWISE else op.operands
        operands = [b for o in read for b in self.held[o]]
        named, out = operand_leaves(op, len(operands)), list[int]()
        for place, leaf in enumerate(op.shape.leaves):
            if place in named:
                out.append(operands[place - named.start])
                continue
            buffer = self._new(leaf.byte_size)
            made.append((buffer, self._overwritable(op, place, operands)))
            out.append(buffer)
        return tuple(out)

    def _alias(self, op: Instruction) -> tuple[int, ...] | None:
        opcode, operands = op.opcode, op.operands
        if opcode == "tuple":
            return tuple(b for o in operands for b in self._whole(o))
        if opcode == "get-tuple-element":
            before = operands[0].shape.first_leaves[op.tuple_index]
            return self.held[operands[0]][before : before + len(op.shape.leaves)]
        # What no kernel wrote can have no other name: this op writes it.
        if operands[0] in self.hidden:
            return None
        held, count = self.held[operands[0]], len(op.shape.leaves)
        if not opcode.endswith("-done") or len(held) <= count:
            return held[:count]
        start = _find_start(operands[0])
        first = 0 if start.opcode == "copy-start" else sum(len(o.shape.leaves) for o in start.operands)
        return held[first : first + count]

    def _whole(self, op: Instruction) -> tuple[int, ...]:
        """Buffers of an element of a tuple, one per leaf, also where nothing is held (tokens, scalars)."""
        held, leaves = self.held[op], op.shape.leaves
        return held if len(held) == len(leaves) else tuple(self._new(0) for _ in leaves)

    def _carry(self, loop: Instruction, made: _Made) -> tuple[int, ...]:
        """A loop's result: what the body never changes is its initial value, the rest may overwrite it."""
        initial = self._whole(loop.operands[0])
        same = _unchanged_leaves(while_parts(loop)[0])
        out: list[int] = []
        for place, (buffer, leaf) in enumerate(zip(initial, loop.shape.leaves, strict=True)):
            if place in same:
                out.append(buffer)
                continue
            out.append(self._new(leaf.byte_size))
            made.append((out[-1], (buffer,)))
        return tuple(out)

    def _overwritable(self, op: Instruction, place: int, operands: list[int]) -> tuple[int, ...]:
        opcode = op.opcode
        if opcode in POINTWISE:
            return tuple(operands)
        if opcode in _OVERWRITES_SAME:
            return tuple(operands[place : place + 1])
        if opcode in _OVERWRITES_FIRST:
            return self.held[op.operands[0]]
        if opcode == "fusion":
            dims = op.shape.leaves[place].dims
            return tuple(b for o in op.operands if o.shape.dims == dims for b in self.held[o])
        if opcode == "custom-call":
            pairs = [(list(a.output_shape_index), a.operand_index) for a in op.proto.output_operand_aliasing]
            return tuple(b for out, n in pairs if out in ([], [place]) for b in self.held[op.operands[n]])
        return ()

    def _find_read(self) -> Iterator[tuple[Instruction, Collection[int]]]:
        """The buffers that an op reads: what is computed where it is read reads its operands there."""
        held, hidden = self.held, self.hidden
        inside: dict[Instruction, Collection[int]] = {}
        for op in self.order:
            if op.opcode == "get-tuple-element":
                read = held[op]
            else:
                some = [found for o in op.operands if (found := inside[o] if o in hidden else held[o])]
                read = some[0] if len(some) == 1 else dict.fromkeys(chain(*some)) if some else ()
            if op in hidden:
                inside[op] = read
            if read and (op not in hidden or not op.users):
                yield op, read


class _BufferWalk:
    """A computation in one order: how long each buffer is held, then how much at once."""

    def __init__(self, buffers: _Buffers, order: Sequence[Instruction], frees: set[int]) -> None:
        self.buffers, self.order = buffers, order
        self.kept = set(range(buffers.inputs)) - frees
        self.last_use = self._find_last_uses()

    def _find_last_uses(self) -> list[int]:
        last_use, read, buffers = [-1] * len(self.buffers.size), self.buffers.read, self.buffers
        for now, op in enumerate(self.order):
            for buffer in read.get(op, ()):
                last_use[buffer] = now
        leaving = _kept_on_host(buffers.memory.module)[1] if buffers.computation.is_entry else ()
        for place, buffer in enumerate(buffers.results):
            if place not in leaving:  # results for the host leave as soon as they are there
                last_use[buffer] = _FOREVER
        return last_use

    def _temporaries(self) -> list[int]:
        """Sizes, with arguments and results as nothing, and what lies in the place of a result before that is made, or
        behind the argument whose place it is.

        As XLA's BufferAssigner does it: the largest first, each where it fits and meets nobody.
        """
        inputs, size, last_use = self.buffers.inputs, self.buffers.size, self.last_use
        made = [(now, *each) for now, op in enumerate(self.order) for each in self.buffers.made.get(op, ())]
        born = {buffer: now for now, buffer, _ in made}
        victims = {buffer: found for _, buffer, found in made}
        results = {b: n for n, b in enumerate(self.buffers.results) if b >= inputs}
        lives = {b: _Life(b, born[b], last_use[b], victims[b]) for b in born}
        arguments = {n: _Life(a, 0, last_use[a], ()) for n, a in _result_places(self.buffers.memory.module).items()}
        first = {b: [lives[b], *filter(None, [arguments.get(results[b])])] for b in results.keys() & born.keys()}
        places = [(size[b], first[b]) for b in sorted(first, key=size.__getitem__)]
        sizes = [0 if b < inputs or b in results else nbytes for b, nbytes in enumerate(size)]
        for buffer in sorted(born, key=lambda b: -sizes[b]):
            life = lives[buffer]
            there = [held for nbytes, held in places if nbytes >= sizes[buffer] > 0]
            place = next((held for held in there if not any(life.meets(other) for other in held)), None)
            if place is not None:
                place.append(life)
                sizes[buffer] = 0
        return sizes

    def peak(self, most: float, *, temporaries: bool = False) -> Peak | None:
        """The worst moment; None where more than `most` is held."""
        memory, made_by, last_use, inputs = self.buffers.memory, self.buffers.made, self.last_use, self.buffers.inputs
        # A copy: places that are taken over change their sizes, and other orders read the same buffers.
        self.size = self._temporaries() if temporaries else [*self.buffers.size]
        self.alive = set(range(inputs))
        dying: dict[int, list[int]] = {}
        for buffer, moment in enumerate(last_use):
            if buffer not in self.kept:
                dying.setdefault(moment, []).append(buffer)
        live, at = sum(self.size[:inputs]), ""
        worst = live
        for now, op in enumerate(self.order):
            made, dead = made_by.get(op, ()), dying.get(now, ())
            if made or op.called:
                live += sum([self._bytes_taken(now, *each) for each in made])
                held = live + (memory.inner_bytes(op) if op.called else 0)
                if held > worst:
                    worst, at = held, op.name
                if worst > most:
                    return None
                # What nobody reads dies where it is made: no moment's list has it.
                dead = (*dead, *(b for b, _ in made if last_use[b] < now))
            # Those whose place was taken over are alive no longer, and give nothing back.
            for buffer in self.alive.intersection(dead) if dead else ():
                self.alive.discard(buffer)
                live -= self.size[buffer]
        return Peak(worst, at) if worst <= most else None

    def _bytes_taken(self, now: int, buffer: int, victims: Sequence[int]) -> int:
        """What there is more when a buffer is made; none where it takes the place of one that dies there."""
        size, needed = self.size, self.size[buffer]
        self.alive.add(buffer)
        for victim in victims:
            is_dying = self.last_use[victim] <= now and victim not in self.kept and size[victim] >= needed > 0
            if is_dying and victim in self.alive:
                self.alive.discard(victim)
                # The place stays as large as it was: what is left of it nobody else gets until the new one dies.
                size[buffer] = size[victim]
                return 0
        return needed


def _find_start(op: Instruction) -> Instruction:
    """The start of an asynchronous op, from one of its updates or itself."""
    while op.opcode == "async-update":
        op = op.operands[0]
    return op


def _unchanged_leaves(body: Computation) -> set[int]:
    """Leaves of the carry that the body hands on as they came (elements that are arrays)."""
    first = body.root.shape.first_leaves
    numbers = (n for n in range(len(body.root.operands)) if hands_on(body, n))
    return {leaf for n in numbers for leaf in range(first[n], first[n + 1])}
