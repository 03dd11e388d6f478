"""A program that works on one microbatch at a time: partitioned along an axis of time, with our own partitioner.

Floor: schedule.  Microbatches are tiles of the batch on as many devices as there are microbatches, only that one device
does all of their work, one after the other.  So what the partitioner makes of the program is the program of one
microbatch; its all-reduces are what has to be summed over time; any other exchange is none that time could make.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hlosharding.errors import ScheduleError
from hlosharding.ir import COLLECTIVES, Instruction, Module, NameUniquer, Shape, fused_attention, rewrite
from hlosharding.partitioner import linear_operands
from hlosharding.propagation import propagate
from hlosharding.schedule.cutting.batch_flow import find_batch_flow
from hlosharding.schedule.cutting.microbatch_number import take_number
from hlosharding.schedule.cutting.microbatched import Microbatched, error_at, pack_results
from hlosharding.schedule.cutting.openings import name_openings
from hlosharding.schedule.cutting.sums_in_loops import insert_sum_behind, move_sums_behind_loops
from hlosharding.schedule.cutting.time_axis import partition_over_time
from hlosharding.schedule.shares import check_pieces
from hlosharding.sharding import REPLICATED, HloSharding


def cut_microbatches(module: Module, batch: Mapping[int, int], count: int) -> Microbatched:
    """The program of one of `count` microbatches.  `batch`: of each parameter that is cut, by number, the dim.

    Shardings are dropped: they are for the devices on which a microbatch will run.  Raises ScheduleError for what time
    cannot do, with the op and its source line: an op that needs other microbatches than its own.

    >>> import jax.numpy as jnp, hlosharding as hs
    >>> module = hs.trace(lambda w, x: (w, (x @ w).sum()))(jnp.ones((4, 2)), jnp.ones((8, 4)))
    >>> found = cut_microbatches(module, {1: 0}, 4)
    >>> [str(p.shape) for p in found.module.entry.parameters], [str(s.shape) for s in found.sums]
    (['f32[4,2]', 'f32[2,4]'], ['f32[]'])
    """
    check_pieces(count)
    given = pack_results(module).clone()
    given.num_partitions = 1
    given.shardings = {}
    if count == 1:
        return Microbatched(given, 1, frozenset(), batch, {})
    _copy_broadcasts(given)
    for parameter in given.entry.parameters:
        given.shardings[parameter.id] = _sharding(parameter, batch, count)
    _split_by_hand(given, batch, count)
    given.num_partitions = count
    # Parameters are as said, or whole.  Left open, those that a loop carries beside the batch (in brax metrics and
    # actions) got the batch's split, and one stage with two microbatches asked for half of them.
    made = partition_over_time(propagate(given, to_outputs=True, to_parameters=False), count)
    lying = made.sharding(made.entry.root)
    made.num_partitions = 1
    made.shardings = {}
    number = take_number(made)
    own = {*batch, *([] if number is None else [number.parameter_number])}
    names = NameUniquer(inst.name for computation in made.computations for inst in computation.instructions)
    behind_loops = move_sums_behind_loops(made, own, names)
    # In computations what is marked is a term already, whose sum stands behind the loop: a copy that sums nothing.
    sums = [inst for inst in _mark_sums(made, count, names) if inst.computation is made.entry]
    joined = _split_dims(made.entry.root, lying, count)
    for inst in sums:
        _copy_term(inst, names)
    made.renumber()
    found = Microbatched(made, count, frozenset((*sums, *behind_loops)), batch, joined, number=number)
    equal = {inst for inst in sums if inst.operands[0] not in found.varying}
    if equal:
        for inst in equal:
            _multiply(inst, count)
        made.renumber()
        found = replace(found, sums=found.sums - equal)
    found = name_openings(found)
    _check_repeated(found)
    _check_results(found)
    return found


def _copy_broadcasts(module: Module) -> None:
    """Give each reader a broadcast of its own.

    Where one serves as the zeros of activations and of gradients alike, propagation would split the gradients, too.
    """
    names = NameUniquer(inst.name for inst in module.instructions)
    before = defaultdict[Instruction, list[Instruction]](list)
    for inst in list(module.of_opcodes("broadcast")):
        for user in inst.users[1:]:
            for place, operand in enumerate(user.operands):
                if operand is inst:
                    made = rewrite.copy(inst, len(inst.computation.instructions), inst.operands, to=inst.computation)
                    rewrite.rename(made, names.fresh(inst.name))
                    rewrite.replace_operand(user, place, made)
                    before[user].append(made)
    # All at once: to find the place of each in its computation took time that is quadratic in the layers.
    rewrite.place_before(before)
    module.renumber()


def _check_repeated(program: Microbatched) -> None:
    """ScheduleError for a loop that sums over microbatches, and runs once behind the last."""
    repeated = next((inst for inst in program.sums if inst.operands[0] not in program.varying), None)
    if repeated is not None:
        what = f"%{repeated.operands[0].name} sums over the microbatches, and runs once behind the last"
        raise error_at(repeated, what, "take one microbatch")


def _check_results(program: Microbatched) -> None:
    """ScheduleError for a result that is the same in each microbatch, and comes of an op that gives what differs, too:
    there is one of it for each, and no op that takes one of them for the whole."""
    for number, inst in enumerate(program.module.entry.results):
        if inst in program.varying and number not in program.joined:
            what = f"%{inst.name}, a result, is the same in each microbatch, and made together with what differs"
            raise error_at(inst, what, "make it in a loop, or branch, of its own, or take one microbatch")


def _sharding(parameter: Instruction, batch: Mapping[int, int], count: int) -> HloSharding:
    dim = batch.get(parameter.parameter_number)
    if dim is None:
        return REPLICATED
    dims = parameter.shape.dims
    if not parameter.shape.is_array or dim >= len(dims) or dims[dim] % count:
        raise ScheduleError(
            f"parameter %{parameter.name} ({parameter.shape}) cannot be cut into {count} microbatches along dim {dim}",
            remedy="name the arguments whose first dim is the batch, and a number that divides it",
        )
    return _split_along(parameter.shape, dim, count)


def _split_by_hand(module: Module, batch: Mapping[int, int], count: int) -> None:
    """Propagation goes through no custom call, nor through topk: say that what fused attention, and the choice of a
    token's experts, make of a microbatch is its own."""
    for inst, dims in find_batch_flow(module, batch).items():
        if inst.opcode == "topk" or fused_attention(inst) is not None:
            shapes = zip(inst.shape.leaves, dims, strict=True)
            module.shardings[inst.id] = HloSharding.tuple([_split_along(shape, dim, count) for shape, dim in shapes])


def _split_along(shape: Shape, dim: int | None, count: int) -> HloSharding:
    """Along a dim, if the number divides it."""
    if dim is None or shape.dims[dim] % count:
        return REPLICATED
    ways = ",".join(str(count if n == dim else 1) for n in range(shape.rank))
    return HloSharding.parse(f"{{devices=[{ways}]<=[{count}]}}")


def _split_dims(root: Instruction, sharding: HloSharding | None, count: int) -> dict[int, int]:
    """Of the results that lie in tiles, by number, the dim along which they are split."""
    leaves = sharding.leaves if sharding is not None else ()
    results = enumerate(zip(root.operands, leaves, strict=False))
    return {
        number: _split_dim(result, leaf, count)
        for number, (result, leaf) in results
        if leaf.is_tiled() and max(leaf.data_dims) > 1
    }


def _split_dim(result: Instruction, sharding: HloSharding, count: int) -> int:
    """The one along which its pieces are joined.  Raises ScheduleError where they do not lie along one, in order."""
    ways = sharding.data_dims
    if max(ways) < count or sharding.tiles.array.ravel().tolist() != list(range(count)):
        what = f"%{result.name}, a result, has the microbatches along several dims, or in another order: {sharding}"
        raise error_at(result, what, "let each result have the batch's order along one dim, or take one microbatch")
    return ways.index(count)


def _mark_sums(module: Module, count: int, names: NameUniquer) -> list[Instruction]:
    """All that microbatches do with each other, as copies."""
    given = module.of_opcodes(*COLLECTIVES)
    made = [_mark_sum(inst, count, names) for inst in given]
    rewrite.remove(*set(given).difference(made))
    return made


def _mark_sum(inst: Instruction, count: int, names: NameUniquer) -> Instruction:
    """An all-reduce over all microbatches as the copy of a sum; perhaps another than itself, which nobody reads then.

    Raises ScheduleError for what is none.
    """
    # Without groups an all-reduce is of all devices.
    is_whole = all(len(group) == count for group in inst.replica_groups or ())
    if inst.opcode != "all-reduce" or not is_whole or inst.called[0].root.opcode != "add" or len(inst.operands) != 1:
        raise _refusal(inst)
    rewrite.change_opcode(inst, "copy")
    return _sum_behind_widening(inst, names)


def _sum_behind_widening(inst: Instruction, names: NameUniquer) -> Instruction:
    """A sum of what is converted to a wider type at once is made in that, of all microbatches: only more exact."""
    value, last = inst, None
    while len(value.users) == 1 and value.users[0].opcode in _MOVES and linear_operands(value.users[0]):
        [value] = value.users
        last = value if value.opcode == "convert" else last
    if last is None or last.shape.element_type == inst.shape.element_type:
        return inst
    made = insert_sum_behind(last, names, like=inst)
    rewrite.replace_uses(inst, inst.operands[0])
    return made


_MOVES = frozenset({"bitcast", "convert", "reshape", "transpose"})


def _copy_term(inst: Instruction, names: NameUniquer) -> None:
    """Let a sum have its terms for itself: by their name goes the sum."""
    [term] = inst.operands
    if len(term.users) > 1 or term.opcode == "parameter":
        place, name = inst.computation.instructions.index(inst), names.fresh(f"{inst.name}_term")
        copied = rewrite.insert(inst.computation, place, "copy", None, (term,), name=name, like=inst)
        rewrite.set_operands(inst, (copied,))


def _multiply(inst: Instruction, count: int) -> None:
    """The sum of what is the same in all microbatches."""
    module, where, shape = inst.module, inst.computation, inst.shape
    names = [rewrite.fresh_name(module, f"{inst.name}_{what}") for what in ("count", "counts")]
    scalar, place = shape.with_dims(()), where.instructions.index(inst)
    literal = np.array(count).astype(scalar.dtype)  # of few bits it wraps around, as the sum does
    number = rewrite.insert(where, place, "constant", scalar, (), name=names[0], like=inst, literal=literal)
    spread = rewrite.insert(where, place + 1, "broadcast", shape, (number,), name=names[1], like=inst, dimensions=())
    rewrite.change_opcode(inst, "multiply", (inst.operands[0], spread))


def _refusal(inst: Instruction) -> ScheduleError:
    is_reduction = inst.opcode == "all-reduce"
    what = "another reduction over all microbatches than a sum" if is_reduction else "elements of other microbatches"
    remedy = "microbatches must be independent but for sums; take one microbatch, or change this line"
    return error_at(inst, f"%{inst.name} ({inst.opcode}) needs {what}", remedy)
