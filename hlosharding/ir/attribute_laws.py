"""What must hold of an op's operands and attributes before its shape is asked for: how many, of what kind, which dims.

Floor: ir.  One law an opcode or family, as XLA's parser, ShapeInference and verifier state it.  Says nothing of the
result's shape: `shape_inference` and `shape_laws` do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hlosharding.ir import custom_call_targets as targets
from hlosharding.ir.attributes import DotDims
from hlosharding.ir.graph import Computation, Instruction
from hlosharding.ir.group_mode import fault_of_ids, group_mode, named_things
from hlosharding.ir.opcode import ALL_OPCODES, COLLECTIVES_AND_STARTS, NUM_OPERANDS
from hlosharding.ir.shape import Shape

Law = Callable[[Instruction], str | None]
"""What is wrong with an instruction, or None."""


def fault_of_attributes(inst: Instruction) -> str | None:
    """What is wrong with an instruction's operands or attributes, or None.

    >>> from hlosharding.ir import Builder, Shape
    >>> main = Builder("m").computation("main")
    >>> x = main.parameter(0, Shape.parse("f32[4,8]"))
    >>> fault_of_attributes(main.add("reverse", x.shape, (x,), dimensions=(2,)))
    'dim 2 is not one of the 2 dims of f32[4,8]'
    """
    count = NUM_OPERANDS.get(inst.opcode, len(inst.operands))
    if len(inst.operands) != count:
        return f"it has {_counted(len(inst.operands), 'operand')} and takes {count}"
    if inst.opcode in _OF_ARRAYS and (fault := _no_array(inst)) is not None:
        return fault
    law = LAWS.get(inst.opcode)
    try:
        if inst.opcode in COLLECTIVES_AND_STARTS and (fault := _fault_of_participants(inst)) is not None:
            return fault
        return None if law is None else law(inst)
    # Laws index and pair what a file says as if it fitted: where it does not, that is the fault.
    except (IndexError, ValueError):
        return "its attributes do not fit its operands"


def _no_array(inst: Instruction) -> str | None:
    other = next((o for o in inst.operands if not o.shape.is_array), None)
    return other and f"operand %{other.name} is no array"


_OF_ARRAYS = ALL_OPCODES - frozenset(
    "add-dependency after-all all-gather-done all-gather-start all-reduce-done async-done async-start async-update"
    " bitcast call collective-permute collective-permute-done collective-permute-start conditional copy copy-done"
    " copy-start custom-call domain fusion get-tuple-element infeed opt-barrier outfeed recv recv-done send send-done"
    " tuple while".split()
)
"""Ops that take no tuples and no tokens."""


def _fault_of_participants(inst: Instruction) -> str | None:
    """Do its ids name each replica, partition or device once, and none that the module says is not there?

    As XLA's verifier; where a module is for one, nobody looks at the others.
    """
    columns = {
        "in its replica groups": [number for group in inst.replica_groups for number in group],
        "among its sources": [source for source, _ in inst.source_target_pairs],
        "among its targets": [target for _, target in inst.source_target_pairs],
    }
    count, noun = named_things(group_mode(inst), inst.module.num_partitions, inst.module.num_replicas)
    limit = count if count > 1 else None
    fault = first_fault(*(fault_of_ids(ids, limit, noun, where) for where, ids in columns.items()))
    return fault and f"it has {fault}"


def first_fault(*faults: str | None) -> str | None:
    """The first that is one."""
    return next((fault for fault in faults if fault is not None), None)


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _dims(dims: Iterable[int], of: Instruction, rank: int | None = None, *, what: str = "dim") -> str | None:
    """Are they distinct dims of an operand (or of `rank` dims)?"""
    count, given = of.shape.rank if rank is None else rank, list(dims)
    wrong = next((d for d in given if not 0 <= d < count), None)
    if wrong is not None:
        return f"{what} {wrong} is not one of the {count} dims of {of.shape}"
    return f"{what}s {given} hold one twice" if len(set(given)) < len(given) else None


def _one_dim(inst: Instruction) -> str | None:
    dims = inst.dimensions
    if len(dims) != 1:
        return f"it names {_counted(len(dims), 'dim')} and takes one"
    return _dims(dims, inst.operands[0]) if inst.operands else "it has no operands"


def _some_dims(inst: Instruction) -> str | None:
    return _dims(inst.dimensions, inst.operands[0])


def _ascending(dims: Sequence[int], what: str) -> str | None:
    return None if list(dims) == sorted(set(dims)) else f"{what} {list(dims)} are not in ascending order"


# Callees


def _takes(callee: Computation, count: int) -> str | None:
    found = len(callee.parameters)
    return None if found == count else f"%{callee.name} takes {_counted(found, 'value')}, not {count}"


def _scalars(callee: Computation) -> str | None:
    other = next((p for p in callee.parameters if not p.shape.is_array or p.shape.dims), None)
    return None if other is None else f"%{callee.name} takes {other.shape}, not a scalar"


def _reducer(callee: Computation, count: int) -> str | None:
    """One result for each two of its scalars."""
    made = callee.root.shape.leaves
    fault = first_fault(_takes(callee, 2 * count), _scalars(callee))
    if fault is not None or len(made) != count:
        return fault or f"%{callee.name} makes {_counted(len(made), 'value')}, not {count}"
    pairs = zip(callee.parameters[:count], made, strict=True)
    other = next((p for p, leaf in pairs if not _are_one_type(p.shape, leaf)), None)
    return other and f"%{callee.name} takes {other.shape} as parameter {other.parameter_number}, and makes another type"


def _are_one_type(one: Shape, other: Shape) -> bool:
    """Of floating types XLA lets a reducer take any."""
    return one is other or (one.is_floating and other.is_floating)


def _folds(inst: Instruction) -> str | None:
    """Values, as many initial ones, and a reducer of both."""
    count, odd = divmod(len(inst.operands), 2)
    if odd or not count:
        return f"it has {_counted(len(inst.operands), 'operand')}: values and as many initial ones are taken"
    first, *others = inst.operands[:count]
    uneven = next((o for o in others if o.shape.dims != first.shape.dims), None)
    start = next((o for o in inst.operands[count:] if o.shape.dims), None)
    return first_fault(
        uneven and f"operand %{uneven.name} is {uneven.shape}, %{first.name} is {first.shape}",
        start and f"the initial value %{start.name} is no scalar",
        _reducer(inst.called[0], count),
    )


def _reduce(inst: Instruction) -> str | None:
    # Both are looked for before one is told: each has to bear what the other finds.
    return first_fault(_folds(inst), _some_dims(inst) if inst.operands else None)


def _reduce_window(inst: Instruction) -> str | None:
    return first_fault(_folds(inst), _window(inst) if inst.operands else None)


def _window(inst: Instruction) -> str | None:
    """Of one dim for each of the operand's, each with steps forward."""
    rank = inst.operands[0].shape.rank
    if len(inst.window) != rank:
        return f"the window has {_counted(len(inst.window), 'dim')}, %{inst.operands[0].name} {rank}"
    return _positive_window(inst)


def _positive_window(inst: Instruction) -> str | None:
    for number, w in enumerate(inst.window):
        if min(w.size, w.stride, w.base_dilation, w.window_dilation) < 1:
            return f"dim {number} of the window has a size, stride or dilation below 1"
    return None


def _select_and_scatter(inst: Instruction) -> str | None:
    source, start = inst.operands[1].shape, inst.operands[2].shape
    return first_fault(
        f"the source is {source}" if source.rank != inst.operands[0].shape.rank else None,
        f"the initial value is {start}" if start.dims else None,
        _window(inst),
        *[_takes(callee, 2) for callee in inst.called[:2]],
        *[_scalars(callee) for callee in inst.called[:2]],
    )


def _map(inst: Instruction) -> str | None:
    if not inst.operands:
        return "it has no operands"
    return first_fault(_takes(inst.called[0], len(inst.operands)), _scalars(inst.called[0]))


def _sort(inst: Instruction) -> str | None:
    return first_fault(_one_dim(inst), _takes(inst.called[0], 2 * len(inst.operands)), _scalars(inst.called[0]))


def _adds_up(inst: Instruction) -> str | None:
    """A collective with a reducer of two scalars."""
    return first_fault(None if inst.operands else "it has no operands", _reducer(inst.called[0], 1))


def _reduce_scatter(inst: Instruction) -> str | None:
    return first_fault(_adds_up(inst), _one_dim(inst))


def _scan(inst: Instruction) -> str | None:
    carries = int(inst.proto.num_carries)
    if not 0 <= carries <= min(len(inst.operands), len(inst.shape.leaves)):
        return f"it has {carries} carries of {_counted(len(inst.operands), 'operand')}"
    step, made = inst.called[0], inst.shape.leaves
    results = step.root.shape.leaves
    fits = len(results) == len(made)
    what = None if fits else f"%{step.name} makes {_counted(len(results), 'value')}, not {len(made)}"
    sliced = inst.operands[: len(inst.operands) - carries]
    dims = "it names no dim" if not inst.dimensions else None
    fault = first_fault(dims, _takes(step, len(inst.operands)), what, *[_dims(inst.dimensions, o) for o in sliced])
    if fault is not None:
        return fault
    slices = [(o.shape, p.shape) for o, p in zip(sliced, step.parameters, strict=False)]
    return _rows(inst.dimensions[0], [*slices, *zip(made[: len(made) - carries], results, strict=False)])


def _rows(dim: int, slices: Sequence[tuple[Shape, Shape]]) -> str | None:
    """Is the second of each pair a row of the first along the dim, and are there as many rows of all?"""
    if not slices:
        return "it has neither slices nor stacks, which say how often its step runs"
    length = slices[0][0].dims[dim]
    for whole, part in slices:
        dims = (*part.dims[:dim], length, *part.dims[dim:])
        if dim < 0 or whole.dims != dims or whole.element_type != part.element_type:
            return f"a row of {whole} along dim {dim}, of {length} rows, is no {part}"
    return None


def _wraps(inst: Instruction) -> str | None:
    """A fusion or a start: what it calls takes its operands."""
    callee = inst.called[0]
    taken = [p.shape for p in callee.parameters]
    given = [o.shape for o in inst.operands]
    return None if given == taken else f"the parameters of %{callee.name} are {', '.join(map(str, taken))}"


# Ops with dims


def _transpose(inst: Instruction) -> str | None:
    rank, dims = inst.operands[0].shape.rank, inst.dimensions
    return None if sorted(dims) == list(range(rank)) else f"{list(dims)} does not reorder {rank} dims"


def _pad(inst: Instruction) -> str | None:
    rank, value = inst.operands[0].shape.rank, inst.operands[1].shape
    return first_fault(
        f"it pads {_counted(len(inst.padding), 'dim')}, %{inst.operands[0].name} has {rank}"
        if len(inst.padding) != rank
        else None,
        f"it pads with {value}, no scalar" if value.dims else None,
        "interior padding is negative" if any(p.interior < 0 for p in inst.padding) else None,
    )


def _slice(inst: Instruction) -> str | None:
    rank = inst.operands[0].shape.rank
    if len(inst.slice_dims) != rank:
        return f"it cuts {_counted(len(inst.slice_dims), 'dim')}, %{inst.operands[0].name} has {rank}"
    return "a stride is below 1" if any(d.stride < 1 for d in inst.slice_dims) else None


def _dynamic_slice(inst: Instruction) -> str | None:
    if not inst.operands:
        return "it has no operands"
    rank, sizes = inst.operands[0].shape.rank, inst.dynamic_slice_sizes
    if len(sizes) != rank or min(sizes, default=0) < 0:
        return f"it takes {list(sizes)} of {inst.operands[0].shape}"
    return _starts(inst, 1)


def _dynamic_update_slice(inst: Instruction) -> str | None:
    if len(inst.operands) < 2:
        return f"it has {_counted(len(inst.operands), 'operand')}"
    whole, update = inst.operands[0].shape, inst.operands[1].shape
    return first_fault(f"{update} is written into {whole}" if update.rank != whole.rank else None, _starts(inst, 2))


def _starts(inst: Instruction, first: int) -> str | None:
    """An index for each dim; in XLA's older form one vector of them."""
    rank, starts = inst.operands[0].shape.rank, inst.operands[first:]
    if len(starts) == 1 and starts[0].shape.dims == (rank,):
        return None
    if len(starts) != rank or any(o.shape.dims for o in starts):
        return f"{_counted(rank, 'dim')} need as many scalar start indices"
    other = next((o for o in starts if not o.shape.is_integral), None)
    return other and f"start index %{other.name} is {other.shape}"


def _iota(inst: Instruction) -> str | None:
    return None if inst.shape.is_array else "it is no array"


def _concatenate(inst: Instruction) -> str | None:
    fault = _one_dim(inst)
    rank = inst.operands[0].shape.rank if inst.operands else 0
    return first_fault(fault, next((f"%{o.name} is {o.shape}" for o in inst.operands if o.shape.rank != rank), None))


def _matrix(inst: Instruction) -> str | None:
    dims = inst.operands[0].shape.dims
    return None if len(dims) >= 2 and dims[-1] == dims[-2] else f"%{inst.operands[0].name} holds no square matrices"


def _triangular_solve(inst: Instruction) -> str | None:
    a, b = (o.shape.dims for o in inst.operands)
    solved = -2 if inst.proto.triangular_solve_options.left_side else -1
    fits = len(a) == len(b) and a[:-2] == b[:-2] and len(b) >= 2 and b[solved] == a[-1]
    return first_fault(_matrix(inst), None if fits else f"matrices of {list(a)} do not solve {list(b)}")


def _fft(inst: Instruction) -> str | None:
    given, made, count = inst.operands[0].shape.dims, inst.shape.dims, len(inst.fft_length)
    if not 1 <= count <= min(3, len(given)) or len(given) != len(made):
        return f"it transforms {_counted(count, 'dim')} of {inst.operands[0].shape}"
    if inst.proto.fft_type not in range(4):
        return f"fft_type is {inst.proto.fft_type}"
    # Of RFFT and IRFFT lengths are those of the real side; the other one has half of the last dim, and one more.
    real = {2: given, 3: made}.get(inst.proto.fft_type, given)
    return None if real[-count:] == inst.fft_length else f"lengths {list(inst.fft_length)} are not those of {given}"


def _batch_norm(inst: Instruction) -> str | None:
    shape, feature = inst.operands[0].shape, int(inst.proto.feature_index)
    if not 0 <= feature < shape.rank:
        return f"feature_index {feature} is not one of the {shape.rank} dims of {shape}"
    per_feature = (shape.dims[feature],)
    for number, operand in enumerate(inst.operands[1:], 1):
        is_gradient = inst.opcode == "batch-norm-grad" and number == 4
        if operand.shape.dims != (shape.dims if is_gradient else per_feature):
            return f"operand %{operand.name} is {operand.shape}"
    made = [leaf.dims for leaf in inst.shape.leaves]
    wanted = [shape.dims] if inst.opcode == "batch-norm-inference" else [shape.dims, per_feature, per_feature]
    return None if made == wanted else f"it makes {', '.join(map(str, map(list, wanted)))}"


def _random_bits(inst: Instruction) -> str | None:
    leaves, state = inst.shape.leaves, inst.operands[0].shape
    # As XLA's verifier, which asks nothing of the form that makes bits alone.
    if not inst.shape.is_tuple:
        return None
    return None if len(leaves) == 2 and leaves[0] is state else f"it makes {state} and bits"


def _topk(inst: Instruction) -> str | None:
    given, leaves = inst.operands[0].shape, inst.shape.leaves
    made = [leaf.dims for leaf in leaves]
    wanted = (*given.dims[:-1], int(inst.proto.k))
    return None if given.dims and made == [wanted, wanted] else f"it makes values and indices of {list(wanted)}"


# Contractions


def _dot_dims(inst: Instruction, d: DotDims) -> str | None:
    left, right = inst.operands[0], inst.operands[1]
    if len(d.lhs_contracting) != len(d.rhs_contracting) or len(d.lhs_batch) != len(d.rhs_batch):
        return "its two operands have other numbers of contracted or batch dims"
    return first_fault(
        _dims((*d.lhs_batch, *d.lhs_contracting), left), _dims((*d.rhs_batch, *d.rhs_contracting), right)
    )


def _dot(inst: Instruction) -> str | None:
    return _dot_dims(inst, inst.dot_dims)


def _ragged_dot(inst: Instruction) -> str | None:
    d, ragged, groups = inst.ragged_dims
    left, right = inst.operands[0], inst.operands[1]
    sides = (len(d.lhs_contracting), len(d.lhs_batch)) == (len(d.rhs_contracting), len(d.rhs_batch))
    if not sides or len(ragged) != 1:
        return f"its operands differ in contracted or batch dims, or it has {_counted(len(ragged), 'ragged dim')}"
    # Only along a free dim do groups of rows meet matrices of their own: else the right operand has no dim of groups.
    count = 0 if ragged[0] in (*d.lhs_contracting, *d.lhs_batch) else 1
    return first_fault(
        _dims((*d.lhs_batch, *d.lhs_contracting), left),
        _dims((*groups, *d.rhs_batch, *d.rhs_contracting), right),
        _dims(ragged, left),
        None if len(groups) == count else f"it has {_counted(len(groups), 'group dim')}, not {count}",
    )


def _convolution(inst: Instruction) -> str | None:
    c, (left, right) = inst.conv_dims, inst.operands
    rank = 2 + len(c.input_spatial_dimensions)
    sides = (
        (c.input_batch_dimension, c.input_feature_dimension, *c.input_spatial_dimensions),
        (c.kernel_input_feature_dimension, c.kernel_output_feature_dimension, *c.kernel_spatial_dimensions),
        (c.output_batch_dimension, c.output_feature_dimension, *c.output_spatial_dimensions),
    )
    fits = left.shape.rank == right.shape.rank == inst.shape.rank == rank and len(inst.window) == rank - 2
    if not fits or any(sorted(side) != list(range(rank)) for side in sides):
        return f"its dim numbers or its window do not fit {left.shape} and {right.shape}"
    groups, batches = inst.proto.feature_group_count, inst.proto.batch_group_count
    # 0 is what protobuf has for a count that nobody wrote: one group.
    if min(groups, batches) < 0 or (groups > 1 and batches > 1):
        return f"it has {groups} feature groups and {batches} batch groups"
    made = right.shape.dims[c.kernel_output_feature_dimension]
    batch = left.shape.dims[c.input_batch_dimension]
    if made % inst.feature_group_count or made % inst.batch_group_count or batch % inst.batch_group_count:
        return f"batch {batch} and {made} output features do not divide into its groups"
    return _positive_window(inst)


# Addressing by index


def _gather(inst: Instruction) -> str | None:
    d, (operand, indices) = inst.gather_dims, inst.operands
    sizes, rank = inst.gather_slice_sizes, operand.shape.rank
    if len(sizes) != rank or any(not 0 <= n <= size for n, size in zip(sizes, operand.shape.dims, strict=True)):
        return f"its slices are {list(sizes)} of {operand.shape}"
    gone = (*d.collapsed_slice_dims, *d.operand_batching_dims)
    return first_fault(
        _dims(d.offset_dims, inst, what="offset dim"),
        _ascending(d.offset_dims, "offset dims"),
        _dims(gone, operand, what="collapsed or batching dim"),
        *[f"slices of {sizes[g]} are collapsed along dim {g}" for g in gone if 0 <= g < rank and sizes[g] > 1],
        _index_dims(operand, indices, d.index_vector_dim, d.start_index_map, d.operand_batching_dims,
                    d.start_indices_batching_dims),
    )  # fmt: skip


def _index_dims(
    operand: Instruction,
    indices: Instruction,
    vector_dim: int,
    addressed: Sequence[int],
    operand_batch: Sequence[int],
    indices_batch: Sequence[int],
) -> str | None:
    """Which dims of the operand the vectors of indices address, and which dims are parallel in both."""
    rank = indices.shape.rank
    if not 0 <= vector_dim <= rank:
        return f"index_vector_dim {vector_dim} is past the {rank} dims of {indices.shape}"
    length = indices.shape.dims[vector_dim] if vector_dim < rank else 1
    if len(addressed) != length:
        return f"{_counted(length, 'number')} in each index address {_counted(len(addressed), 'dim')}"
    if len(operand_batch) != len(indices_batch):
        return "operand and indices have other numbers of batching dims"
    return first_fault(
        _dims((*addressed, *operand_batch), operand, what="addressed dim"),
        # The dim of the vectors may be one behind the last: then each index is a vector of one.
        _dims((vector_dim, *indices_batch), indices, max(rank, vector_dim + 1), what="batching dim of the indices"),
    )


def _scatter(inst: Instruction) -> str | None:
    count, even = divmod(len(inst.operands), 2)
    if not even or not count:
        return f"it has {_counted(len(inst.operands), 'operand')}: arrays, indices and as many updates are taken"
    d, operand, indices, updates = inst.scatter_dims, inst.operands[0], inst.operands[count], inst.operands[count + 1]
    inserted, rank = (*d.inserted_window_dims, *d.input_batching_dims), operand.shape.rank
    indexed = indices.shape.rank - (1 if d.index_vector_dim < indices.shape.rank else 0)
    fits = len(d.update_window_dims) + len(inserted) == rank
    fits = fits and updates.shape.rank == len(d.update_window_dims) + indexed
    return first_fault(
        _dims(d.update_window_dims, updates, what="update window dim"),
        _ascending(d.update_window_dims, "update window dims"),
        _dims(inserted, operand, what="inserted or batching dim"),
        _index_dims(operand, indices, d.index_vector_dim, d.scatter_dims_to_operand_dims, d.input_batching_dims,
                    d.scatter_indices_batching_dims),
        None if fits else f"windows of {updates.shape} at {indices.shape} do not fit {operand.shape}",
        _reducer(inst.called[0], count),
        _alike(inst.operands[:count]),
        _alike(inst.operands[count + 1 :]),
    )  # fmt: skip


def _alike(operands: Sequence[Instruction]) -> str | None:
    first = operands[0]
    other = next((o for o in operands if o.shape.dims != first.shape.dims), None)
    return other and f"operand %{other.name} is {other.shape}, %{first.name} is {first.shape}"


# Collectives and asynchronous pairs


def _all_to_all(inst: Instruction) -> str | None:
    return _one_dim(inst) if inst.dimensions else None


def _permute(inst: Instruction) -> str | None:
    return first_fault(_permute_start(inst), _no_array(inst) if inst.operands else "it has no operands")


def _permute_start(inst: Instruction) -> str | None:
    # Passes of XLA's for TPUs alone make that form, of two buffers and tuples of indices.
    in_place = "it writes into a buffer that it is given, and that form is not known here"
    return in_place if inst.dynamic_slice_sizes else None


def _dynamic_reshape(inst: Instruction) -> str | None:
    if not inst.shape.is_array or len(inst.operands) != 1 + inst.shape.rank:
        return f"it takes an array and {_counted(inst.shape.rank, 'size')}"
    given = inst.operands[0].shape
    other = next((o for o in inst.operands[1:] if o.shape.dims), None)
    return first_fault(
        other and f"the size %{other.name} is {other.shape}",
        None if given.size == inst.shape.size else f"operand %{inst.operands[0].name} is {given}",
    )


def _ends(*starts: str) -> Law:
    def law(inst: Instruction) -> str | None:
        begun = inst.operands[0]
        return None if begun.opcode in starts else f"operand %{begun.name} is no {starts[0]}"

    return law


def _async_start(inst: Instruction) -> str | None:
    parts = inst.shape.tuple_shapes
    given, made = tuple(o.shape for o in inst.operands), inst.called[0].root.shape
    if len(parts) < 2 or parts[0].tuple_shapes != given or parts[1] is not made:
        return f"a start makes (({', '.join(map(str, given))}), {made}, ...)"
    return _wraps(inst)


def _send(inst: Instruction) -> str | None:
    parts, given = inst.shape.tuple_shapes, inst.operands
    data = inst.shape.tuple_shapes[:1] if inst.opcode == "recv" else (given[0].shape,)
    fits = given[-1].shape.is_token and len(parts) == 3 and parts[:1] == data and parts[2].is_token
    return None if fits else "a transfer takes a token, and makes (the data, u32[], token[])"


def _outfeed(inst: Instruction) -> str | None:
    said, given = Shape.from_proto(inst.proto.outfeed_shape), inst.operands[0].shape
    return None if said is given else f"outfeed_shape is {said}, operand %{inst.operands[0].name} is {given}"


def _custom_call(inst: Instruction) -> str | None:
    target, count = inst.custom_call_target, len(inst.operands)
    if count == 1 or target not in targets.HAND_ON | targets.MANUAL_CONVERSIONS:
        return None
    return f"a call of {target} takes one operand, not {count}"


LAWS: dict[str, Law] = {
    **dict.fromkeys(("all-reduce", "all-reduce-start"), _adds_up),
    **dict.fromkeys(("async-done", "async-update"), _ends("async-start", "async-update")),
    **dict.fromkeys(("batch-norm-grad", "batch-norm-inference", "batch-norm-training"), _batch_norm),
    **dict.fromkeys(("get-dimension-size", "set-dimension-size", "all-gather"), _one_dim),
    **dict.fromkeys(("send", "recv"), _send),
    **{f"{o}-done": _ends(f"{o}-start") for o in ("all-gather", "all-reduce", "collective-permute", "copy")},
    **{f"{o}-done": _ends(o) for o in ("send", "recv")},
    "all-to-all": _all_to_all,
    "async-start": _async_start,
    "cholesky": _matrix,
    "collective-permute": _permute,
    "collective-permute-start": _permute_start,
    "concatenate": _concatenate,
    "convolution": _convolution,
    "custom-call": _custom_call,
    "dot": _dot,
    "dynamic-reshape": _dynamic_reshape,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "fft": _fft,
    "fusion": _wraps,
    "gather": _gather,
    "iota": _iota,
    "map": _map,
    "outfeed": _outfeed,
    "pad": _pad,
    "ragged-dot": _ragged_dot,
    "reduce": _reduce,
    "reduce-scatter": _reduce_scatter,
    "reduce-window": _reduce_window,
    "reverse": _some_dims,
    "rng-bit-generator": _random_bits,
    "scan": _scan,
    "scatter": _scatter,
    "select-and-scatter": _select_and_scatter,
    "slice": _slice,
    "sort": _sort,
    "topk": _topk,
    "transpose": _transpose,
    "triangular-solve": _triangular_solve,
}
