"""Host offload: which values lie in the host's memory, from a move to the host until a move back to the device.

Floor: cost.  Follows XLA's HostOffloader in what stays there: names, copies, parts taken and rows written, through
loops, calls and branches, too.  An input that the program moves to the device lies on the host; other inputs, and
results, that the user keeps there (`memory_kind`) are the signature's to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hlosharding.ir import Computation, Instruction, Module, arguments, callers, memory_of, while_parts

HostLeaves = dict[Instruction, frozenset[int]]
"""Per instruction, the numbers of the leaves that lie on the host; others have none."""
CallSites = dict[Computation, list[Instruction]]
_Place = tuple[Instruction, int | None]
"""A value, or that element of it."""

_IN_PLACE = frozenset(
    "add-dependency bitcast copy dynamic-slice dynamic-update-slice opt-barrier reshape slice transpose".split()
)
_NAMES_OF_TUPLES = frozenset({"opt-barrier", "while"})
_NONE: frozenset[int] = frozenset()


def leaves_on_host(module: Module) -> HostLeaves:
    """The leaves on the host, of every instruction that has such."""
    moves = [i for i in module.of_opcodes("custom-call") if memory_of(i) is not None]
    if not moves:
        return {}
    sites = callers(module)
    given = _origins((move.operands[0] for move in moves if memory_of(move) == "device"), sites)
    found: HostLeaves = dict.fromkeys(given, frozenset({0}))
    is_new = True
    # Again, for loops hand on what their bodies make, and callees what callers give.  It ends: what is found only
    # grows.
    while is_new:
        is_new = False
        for inst in module.instructions:
            leaves = _leaves_of(inst, found, sites)
            if leaves and leaves != found.get(inst, _NONE):
                found[inst], is_new = leaves | found.get(inst, _NONE), True
    found.update((i, frozenset({0})) for i in module.instructions if _begins_there(i, found))
    return found


def crosses(inst: Instruction, away: HostLeaves) -> bool:
    """Does it move a value from the device to its host, or back?  What lies there already stays."""
    memory = memory_of(inst)
    if memory is None:
        return False
    return (inst.operands[0] in away) != (memory == "host")


def _origins(values: Iterable[Instruction], sites: CallSites) -> Iterator[Instruction]:
    """Inputs of the program of which values are parts or other names."""
    left: list[_Place] = [(value, None) for value in values]
    seen: set[_Place] = set()
    while left:
        place = left.pop()
        if place not in seen:
            seen.add(place)
            left += _sources(place, sites)
    return (value for value, element in seen if element is None and _is_input(value))


def _is_input(value: Instruction) -> bool:
    return value.opcode == "parameter" and value.shape.is_array and value.computation.is_entry


def _sources(place: _Place, sites: CallSites) -> list[_Place]:
    """Of what a place is a part or another name: of a loop, of its carry at first."""
    value, element = place
    opcode = value.opcode
    if opcode == "parameter" and (element is not None or value.shape.is_array):
        return [(given, element) for site in sites.get(value.computation, ()) for given in arguments(site, value)[:1]]
    if opcode == "tuple" and element is not None:
        return [(value.operands[element], None)]
    if opcode == "get-tuple-element" and element is None:
        return [(value.operands[0], value.tuple_index)]
    names = _IN_PLACE if element is None else _NAMES_OF_TUPLES
    return [(value.operands[0], element)] if opcode in names else []


def _leaves_of(inst: Instruction, found: HostLeaves, sites: CallSites) -> frozenset[int]:
    memory = memory_of(inst)
    if memory is not None:
        return frozenset({0}) if memory == "host" else _NONE
    match inst.opcode:
        case "tuple":
            first = zip(inst.shape.first_leaves, inst.operands, strict=False)
            return frozenset(f + n for f, o in first for n in found.get(o, _NONE))
        case "get-tuple-element":
            whole, here = inst.operands[0], len(inst.shape.leaves)
            start = whole.shape.first_leaves[inst.tuple_index]
            return frozenset(n - start for n in found.get(whole, _NONE) if start <= n < start + here)
        case "while":
            return _any_of((inst.operands[0], while_parts(inst).body.root), found)
        case "call" | "conditional":
            return _any_of((c.root for c in inst.called), found)
        case "parameter" if inst.computation.is_entry:
            return found.get(inst, _NONE)
        case "parameter":
            return _any_of((a for site in sites.get(inst.computation, ()) for a in arguments(site, inst)), found)
        case opcode if opcode in _IN_PLACE:
            return _any_of(inst.operands[: 2 if opcode == "dynamic-update-slice" else 1], found)
        case _:
            return _NONE


def _any_of(insts: Iterable[Instruction], found: HostLeaves) -> frozenset[int]:
    return _NONE.union(*(found.get(i, _NONE) for i in insts))


def _begins_there(inst: Instruction, found: HostLeaves) -> bool:
    """A buffer made for a loop that writes rows on the host (XLA allocates it there)."""
    if inst.opcode != "broadcast" or len(inst.users) != 1 or inst.users[0].opcode != "tuple":
        return False
    carry = inst.users[0]
    place = carry.shape.first_leaves[carry.operands.index(inst)]
    return any(u.opcode == "while" and place in found.get(u, _NONE) for u in carry.users)
