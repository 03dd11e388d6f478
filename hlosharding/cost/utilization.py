"""FLOPs of matrix products, and which share they are of what devices could do in that time: MFU and HFU.

Floor: cost.  Hardware FLOPs are those that devices do.  Model FLOPs are those of the program as one device would run
it, nothing twice: without what `jax.checkpoint` computes again, and of attention all scores whatever the mask, twice
forward and four times backward, fused or not (Chowdhery and others 2022, appendix B; Korthikanti and others 2022).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod

from hlosharding.cost.machine import Machine
from hlosharding.cost.work import OpWork, op_work
from hlosharding.ir import Instruction, Module, executions, fused_attention

FlopsByType = Mapping[str, float]
"""By the element type of the operands."""
_BACKWARD, _RECOMPUTED = "transpose(", "rematted_computation"
"""In JAX's op names of backward passes, and of what these compute again."""


def hardware_flops(module: Module) -> FlopsByType:
    """Of the matrix products that a device runs.

    >>> import hlosharding as hs, jax.numpy as jnp
    >>> hardware_flops(hs.trace(jnp.dot)(jnp.ones((8, 4)), jnp.ones((4, 2))))
    {'f32': 128.0}
    """
    return _by_type((work.dtype, work.flops * count) for _, work, count in _products(module))


def model_flops(module: Module) -> FlopsByType:
    """Of the products of a program that was not partitioned, none counted twice.

    >>> import hlosharding as hs, jax, jax.numpy as jnp
    >>> def loss(w, x):
    ...     return jnp.sum(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x @ w) @ w))(x))
    >>> step = hs.trace(jax.value_and_grad(loss, argnums=(0, 1)))(jnp.ones((4, 4)), jnp.ones((8, 4)))
    >>> [counted(step)["f32"] / (2 * 8 * 4 * 4) for counted in (hardware_flops, model_flops)]
    [8.0, 6.0]
    """
    products = list(_products(module))
    forward = {_sameness_key(op) for op, _, _ in products if _BACKWARD not in op.op_name}
    # Where nobody asks for the loss the last layer's first pass is dead, and the second one is not a second one.
    once = [each for each in products if _RECOMPUTED not in each[0].op_name or _sameness_key(each[0]) not in forward]
    trained = {op.location for op, _, _ in once if (call := fused_attention(op)) and call.is_backward}
    return _by_type((work.dtype, _unfused_flops(op, work, trained) * count) for op, work, count in once)


def _products(module: Module) -> Iterator[tuple[Instruction, OpWork, int]]:
    """What a device's matrix units do, and how often."""
    for computation, runs in executions(module).items():
        for op in computation.instructions if not runs.is_fused else ():
            work = op_work(op)
            if work.matrix is not None:
                yield op, work, runs.count


def _by_type(counts: Iterable[tuple[str, float]]) -> FlopsByType:
    found: defaultdict[str, float] = defaultdict(float)
    for dtype, flops in counts:
        found[dtype] += flops
    return dict(found)


def _sameness_key(op: Instruction) -> tuple[object, ...]:
    """The same of a product and of what computes it again."""
    return op.opcode, op.location, op.shape, *(operand.shape for operand in op.operands)


def _unfused_flops(op: Instruction, work: OpWork, trained: Collection[str]) -> float:
    """Of a call of fused attention those of its products if they were written out.  One that goes backward has those of
    its forward pass, too: whether another call is that pass, or computes it again, the op names do not tell.
    """
    attention = fused_attention(op)
    if attention is None:
        return work.flops
    products = 6 if attention.is_backward else 0 if op.location in trained else 2
    return products * 2.0 * prod(work.matrix or ())


@dataclass(frozen=True, slots=True)
class WholeStep:
    """A step as it is before it is cut and partitioned.

    >>> import hlosharding as hs, jax.numpy as jnp
    >>> table, words = jnp.ones((32, 4)), jnp.ones((8, 16), int)
    >>> WholeStep.of(hs.trace(lambda table, words: table[words] @ table.T)(table, words), [1]).tokens
    128
    """

    flops: FlopsByType
    """As of `model_flops`."""
    tokens: int | None
    """None where nothing says what a token is."""

    @classmethod
    def of(cls, module: Module, batch: Collection[int] = ()) -> WholeStep:
        """`batch`: numbers of the arguments that have the batch; its tokens are integers [batch, length], of one
        shape.
        """
        shapes = (p.shape for p in module.entry.parameters if p.parameter_number in batch)
        sizes = {shape.size for shape in shapes if len(shape.dims) == 2 and shape.is_integral}
        return cls(model_flops(module), sizes.pop() if len(sizes) == 1 else None)


def utilization(flops: FlopsByType, seconds: float, machine: Machine) -> float:
    """Which share these are of what all devices could do in that time, each type at its peak.

    `flops`: of all devices together.

    >>> from hlosharding.cost import machines
    >>> machine = machines.h100(8)
    >>> utilization({"bf16": 8 * 0.4 * machine.flops("bf16")}, 1.0, machine)
    0.4
    """
    needed = sum(count / machine.flops(dtype) for dtype, count in flops.items())
    return needed / (seconds * machine.num_devices) if seconds else 0.0
