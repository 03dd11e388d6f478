"""Answers `explain`: the chain of causes of one value, and for a value that is not split, what stopped each neighbour.

Floor: propagation.  Reads a finished run.
"""

from __future__ import annotations

from collections.abc import Iterator

from hlosharding.propagation.fixpoint import FixPoint
from hlosharding.propagation.improving import improve
from hlosharding.propagation.inference import infer_forward
from hlosharding.propagation.op import Op
from hlosharding.propagation.policy import NEVER
from hlosharding.propagation.provenance import Explanation, Link, Step, Trail, is_split
from hlosharding.propagation.rare import offer
from hlosharding.sharding import HloSharding


def explain(points: FixPoint, trail: Trail, i: int) -> Explanation:
    """Why instruction `i` (by id) has what it has."""
    graph = points.nodes.graph
    sharding = graph.sharding[i]
    links: list[Link] = []
    steps = trail.chain(i)
    for step in steps:
        also = tuple(_name(points, s) for s in step.sources[:-1] if s != step.sources[-1])
        links.append(_link(points, step.instruction, _known(points, step.instruction, step.new), step, also))
    end = steps[-1].sources[-1] if steps and steps[-1].sources else i
    if not steps or steps[-1].sources:
        given = graph.given[end] if end < len(graph.given) else None
        links.append(_link(points, end, _known(points, end, given), None, ()))
    stopped = () if is_split(sharding) else tuple(_obstacles(points, points.nodes.place[i]))
    return Explanation(tuple(links), stopped)


def _known(points: FixPoint, i: int, sharding: HloSharding | None) -> HloSharding | None:
    """Unknown is a place holder, and propagation starts from replicated: then what the instruction has now."""
    return points.nodes.graph.sharding[i] if sharding is None or sharding.is_unknown() else sharding


def _name(points: FixPoint, i: int) -> str:
    return points.nodes.graph.instructions[i].name


def _link(points: FixPoint, i: int, sharding: HloSharding | None, step: Step | None, also: tuple[str, ...]) -> Link:
    graph = points.nodes.graph
    instruction = graph.instructions[i]
    direction, level = (step.direction, step.level) if step else (None, -1)
    where = instruction.location or (instruction.op_name if graph.opcode[i] == "parameter" else "")
    return Link(instruction.name, graph.opcode[i], where, sharding, direction, level, also)


def _obstacles(points: FixPoint, p: int) -> list[str]:
    if p < 0:
        return ["nothing sharded reaches its computation"]
    nodes, reasons = points.nodes, []
    for n, q in enumerate(nodes.inputs[p]):
        sharding = points.at(q)
        if sharding is not None and is_split(_element(points, p, sharding)):
            reasons.append(f"operand {n}, {_value(points, q)}: {_why_not_forward(points, p, n, sharding)}")
    for use in nodes.uses[p]:
        sharding = points.at(use[0])
        if is_split(sharding):
            offered = offer(points, p, use, NEVER)
            reasons.append(f"user {_value(points, use[0])}: {_why_not_backward(points, p, offered)}")
    return reasons or [*_upstream(points, p), "no neighbour is split"][:1]


def _element(points: FixPoint, p: int, sharding: HloSharding) -> HloSharding:
    """Of an operand's sharding the part that `p` sees: a get-tuple-element sees one leaf of a flat tuple."""
    inst = points.nodes.graph.instructions[points.nodes.ids[p]]
    if inst.opcode == "get-tuple-element" and sharding.is_tuple() and len(sharding.leaves) > inst.tuple_index:
        return sharding.leaf(inst.tuple_index)
    return sharding


def _upstream(points: FixPoint, p: int) -> Iterator[str]:
    """Where the nearest split on the way to a value ended: the op that did not pass it on, and why."""
    nodes, seen = points.nodes, {p}
    ring = [p]
    while ring:
        ring = [q for here in ring for q in _sources(points, here) if q >= 0 and not (q in seen or seen.add(q))]
        for here in ring:
            if not nodes.ops[here].shape.is_array:
                continue  # what matters of a tuple is the element that was asked for
            for n, q in enumerate(nodes.inputs[here]):
                sharding = points.at(q)
                if sharding is not None and is_split(_element(points, here, sharding)):
                    where = f"stopped at {_op(points, here)}"
                    reason = _why_not_forward(points, here, n, sharding)
                    yield f"nothing reached it: the split of {_value(points, q)} {where}: {reason}"
                    return


def _sources(points: FixPoint, p: int) -> list[int]:
    """Where a value comes from; an element of a loop's result from that element of what the body makes."""
    nodes = points.nodes
    inst = nodes.graph.instructions[nodes.ids[p]]
    loop = inst.operands[0] if inst.opcode == "get-tuple-element" else None
    if loop is not None and loop.opcode == "while" and loop.called[0].root.opcode == "tuple":
        return [nodes.place[loop.called[0].root.operands[inst.tuple_index].id]]
    return list(nodes.inputs[p])


def _op(points: FixPoint, p: int) -> str:
    inst = points.nodes.graph.instructions[points.nodes.ids[p]]
    return f"%{inst.name} ({inst.opcode}{f' at {inst.location}' if inst.location else ''})"


def _value(points: FixPoint, q: int) -> str:
    return f"%{_name(points, points.nodes.ids[q])} {points.at(q)}"


def _why_not_forward(points: FixPoint, p: int, n: int, sharding: HloSharding) -> str:
    op = points.nodes.ops[p]
    fixed = _fixed(points, p, receives=op.receives)
    if fixed:
        return fixed
    operands: list[HloSharding | None] = [None] * len(points.nodes.inputs[p])
    operands[n] = sharding
    outcome = infer_forward(op, None, operands, 3)
    if outcome is None:
        return f"{op.opcode} takes nothing from that operand"
    return _verdict(points, p, outcome[0], f"none of its split dims {_dims(sharding)} lives on in the result")


def _why_not_backward(points: FixPoint, p: int, offered: HloSharding | None) -> str:
    nodes = points.nodes
    fixed = _fixed(points, p, receives=nodes.receives_backward(nodes.ids[p], nodes.ops[p]))
    if fixed:
        return fixed
    if offered is None:
        return "it asks nothing of this operand"
    return _verdict(points, p, offered, "none of its split dims exists here")


def _fixed(points: FixPoint, p: int, *, receives: bool) -> str | None:
    nodes, i = points.nodes, points.nodes.ids[p]
    op: Op = nodes.ops[p]
    if i in nodes.provided:
        if nodes.graph.is_root(i) and points.at(p) is None:
            return "the result of the program may not be given a sharding (to_outputs is off)"
        return "its sharding was given and may not change"
    if receives:
        return None
    if op.opcode == "parameter":
        return "parameters may not be given a sharding (to_parameters is off)"
    if nodes.graph.is_root(i):
        return "the root of a computation may not be given a sharding"
    return f"GSPMD gives {op.opcode}{' ' + op.target if op.target else ''} no tiled sharding"


def _verdict(points: FixPoint, p: int, offered: HloSharding, lost: str) -> str:
    if not is_split(offered):
        return lost
    if improve(points.at(p), offered, points.nodes.ops[p].shape, combine=points.nodes.spmd) is None:
        return f"it would give {offered}, which does not improve on what is there"
    return f"it would give {offered}, which was refused when it was offered"


def _dims(sharding: HloSharding) -> list[int]:
    return [d for d, ways in enumerate(sharding.leaves[0].data_dims) if ways > 1]
