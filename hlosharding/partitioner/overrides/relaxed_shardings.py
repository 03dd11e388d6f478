"""Values that propagation left whole though nobody reads them whole: they take the sharding that suits their op.

Floor: partitioner.  Looks at instructions and shardings alone.  A transform that nothing got past leaves all behind it
replicated; if what follows only cuts pieces out, or is split itself, gathering the value would be for nothing.  What
the user annotated, what a computation takes or gives, and what control flow carries keep their shardings.

Values that one op alone reads, which wants them in another sharding, are made as it wants them.  The op then looks for
its cheapest split between its operands and what is wanted in the end; it would have made the value in the propagated
sharding first, for nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from hlosharding.ir import ELEMENTWISE, PACKS, Computation, Instruction, Module
from hlosharding.partitioner.iteration_space import as_compared
from hlosharding.partitioner.overrides.op_sets import BINDING, BINDING_RESULTS, READ_PARTS, ProgramShardings
from hlosharding.sharding import REPLICATED, HloSharding


def relaxed_shardings(module: Module, bound: Collection[str]) -> dict[int, HloSharding]:
    """`module.shardings` with other shardings for values that need not be whole, or none where any will do.

    `bound` names the instructions that the user annotated.
    """
    found = dict(module.shardings)
    names = frozenset(bound)
    for computation in module.computations:
        _relax(computation, names, found)
    return found


def _relax(computation: Computation, bound: frozenset[str], found: dict[int, HloSharding]) -> None:
    relaxed: set[Instruction] = set()
    # Users first: one that need not be whole itself need not have what it reads whole.
    for inst in reversed(computation.instructions):
        given = found.get(inst.id)
        if given is None or given.kind == "tiled" or not inst.users:
            continue
        if inst.opcode in BINDING or inst.is_root or inst.name in bound:
            continue
        if any(as_compared(s) is not REPLICATED for s in given.leaves):
            continue
        if all(_needs_no_whole(u, inst, relaxed, found) for u in inst.users):
            relaxed.add(inst)
            asked = _asked_alike(inst, found)
            if asked is None:
                del found[inst.id]
            else:
                found[inst.id] = asked


def _asked_alike(inst: Instruction, found: dict[int, HloSharding]) -> HloSharding | None:
    """The sharding in which all users, ops on one element after the other, want the value."""
    if any(u.opcode not in ELEMENTWISE or u.shape.dims != inst.shape.dims for u in inst.users):
        return None
    asked = {found.get(u.id) for u in inst.users}
    return asked.pop() if len(asked) == 1 else None


def _needs_no_whole(
    user: Instruction, inst: Instruction, relaxed: set[Instruction], found: dict[int, HloSharding]
) -> bool:
    if user in relaxed:
        return True
    if inst.shape.is_tuple or user.opcode in PACKS:
        return False
    if user.opcode in READ_PARTS:
        return user.shape.is_array and user.shape.byte_size < inst.shape.byte_size
    given = found.get(user.id)
    if given is None or not user.shape.is_array or not _is_split(given) or user.opcode in BINDING_RESULTS:
        return False
    return any(given.num_tiles_along(dim) > 1 for dim in _dims_of(user, inst))


def _dims_of(user: Instruction, inst: Instruction) -> Sequence[int]:
    """Dims of an op's result that may split what it reads: split along others alone it reads all of that.

    Not along the new dims of a broadcast, nor along those in which an update may be anywhere.
    """
    if user.opcode == "broadcast":
        return user.dimensions
    dims = range(user.shape.rank)
    if user.opcode == "dynamic-update-slice" and inst is user.operands[1]:
        return [dim for dim in dims if inst.shape.dims[dim] == user.shape.dims[dim]]
    return dims


def _is_split(sharding: HloSharding) -> bool:
    return sharding.kind == "tiled" and sharding.num_tiles > 1 and not sharding.is_manual_subgroup()


def wanted_by_only_readers(program: ProgramShardings) -> dict[int, HloSharding]:
    """By id, the other shardings that such values take: of results of the program, and of what the user annotated.

    A result that may have any sharding is given back whole, and what makes it is told so: a split would have to be
    gathered.  A tuple that is given back holds its values as their readers want them, too: else they would seem to go
    by another sharding on the way.
    """
    shardings, bound = program.shardings, program.annotated
    found, root = dict[int, HloSharding](), program.module.entry.root
    # 60 random programs took 0.93 of the bytes so: to split counts of ids, and gather them, takes two collectives.
    if root.shape.is_array and root.id not in shardings:
        found[root.id] = REPLICATED
    for user in program.module.of_opcodes("tuple", "copy"):
        asked = list(_asked(user, shardings, bound)) if user.computation.is_entry else []
        if user.opcode == "tuple" and asked and user.name not in bound:
            held = HloSharding.tuple([wanted for _, wanted in asked])
            found |= {user.id: held} if held is not shardings.get(user.id) else {}
        for operand, wanted in asked:
            given = shardings.get(operand.id)
            is_so = given is not None and as_compared(given) is as_compared(wanted)
            if is_so or operand.name in bound or (given is None and not user.is_root):
                continue
            if operand.users == [user] and operand.shape.is_array and operand.opcode not in BINDING | PACKS:
                found[operand.id] = wanted
    return found


def _asked(
    user: Instruction, shardings: Mapping[int, HloSharding], bound: frozenset[str]
) -> Iterator[tuple[Instruction, HloSharding]]:
    """The operands that an op takes as they shall be from here on, each with its sharding."""
    given = shardings.get(user.id, REPLICATED if user.is_root else None)
    if given is None or given.is_unknown():
        return
    has_arrays = bool(user.operands) and all(o.shape.is_array for o in user.operands)
    if user.opcode == "tuple" and has_arrays and _is_given_back(user):
        leaves = list(given.normalize_tuple(len(user.operands)).leaves)
        for element in user.users:
            leaves[element.tuple_index] = shardings.get(element.id, leaves[element.tuple_index])
        yield from zip(user.operands, leaves, strict=True)
    elif user.opcode == "copy" and user.name in bound and user.shape.is_array:
        yield user.operands[0], given


def _is_given_back(packed: Instruction) -> bool:
    """Is the tuple what the program gives back, or its only element?"""
    return packed.is_root or all(u.opcode == "get-tuple-element" and u.is_root for u in packed.users)
