"""Before the walk: ops in the one form that it takes.  What two ops start and end becomes the one op that they wrap;
what a fusion computes stands in its place; start indices in one vector become scalars; `mulhi`, which neither StableHLO
nor every JAX can say, becomes products of halves; a size set to all that there is, and a join with nothing, become
copies.  Along split dims, updates and look-ups at known places lose their indices (`updates`), ops on slices are done
where their result will be (`in_place`), and running reductions become those of tiles (`running_totals`).

Floor: partitioner.  Works on a clone: propagation read the module as it was loaded, as XLA's does.  The value keeps the
name and the sharding of the op that gave it.
"""

from __future__ import annotations

from collections.abc import Callable

from hlosharding.errors import PartitionError
from hlosharding.ir import FIRST_INDEX, Instruction, Module, Shape, SliceDim, rewrite, sets_full_size
from hlosharding.partitioner.plain_forms.in_place import IN_PLACE, in_place_form
from hlosharding.partitioner.plain_forms.running_totals import running_totals_form
from hlosharding.partitioner.plain_forms.updates import lookup_form, update_form
from hlosharding.partitioner.plain_forms.writer import Form, Fresh, Writer

_DONE = {"async-start": "async-done"} | {
    f"{op}-start": f"{op}-done" for op in ("all-gather", "all-reduce", "collective-permute", "copy")
}
_ENDS = frozenset(_DONE.values()) | {"async-update"}


def in_plain_forms(module: Module) -> Module:
    """The same program without asynchronous pairs, fusions and the like; `module` if it has none.

    Raises PartitionError where a start has not exactly one end.

    >>> import hlosharding as hs
    >>> module = hs.load('''HloModule m
    ... f { p = f32[4] parameter(0)  ROOT n = f32[4] negate(p) }
    ... ENTRY e {
    ...   x = f32[4] parameter(0)  s = ((f32[4]), f32[4], u32[]) async-start(x), calls=f
    ...   ROOT d = f32[4] async-done(s), calls=f
    ... }''')
    >>> in_plain_forms(module).entry.root
    %d = f32[4] negate(%x)
    """
    # Only ops that may need one are asked: the walk over all instructions is for programs in which one does.
    special = module.of_opcodes(*_SPECIAL)
    if not any(inst.opcode in _ENDS or _form_of(inst) for inst in special):
        return module
    made = module.clone()
    fresh = Fresh(made)
    # What a fusion or an asynchronous op wrapped may be in need of a form itself.
    while changes := [i for c in made.computations for i in c.instructions if _form_of(i)]:
        for inst in changes:
            form = _form_of(inst)  # asked again: a change before it may have made it needless
            if form is not None:
                form(Writer(inst, fresh))
    rewrite.dead_code(made)
    made.renumber()
    left = next((i for i in made.instructions if i.opcode in _ENDS), None)
    if left is not None:
        raise PartitionError(f"{left.opcode} of no start", where=left.where)
    return made


def _form_of(inst: Instruction) -> Form | None:
    """What puts an op into the plain form; None for those that are in it, or go with their start."""
    form = _FORMS.get(inst.opcode)
    if form is not None:
        return form
    find = _FORMS_OF_SOME.get(inst.opcode)
    if find is not None and (form := find(inst)) is not None:
        return form
    first = FIRST_INDEX.get(inst.opcode)
    has_vector = first is not None and len(inst.operands) == first + 1 and inst.operands[first].shape.rank == 1
    return _index_by_scalars if has_vector else None


# Asynchronous pairs and fusions


def _end_at_once(write: Writer) -> None:
    """The op between start and done, where the start was: nothing that it reads changes until it is done."""
    start = write.inst
    done = _end_of(start)
    name, sharding = done.name, start.module.shardings.pop(done.id, None)
    rewrite.replace_uses(done, start)
    while done is not start:
        before = done.operands[0]
        rewrite.remove(done)
        done = before
    start.module.shardings.pop(start.id, None)
    if sharding is not None:
        start.module.shardings[start.id] = sharding
    rewrite.rename(start, name)
    if start.opcode == "async-start":
        _inline(write)
    else:
        shape = start.shape if start.opcode == "all-reduce-start" else start.shape.tuple_shapes[_RESULT[start.opcode]]
        rewrite.change_kind(start, start.opcode.removesuffix("-start"), shape)


_RESULT = {"all-gather-start": 1, "collective-permute-start": 1, "copy-start": 0}
"""Which part of what a start makes is the result."""


def _end_of(start: Instruction) -> Instruction:
    found = start
    while len(found.users) == 1 and not found.is_root and found.users[0].opcode == "async-update":
        found = found.users[0]
    wanted = _DONE[start.opcode]
    if len(found.users) != 1 or found.is_root or found.users[0].opcode != wanted:
        raise PartitionError(
            f"{start.opcode} is not read by exactly one {wanted}",
            where=start.where,
            remedy="let one read the start, or its last update, and nothing else",
        )
    return found.users[0]


def _inline(write: Writer) -> None:
    """The ops that a computation consists of, in the place of the one that runs it."""
    inst, callee = write.inst, write.inst.called[0]
    new: dict[Instruction, Instruction] = {}
    for inner in callee.instructions:
        is_given = inner.opcode == "parameter"
        operands = [] if is_given else [new[o] for o in inner.operands]
        new[inner] = inst.operands[inner.parameter_number] if is_given else write.copy(inner, operands)
    write.replace_by(new[callee.root])


# Start indices


def _index_by_scalars(write: Writer) -> None:
    inst = write.inst
    first = FIRST_INDEX[inst.opcode]
    vector = inst.operands[first]
    scalar = Shape.array(vector.shape.element_type)
    cuts = [write("slice", vector, slice_dims=(SliceDim(n, n + 1, 1),)) for n in range(vector.shape.dims[0])]
    rewrite.set_operands(inst, (*inst.operands[:first], *[write("reshape", cut, shape=scalar) for cut in cuts]))


# Sizes


def _full_size_form(inst: Instruction) -> Form | None:
    """A size that is set to all that there is changes nothing: TensorFlow sets those of every top k."""
    return _as_copy if sets_full_size(inst) else None


def _concatenation_form(inst: Instruction) -> Form | None:
    """Operands without elements go: TensorFlow mirrors dims by no places, too, and joins what comes of it."""
    is_empty = [0 in operand.shape.dims for operand in inst.operands]
    return _without_empty if any(is_empty) and not all(is_empty) else in_place_form(inst)


def _without_empty(write: Writer) -> None:
    inst = write.inst
    rewrite.set_operands(inst, [o for o in inst.operands if 0 not in o.shape.dims])
    if len(inst.operands) == 1:
        _as_copy(write)


def _as_copy(write: Writer) -> None:
    write.replace_by(write("copy", write.inst.operands[0], sharding=write.sharding))


# The high half of a product


def _by_halves(write: Writer) -> None:
    """(ah 2^n + al)(bh 2^n + bl) without its low half, in words of 2n bits; products that overflow wrap around."""
    a, b = write.inst.operands
    bits = Shape.array(a.shape.element_type).bits
    half, mask = write.number(bits // 2), write.number((1 << bits // 2) - 1)
    al, bl = write("and", a, mask), write("and", b, mask)
    ah, bh = write("shift-right-logical", a, half), write("shift-right-logical", b, half)
    crossed = write("multiply", al, bh), write("multiply", ah, bl)
    # The high half of one product and the low halves of two: even all together they stay below 2^2n.
    carried = write("shift-right-logical", write("multiply", al, bl), half)
    for product in crossed:
        carried = write("add", carried, write("and", product, mask))
    high = write("multiply", ah, bh)
    for part in (*crossed, carried):
        high = write("add", high, write("shift-right-logical", part, half))
    if a.shape.element_type.startswith("s"):
        # As numbers without sign, a negative one is 2^2n too large.
        zero = write.number(0)
        for one, other in ((a, b), (b, a)):
            negative = write("compare", one, zero, comparison_direction="LT")
            high = write("subtract", high, write("select", negative, other, zero))
    write.replace_by(high)


_FORMS: dict[str, Form] = {
    **dict.fromkeys(_DONE, _end_at_once),
    "fusion": _inline,
    "mulhi": _by_halves,
}

_FORMS_OF_SOME: dict[str, Callable[[Instruction], Form | None]] = {
    **dict.fromkeys(IN_PLACE, in_place_form),
    "concatenate": _concatenation_form,
    "gather": lookup_form,
    "reduce-window": running_totals_form,
    "scatter": update_form,
    "set-dimension-size": _full_size_form,
}
"""What finds the form of one op, where it is split, or does nothing."""

_SPECIAL = frozenset(_FORMS) | frozenset(_FORMS_OF_SOME) | _ENDS | frozenset(FIRST_INDEX)
"""Opcodes that may need one."""
