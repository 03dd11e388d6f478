"""Which values a fusing compiler never writes to memory: the difference between HLO as text and HLO as kernels.

Floor: cost.  A guess in the spirit of XLA's instruction and priority fusion, the same for every program: cheap
producers disappear into the kernels that read them, where fewer bytes move so, and so does what one kernel alone reads.
On accelerators a kernel may keep the rows that it reduces (a softmax, a norm), and write several results
(`kernels.py`).  A module that XLA has fused already is taken as it stands.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from math import prod

from hlosharding.cost.work import PART_READERS
from hlosharding.ir import ELEMENTWISE, RENAMES, TRANSCENDENTAL, Computation, Instruction, Module

POINTWISE = ELEMENTWISE | {"map"}
"""Ops that make each element of the same elements of their operands."""
_PART = frozenset({"broadcast", "dynamic-slice", "iota", "reverse", "slice", "transpose"})
_CHEAP = (ELEMENTWISE - TRANSCENDENTAL) | _PART
_ONCE = TRANSCENDENTAL | frozenset({"concatenate", "copy", "divide", "gather", "pad", "remainder"})
"""Fused where there is a single reader; nobody computes these twice."""
_READERS = _CHEAP | _ONCE | {"map", "reduce"}
_IN_PLACE = frozenset({"dynamic-update-slice", "scatter"})
"""They read all but what they write into."""
_READS_TRANSPOSED = frozenset({"convolution", "dot"})
"""Products read their operands in any layout."""
_MOST_READ = 96
"""Arrays that one kernel reads, as XLA bounds it (`MaxOperandsAndOutputsPerFusion`).  Two of Llama's layers are priced
the same with 24 and with 192."""

Reads = dict[Instruction, int]
"""Values in memory, and how many bytes a kernel reads of each."""
_LONGEST_ROW = 16_384
"""Of a row that a kernel keeps, elements: in f32 a quarter of a multiprocessor's registers (64 Ki words).  A softmax
over rows of 16,384 between two products of 8 heads is priced at 5.7 ms on an H100 as it is, at 8.6 where half is the
bound; rows of 32,768 at 34, and at 23 where twice as many are."""


def is_fused(module: Module) -> bool:
    """Has XLA fused this module already?"""
    return bool(module.of_opcodes("fusion"))


def find_hidden(computation: Computation, *, is_accelerator: bool = False) -> dict[Instruction, Reads]:
    """Instructions whose values need no memory of their own, and what a kernel reads that computes them.

    `is_accelerator`: where reading memory is dearer than computing a root again, and a kernel may reduce its rows and
    go on with them.

    >>> import hlosharding.ir as ir
    >>> b = ir.Builder("m")
    >>> main = b.computation("main")
    >>> x = main.parameter(0, ir.Shape.array("f32", (8,)))
    >>> y = main.add("negate", x.shape, (x,))
    >>> z = main.add("abs", x.shape, (y,))
    >>> _ = b.finish(main)
    >>> {i.name: reads == {x: 32} for i, reads in find_hidden(main.computation).items()}
    {'negate': True}
    """
    hidden = _find_recomputed(computation, _CHEAP | TRANSCENDENTAL if is_accelerator else _CHEAP)
    more = _find_read_by_one(computation, hidden, is_accelerator=is_accelerator)
    if not more:
        return hidden
    return hide_more(computation, hidden, more)


def hide_more(
    computation: Computation, hidden: dict[Instruction, Reads], more: Container[Instruction]
) -> dict[Instruction, Reads]:
    """`hidden`, with further values that are not in memory: what is read to compute each then."""
    found: dict[Instruction, Reads] = {}
    changed: set[Instruction] = set()
    for op in computation.instructions:
        is_new = op in more or (op.opcode in RENAMES and op.operands[0] in found and op not in hidden)
        if is_new or (op in hidden and not changed.isdisjoint(op.operands)):
            found[op] = kernel_reads(op, found)
            changed.add(op)
        elif op in hidden:
            found[op] = hidden[op]
    return found


def _find_recomputed(computation: Computation, cheap: Container[str]) -> dict[Instruction, Reads]:
    """Values that each of their readers computes for itself.  `cheap`: ops that several may compute."""
    root = computation.root
    hidden: dict[Instruction, Reads] = {}
    for i in computation.instructions:
        if i is root:
            continue
        if i.opcode in RENAMES:
            if i.operands[0] in hidden:
                hidden[i] = hidden[i.operands[0]]
        elif i.opcode == "constant":
            # A scalar stands in the kernel's code; an array lies in memory.
            if not i.shape.dims:
                hidden[i] = {}
        elif i.opcode in cheap or i.opcode in _ONCE:
            readers = _kernels_that_read(i, root)
            if readers == 1 or (readers and i.opcode in cheap):
                reads = kernel_reads(i, hidden)
                # Where every cheap value was computed in each reader, the residual stream kept the products of all
                # layers: 7 GB of GPT-2 13B on 16 V100s, which no compiler holds.
                if len(reads) <= _MOST_READ and _moves_less(sum(reads.values()), i.shape.byte_size, readers):
                    hidden[i] = reads
    return hidden


def _find_read_by_one(
    computation: Computation, hidden: Mapping[Instruction, Reads], *, is_accelerator: bool
) -> set[Instruction]:
    """Further values that one kernel alone reads, however often: it computes them on its way."""
    found: set[Instruction] = set()
    root, nobody = computation.root, frozenset[Instruction]()
    kernels: dict[Instruction, frozenset[Instruction]] = {}
    """Of each value, the ops with which the kernels that read it end."""
    for i in reversed(computation.instructions):
        inside, users = i in hidden or i.opcode in RENAMES, i.users
        readers = kernels[users[0]] if len(users) == 1 else nobody.union(*[kernels[user] for user in users])
        if not inside and len(readers) == 1 and i is not root:
            inside = _fits(i, next(iter(readers)), is_accelerator=is_accelerator)
            if inside:
                found.add(i)
        kernels[i] = readers if inside and i is not root else frozenset({i})
    return found


def _fits(value: Instruction, kernel: Instruction, *, is_accelerator: bool) -> bool:
    """May a kernel that makes one element of `kernel` at a time compute a value on its way?"""
    if kernel.opcode not in POINTWISE and kernel.opcode != "reduce":
        return False
    if value.opcode in POINTWISE:
        return value.shape.size == num_elements(kernel)
    return is_accelerator and is_of_rows(value) and num_elements(value) == kernel.shape.size


def num_elements(kernel: Instruction) -> int:
    """Elements that a kernel goes over."""
    return kernel.operands[0].shape.size if kernel.opcode == "reduce" else kernel.shape.size


def is_of_rows(op: Instruction) -> bool:
    """Does it reduce the last dims, so few elements of them that a kernel can keep them?"""
    if op.opcode != "reduce" or op.shape.is_tuple:
        return False
    dims = op.operands[0].shape.dims
    reduced = sorted(op.dimensions)
    is_last = reduced == list(range(len(dims) - len(reduced), len(dims)))
    return is_last and prod(dims[n] for n in reduced) <= _LONGEST_ROW


def kernel_bytes(
    op: Instruction, nbytes: float, hidden: Mapping[Instruction, Reads], before: Collection[Instruction] = ()
) -> float:
    """What the kernel that ends in `op` moves, of which the op alone takes `nbytes`; 0 for one inside a kernel.

    `before`: what is read, or made, by a kernel that is one with it.
    """
    operands = op.operands
    if op in hidden:
        return 0.0
    if not before and hidden.keys().isdisjoint(operands) and not any(o.opcode == "broadcast" for o in operands):
        return nbytes
    for place, operand in enumerate(operands):
        if operand in hidden or operand in before or _is_made_anew(op, operand, hidden):
            nbytes -= _share(op, place) * operand.shape.byte_size
    reads = kernel_reads(op, hidden).items()
    return max(0.0, nbytes) + sum([n for source, n in reads if source not in operands and source not in before])


def find_ops_inside(op: Instruction, hidden: Container[Instruction]) -> set[Instruction]:
    """The `hidden` ops that the kernel which ends in `op` computes on its way."""
    found: set[Instruction] = set()
    waiting = [op]
    for reader in waiting:
        for operand in reader.operands:
            if operand in hidden and operand not in found:
                found.add(operand)
                waiting.append(operand)
    return found


def find_read_in_place(op: Instruction, hidden: Mapping[Instruction, Reads]) -> list[Instruction]:
    """Values of which the kernel that ends in `op` reads the element that it writes, and no other: it may write there.

    >>> import hlosharding.ir as ir
    >>> b = ir.Builder("m")
    >>> main = b.computation("main")
    >>> x, y = (main.parameter(n, ir.Shape.array("f32", (8, 8))) for n in range(2))
    >>> z = main.add("negate", x.shape, (x,))
    >>> turned = main.add("transpose", x.shape, (y,), dimensions=(1, 0))
    >>> find_read_in_place(main.add("add", x.shape, (z, turned)), {z: {x: 256}, turned: {y: 256}})
    [%param_0 = f32[8,8] parameter()]
    """
    if hidden.keys().isdisjoint(op.operands):
        return list(dict.fromkeys(op.operands))
    found: dict[Instruction, None] = {}
    elsewhere: set[Instruction] = set()
    waiting, seen = [op], {op}
    while waiting:
        for operand in waiting.pop().operands:
            if operand not in hidden:
                found[operand] = None
            elif operand.opcode not in POINTWISE:
                elsewhere.update(hidden[operand])
            elif operand not in seen:
                seen.add(operand)
                waiting.append(operand)
    return [value for value in found if value not in elsewhere]


def kernel_reads(op: Instruction, hidden: Mapping[Instruction, Reads]) -> Reads:
    """Of the kernel that ends in `op`: operands in memory, and what is read to compute those that are not.

    For reading: what is read for a single operand's sake is the operand's own.
    """
    reads: Reads = {}
    is_own = False
    for place, operand in enumerate(op.operands):
        found = hidden.get(operand)
        if found is None:
            found = {operand: 0 if _is_made_anew(op, operand, hidden) else operand.shape.byte_size}
        if not place and op.opcode in PART_READERS:
            share = _share(op, place)
            found = {source: int(share * nbytes) for source, nbytes in found.items()}
        if not reads:
            reads = found
            continue
        # It may be what `hidden` has of the first operand: copied before it is added to, and only then.
        if not is_own:
            reads, is_own = {**reads}, True
        for source, nbytes in found.items():
            if nbytes > reads.get(source, -1):
                reads[source] = nbytes
    return reads


def _is_made_anew(op: Instruction, operand: Instruction, hidden: Mapping[Instruction, Reads]) -> bool:
    """Does the kernel of `op` make one number everywhere for itself, which lies in memory for another reader's sake?

    Zeros that scatters add into were read, not made, by each relu: 37 us of 2,127 for each of a graph's layers.
    """
    return operand.opcode == "broadcast" and op.opcode in _READERS and hidden.get(operand.operands[0]) == {}


def _share(op: Instruction, place: int) -> float:
    """The part of an operand that an op reads."""
    if place or op.opcode not in PART_READERS:
        return 1.0
    return min(1.0, op.shape.size / max(1, op.operands[0].shape.size))


def _moves_less(read: int, written: int, readers: int) -> bool:
    """Are fewer bytes moved where all readers compute a value again than where it is written and read?"""
    return readers * read < read + written + readers * written


def _kernels_that_read(i: Instruction, root: Instruction) -> int:
    """How many readers could compute the value themselves; 0 where one of them cannot."""
    readers = 0
    names = [i]
    for value in names:
        for user in value.users:
            if user.opcode in _READERS or _reads_in_kernel(user, value, i.opcode):
                readers += 1
            elif user.opcode not in RENAMES or user is root:
                return 0
            else:
                names.append(user)
    return readers


def _reads_in_kernel(reader: Instruction, value: Instruction, opcode: str) -> bool:
    if reader.opcode in _IN_PLACE:
        return reader.operands[0] is not value
    return reader.opcode in _READERS or (opcode == "transpose" and reader.opcode in _READS_TRANSPOSED)
