"""What kept each neighbour's split out of a value that is not split, and where the nearest split ended.

Floor: propagation.  Reads a finished run; asks inference what an op would have made of one sharding alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hlosharding.ir import Shape
from hlosharding.propagation.data_flow import ValueLeaf, leaf_count, leaf_sharding, passes_leaves, sources, users
from hlosharding.propagation.explain.causes import chain, edge_change, is_put_back
from hlosharding.propagation.explain.explanation import is_split
from hlosharding.propagation.improving import improve
from hlosharding.propagation.inference import infer_forward
from hlosharding.propagation.policy import LAST_LEVEL, NEVER
from hlosharding.propagation.special_users import offer
from hlosharding.propagation.state import PropagationState
from hlosharding.rules import Reduce, Signature, Whole, signature_of
from hlosharding.sharding import HloSharding, spell_short

_SUM = {"add"}
NOTHING = "nothing near it is split: no annotation leads here"
Blocked = tuple[ValueLeaf, ValueLeaf, str]
"""A value that is not split, its split neighbour, and what kept the split out."""


def blockers(state: PropagationState, value: ValueLeaf) -> list[str]:
    """A line per neighbour that is split, or one that says where the nearest split stopped."""
    graph, p = state.nodes.graph, state.nodes.place[value[0]]
    if p < 0:
        number = graph.computation[value[0]]
        computation = graph.computations[number].name
        if number in graph.left_out:
            return [f"%{computation} runs on an execution thread that propagation was not asked to visit"]
        return [f"%{computation} works on single elements, so propagation never visits it"]
    shape = _shape(state, value)
    scalar = shape.is_array and not shape.rank
    found = list(_forward(state, value))
    if not scalar:
        found += _backward(state, value)
    if found:
        return [reason for _, _, reason in found]
    if scalar:
        return ["it is a scalar: there is nothing to split"]
    return [_nearest(state, value)]


def _shape(state: PropagationState, value: ValueLeaf) -> Shape:
    shape = state.nodes.graph.instructions[value[0]].shape
    return shape if value[1] is None else shape.leaves[value[1]]


def between(state: PropagationState, value: ValueLeaf, neighbour: ValueLeaf) -> str:
    """Why a value that is not split did not take the split of one neighbour; "" where they are none."""
    for look in (_forward, _backward):
        for _, other, reason in look(state, value):
            if other == neighbour:
                return reason.split(": ", 1)[1]
    return ""


def _forward(state: PropagationState, value: ValueLeaf) -> Iterator[Blocked]:
    """Its sources that are split."""
    graph = state.nodes.graph
    for n, source in enumerate(sources(graph, state.nodes.callers, value)):
        sharding = at(state, source)
        if sharding is None or not is_split(sharding) or _is_other_tuple(state, source):
            continue
        operands = graph.operands[value[0]]
        if value[1] is not None and source[0] in operands:
            n = operands.index(source[0])  # of several operands the one that became this leaf
        why = why_not_forward(state, value, n, sharding)
        # What a loop, a branch or a call shares with those around it is no operand.
        role = f"operand {n}" if operands[n : n + 1] == (source[0],) else "the same value"
        yield value, source, f"{role}, {_text(state, source)}: {why}"


def _backward(state: PropagationState, value: ValueLeaf) -> Iterator[Blocked]:
    """Its users that are split."""
    graph = state.nodes.graph
    for user in users(graph, state.nodes.callers, value):
        if is_split(at(state, user)) and not _is_other_tuple(state, user):
            yield value, user, f"user {_text(state, user)}: {why_not_backward(state, value, user)}"


def _is_other_tuple(state: PropagationState, value: ValueLeaf) -> bool:
    """A tuple of which it is not known which leaf is meant."""
    return value[1] is None and leaf_count(state.nodes.graph, value[0]) is not None


def at(state: PropagationState, value: ValueLeaf) -> HloSharding | None:
    """What a value has in the end."""
    return leaf_sharding(state.nodes.graph.sharding[value[0]], value[1])


def _text(state: PropagationState, value: ValueLeaf) -> str:
    graph = state.nodes.graph
    leaf = "" if value[1] is None else f"{{{value[1]}}}"
    return f"%{graph.instructions[value[0]].name}{leaf} {spell_in_mesh(state, at(state, value))}"


def spell_in_mesh(state: PropagationState, sharding: HloSharding | None) -> str:
    """In the words of the module's mesh."""
    return spell_short(sharding, state.nodes.graph.module.mesh)


def _op(state: PropagationState, i: int) -> str:
    inst = state.nodes.graph.instructions[i]
    return f"%{inst.name} ({state.nodes.graph.opcode[i]}{f' at {inst.location}' if inst.location else ''})"


# ---- where the nearest split ended


def _nearest(state: PropagationState, value: ValueLeaf) -> str:
    graph, callers = state.nodes.graph, state.nodes.callers
    searches: list[
        tuple[Callable[[ValueLeaf], list[ValueLeaf]], Callable[[PropagationState, ValueLeaf], Iterator[Blocked]]]
    ] = [
        (lambda v: sources(graph, callers, v), _forward),
        (lambda v: users(graph, callers, v), _backward),
    ]
    for step, look in searches:
        found = _search(state, value, step, look)
        if found is not None:
            here, neighbour, reason = found
            split = f"the split of {_text(state, neighbour)}{_from(state, neighbour)}"
            return f"nothing reached it: {split} stopped at {_op(state, here[0])}: {reason.split(': ', 1)[1]}"
    return NOTHING


def _from(state: PropagationState, value: ValueLeaf) -> str:
    """Where its chain ends, if that is another value."""
    graph = state.nodes.graph
    end = graph.instructions[chain(graph, state.trail, value)[-1].value[0]]
    where = end.location or (end.op_name if graph.is_parameter(end.id) else "")
    return f", given on %{end.name}{f' at {where}' if where else ''}," if end.id != value[0] else ""


def _search(
    state: PropagationState,
    value: ValueLeaf,
    step: Callable[[ValueLeaf], list[ValueLeaf]],
    look: Callable[[PropagationState, ValueLeaf], Iterator[Blocked]],
) -> Blocked | None:
    """Breadth first from a value that is not split, to the first that has a split neighbour."""
    seen, ring = {value}, [value]
    while ring:
        ring = [v for here in ring for v in step(here) if v not in seen and not seen.add(v)]
        for here in ring:
            if state.nodes.place[here[0]] >= 0 and not is_split(at(state, here)):
                found = next(look(state, here), None)
                if found is not None:
                    return found
    return None


# ---- why not


def why_not_forward(state: PropagationState, value: ValueLeaf, n: int, sharding: HloSharding) -> str:
    """Why an op did not take the sharding of operand `n`."""
    p = state.nodes.place[value[0]]
    op = state.nodes.ops[p]
    fixed = _why_taken_back(state, value) or why_fixed(state, p, receives=op.receives)
    if fixed:
        return fixed
    if passes_leaves(state.nodes.graph, value[0]):
        return _verdict(state, value, sharding, "")
    operands: list[HloSharding | None] = [None] * len(state.nodes.inputs[p])
    operands[n] = sharding
    outcome = infer_forward(op, None, operands, LAST_LEVEL)
    if outcome is None:
        return f"{op.opcode} takes nothing from that operand: {_fates(state, p, n, sharding)}"
    lost = f"none of its split dims lives on in the result: {_fates(state, p, n, sharding)}"
    return _verdict(state, value, outcome[0], lost)


def why_not_backward(state: PropagationState, value: ValueLeaf, user: ValueLeaf) -> str:
    """Why a value did not take what a user has."""
    nodes, p = state.nodes, state.nodes.place[value[0]]
    receives = nodes.receives_backward(nodes.ids[p], nodes.ops[p])
    fixed = _why_taken_back(state, value) or why_fixed(state, p, receives=receives)
    if fixed:
        return fixed
    if passes_leaves(nodes.graph, user[0]):
        sharding = at(state, user)
        return "" if sharding is None else _verdict(state, value, sharding, "")
    offered = _offered(state, p, nodes.place[user[0]])
    if offered is None:
        return "it asks nothing of this operand"
    return _verdict(state, value, offered, "none of its split dims exists here")


def _offered(state: PropagationState, p: int, user: int) -> HloSharding | None:
    use = next((use for use in state.nodes.uses[p] if use[0] == user), None)
    return None if use is None else offer(state, p, use, NEVER)


def _why_taken_back(state: PropagationState, value: ValueLeaf) -> str:
    """Why a value lost in the end what it had found; "" where it did not."""
    graph, step = state.nodes.graph, edge_change(state.trail, value)
    if step is None:
        return ""
    found, now = (leaf_sharding(sharding, value[1]) for sharding in (step.old, step.new))
    took = f"it had taken {spell_in_mesh(state, found)}, but"
    if is_put_back(graph, step, value):
        return f"{took} its sharding was given and may not change"
    if now is None:
        return f"{took} may not be given a sharding" + (
            " (to_parameters is off for it)" if graph.is_parameter(value[0]) else ""
        )
    return f"{took} at the edge of the program a split must divide {_shape(state, value)} evenly"


def why_fixed(state: PropagationState, p: int, *, receives: bool) -> str | None:
    """Why a value may take nothing at all; None: it may."""
    nodes, i = state.nodes, state.nodes.ids[p]
    op = nodes.ops[p]
    if i in nodes.provided:
        if nodes.graph.is_root(i) and state.at(p) is None:
            return "the result of the program may not be given a sharding (to_outputs is off)"
        return "its sharding was given and may not change"
    if receives:
        return None
    if op.is_parameter:
        return "parameters may not be given a sharding (to_parameters is off)"
    if nodes.graph.is_root(i):
        return "the root of a computation may not be given a sharding"
    return f"GSPMD gives {op.opcode}{' ' + op.target if op.target else ''} no tiled sharding"


def _verdict(state: PropagationState, value: ValueLeaf, offered: HloSharding, lost: str) -> str:
    p, leaf = state.nodes.place[value[0]], value[1]
    offered = leaf_sharding(offered, leaf) or offered
    if not is_split(offered):
        return lost
    shape, text = state.nodes.ops[p].shape, spell_in_mesh(state, offered)
    shape = shape if leaf is None else shape.leaves[leaf]
    if improve(leaf_sharding(state.at(p), leaf), offered, shape, combine=state.nodes.spmd) is None:
        return f"it would give {text}, which does not improve on what is there"
    return f"it would give {text}, which was refused when it was offered"


def _fates(state: PropagationState, p: int, n: int, sharding: HloSharding) -> str:
    """What becomes of the split dims of operand `n`."""
    split = [d for d, ways in enumerate(sharding.leaves[0].data_dims) if ways > 1]
    signature = signature_of(state.nodes.graph.instructions[state.nodes.ids[p]])
    found: dict[str, list[int]] = {}
    for dim in split:
        found.setdefault(_fate(signature, n, dim), []).append(dim)
    return "; ".join(f"{_dims(dims)} {fate}" for fate, dims in found.items())


def _dims(dims: list[int]) -> str:
    *first, last = map(str, dims)
    return f"dims {', '.join(first)} and {last} are" if first else f"dim {last} is"


def _fate(signature: object, n: int, dim: int) -> str:
    if not isinstance(signature, Signature) or n >= len(signature.operands):
        return "opaque to it"
    factors = signature.operands[n][dim]
    owed = [signature.factors[f].owes for f in factors]
    kinds = {debt.kind for debt in owed if isinstance(debt, Reduce)}
    if kinds:
        return "summed over" if kinds == _SUM else "reduced"
    if any(isinstance(debt, Whole) for debt in owed):
        return "needed whole"
    kept = any(f in dims for f in factors for result in signature.results for dims in result)
    return "not passed on" if kept else "not in the result"
