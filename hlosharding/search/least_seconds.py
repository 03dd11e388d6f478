"""What a plan takes at least, told before it is cut: exact prices need only decide among those that may be among the
fastest.

Floor: search.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from hlosharding.cost import Machine, op_work
from hlosharding.ir import PRODUCTS, Instruction, Module, executions
from hlosharding.schedule import SPLIT_BACKWARD, find_batch_flow, flowing_dim, order_and_chunks
from hlosharding.search.plans import Plan


@dataclass(frozen=True)
class LeastWork:
    """Seconds that the matrix products of a step take one device, at the best rate that its machine prices any at."""

    all_s: float
    of_batch_s: float
    """Part of it in products that read examples: of several microbatches each does its own share."""

    @classmethod
    def of(cls, module: Module, batch: Collection[int], machine: Machine) -> LeastWork:
        """`module`: not partitioned yet; `batch`: numbers of the parameters whose first dim is the batch.

        >>> import jax.numpy as jnp, hlosharding as hs
        >>> module = hs.trace(lambda w, x: (x @ w, w @ w))(jnp.ones((8, 8)), jnp.ones((8, 8)))
        >>> found = LeastWork.of(module, {1}, hs.machines.h100())
        >>> found.all_s == 2 * found.of_batch_s > 0
        True
        """
        flow, every, own = find_batch_flow(module, dict.fromkeys(batch, 0)), 0.0, 0.0
        for computation, runs in executions(module).items():
            # A branch may not be taken, and trips may be guessed: with work of these the bound could be too high.
            is_certain = runs.is_exact and not runs.in_conditional
            for op in computation.instructions if is_certain else ():
                seconds = runs.count * _seconds(op, machine)
                every += seconds
                if seconds and any(flowing_dim(operand, flow) is not None for operand in op.operands):
                    own += seconds
        return cls(every, own)


def _seconds(op: Instruction, machine: Machine) -> float:
    """Of a product, elements padded to no tile and no wave half empty; of any other op none."""
    work = op_work(op) if op.opcode in _PRODUCTS else None
    if work is None or work.matrix is None:
        return 0.0
    kinds = machine.parts or (machine,)  # of unlike nodes: nobody is faster than the fastest
    return work.flops / max(kind.flops(work.dtype) * kind.compute_efficiency for kind in kinds)


# Calls to a library are products, too, where their work is that of a matrix (`_seconds`): so is flash attention.
_PRODUCTS = PRODUCTS | {"custom-call"}


def least_seconds(plan: Plan, work: LeastWork) -> float:
    """No schedule of the plan takes less, whatever its strategy moves and however its stages share the work.

    The D*T devices of stage s compute w_s seconds of the step.  So it takes T >= w_s, and the sum over all P stages
    gives T >= W/P.  Where stages are one piece each, a chain of which each reads what the one before makes, more is
    sure: the first of K microbatches comes to stage s through all stages before, and what s does last goes back through
    these, so T >= w_s + (w_1 + ... + w_{s-1}) / K.  With W_s = w_1 + ... + w_s this is W_s <= T + (1 - 1/K) W_{s-1},
    and by induction W = W_P <= T * K * (1 - (1 - 1/K)^P).  Here W counts what microbatches do alone: updates run once.

    (The bubble of equal stages, T = W/P * (1 + (P-1)/K), is no bound for unequal ones: two stages with 2/3 and 1/3 of
    the work, of which the backward pass is 2/3, take 0.722 W by 1F1B with K = 2, and that bubble gives 0.75 W.)

    >>> work = LeastWork(8.0, 8.0)
    >>> least_seconds(Plan(2, 2), work), least_seconds(Plan(1, 1, 2, 1), work), least_seconds(Plan(1, 1, 2, 2), work)
    (2.0, 8.0, 5.333333333333333)
    >>> least_seconds(Plan(1, 1, 2, 2, "1f1b-x2"), work)
    4.0
    """
    devices, count = plan.data * plan.tensor, plan.microbatches
    shared = work.all_s / (devices * plan.stages)
    order, chunks = order_and_chunks(plan.schedule)
    if chunks > 1 or order in SPLIT_BACKWARD:  # no pass need wait for the gradients of weights
        return shared
    # T >= W / (K * (1 - (1 - 1/K)^P)) by the sum of the powers: where K is huge the difference is 0 to a float.
    return max(shared, work.of_batch_s / devices / sum((1 - 1 / count) ** stage for stage in range(plan.stages)))
