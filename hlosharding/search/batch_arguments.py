"""Which arguments have the batch as their first dim, read off the program: nobody has to say so.

Floor: search.  No example meets another one before the loss; gradients of weights add up what each makes.  So nearly
all products have the batch as a dim, of the result or of such a sum, and none has it as two.  A dim of weights ends
where they are first multiplied, and positions of a sequence meet each other in attention.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from hlosharding.cost import op_work
from hlosharding.errors import ScheduleError
from hlosharding.ir import PRODUCTS, Instruction, Module, executions
from hlosharding.rules import Signature, signature_of
from hlosharding.schedule import find_batch_flow, flowing_dim
from hlosharding.search.planner import argument_of
from hlosharding.search.updates import find_updated

_MOST = 0.8
"""Of the work: who reaches so much of it is the batch, and nobody else is looked at."""
_LEAST = 0.4
"""Of the work: tokens of which a third is masked, or labels, which the backward pass alone reads, reach more; heads of
attention's weights a third at most."""

Flow = Mapping[Instruction, tuple[int | None, ...]]


def find_batch(module: Module) -> tuple[int, ...]:
    """Numbers of the parameters whose first dim is the batch.  Raises ScheduleError where none is found.

    >>> import jax, jax.numpy as jnp, hlosharding as hs
    >>> def step(w, tokens, targets):
    ...     loss = lambda w: jnp.sum((jnp.tanh(w["in"][tokens]) @ w["out"] - targets) ** 2)
    ...     return jax.tree.map(lambda w, g: w - g, w, jax.grad(loss)(w))
    >>> weights = {"in": jnp.ones((16, 4)), "out": jnp.ones((4, 8))}
    >>> module = hs.trace(step)(weights, jnp.ones((32, 6), int), jnp.ones((32, 6, 8)))
    >>> [module.entry.parameters[n].op_name for n in find_batch(module)]
    ['tokens', 'targets']
    """
    work = _product_flops(module)
    candidates, flows = list(_candidates(module)), dict[Instruction, Flow]()
    reached = dict[Instruction, float]()
    for parameter in candidates:
        flows[parameter] = find_batch_flow(module, {parameter.parameter_number: 0})
        reached[parameter] = _reached_work(work, flows[parameter])
        if reached[parameter] >= _MOST * sum(work.values()):
            break
    first = max(reached, key=reached.__getitem__, default=None)
    if first is None or not work or reached[first] < _LEAST * sum(work.values()):
        raise ScheduleError(
            "no argument was found whose first dim is the batch: none reaches most matrix products",
            remedy='name those that have examples: batch=["tokens"]; for a program without, take hs.find_optimum',
        )
    rows = first.shape.dims[0]
    alike = [p for p in candidates if p is first or (p.shape.dims[0] == rows and _meet(module, flows, first, p))]
    return tuple(sorted(p.parameter_number for p in alike))


def _candidates(module: Module) -> Iterator[Instruction]:
    """Arrays that the step does not update, those of the smallest arguments first: examples are few arrays."""
    updated = set(find_updated(module).values())
    arrays = [p for p in module.entry.parameters if p.shape.is_array and p.shape.dims and p not in updated]
    count = Counter(map(argument_of, module.entry.parameters))
    yield from sorted(
        (p for p in arrays if p.shape.dims[0] > 1),
        # Integers first: tokens are, weights are not; each one tried in vain costs a walk through the program.
        key=lambda p: (p.shape.is_floating, count[argument_of(p)], p.parameter_number),
    )


def _product_flops(module: Module) -> dict[Instruction, float]:
    """Work of the matrix products, in multiplications and additions."""
    return {
        op: runs.count * op_work(op).flops
        for computation, runs in executions(module).items()
        for op in computation.instructions
        if op.opcode in PRODUCTS
    }


def _reached_work(work: Mapping[Instruction, float], flow: Flow) -> float:
    """Of products along whose batch the flow goes: into the result, or into a sum over it on both sides."""
    total = 0.0
    for op, flops in work.items():
        factors = _flowing_factors(op, flow)
        if len(set(factors)) > 1:
            total -= flops
        elif flowing_dim(op, flow) is not None or len(factors) > 1:
            total += flops
    return total


def _flowing_factors(op: Instruction, flow: Flow) -> list[int]:
    """Of each operand along which something flows, the factor that leads the dim."""
    signature = signature_of(op)
    if not isinstance(signature, Signature):
        return []
    both = zip(signature.operands, (flowing_dim(operand, flow) for operand in op.operands), strict=True)
    return [factors[dim][0] for factors, dim in both if dim is not None and factors[dim]]


def _meet(module: Module, flows: dict[Instruction, Flow], first: Instruction, other: Instruction) -> bool:
    """Do both flow along the same dims wherever they meet?"""
    if other not in flows:
        flows[other] = find_batch_flow(module, {other.parameter_number: 0})
    leaves = [(a, b) for op, dims in flows[first].items() for a, b in zip(dims, flows[other][op], strict=True)]
    met = [a == b for a, b in leaves if a is not None and b is not None]
    return bool(met) and all(met)
