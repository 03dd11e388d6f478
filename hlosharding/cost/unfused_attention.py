"""Attention that is written out as product, softmax, product: what it takes, and what a fused kernel would take.

Floor: cost.  Scores are what a product with batch dims makes and an exponential reads; all that is made of them element
by element, what reads that, and the products on both sides are one attention.  A part of it is a forward pass, a
backward pass, or both: by the number of its products.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from hlosharding.cost.model import CostReport, Priced, local_time
from hlosharding.cost.work import OpWork, flash_attention, op_work
from hlosharding.ir import Computation, Instruction, Module

_PASSES = {(True, 2): (False,), (False, 3): (True,), (False, 4): (True,), (True, 5): (True,), (True, 6): (False, True)}
"""By whether there is an exponential, and the number of products: passes, which go backward or not.  The gradient of
values reads probabilities that were kept, so it may stand apart; with five products scores are made again."""
_NARROW = frozenset({"bf16", "f16"})
"""What fused kernels take."""
_PLATFORMS = frozenset({"gpu", "tpu"})
_BYTES_OF_SUM = 4
"""Of a row of the softmax, f32."""


class UnfusedAttention(NamedTuple):
    """Of one place in the program, all its executions on one device."""

    location: str
    time_s: float
    nbytes: float
    """Read and written by its kernels."""
    fused_s: float
    """What a fused kernel would take, of scores that are all looked at."""
    fused_bytes: float

    @property
    def saved_s(self) -> float:
        return self.time_s - self.fused_s

    @property
    def saved_bytes(self) -> float:
        return self.nbytes - self.fused_bytes


def unfused_attention(module: Module, report: CostReport) -> list[UnfusedAttention]:
    """By source line, what would save most first; only what a fused kernel makes faster.

    >>> import hlosharding as hs, jax, jax.numpy as jnp
    >>> x = jax.ShapeDtypeStruct((16, 2048, 64), jnp.bfloat16)
    >>> module = hs.trace(lambda q, k, v: jax.nn.softmax(q @ k.swapaxes(1, 2)) @ v, platform="cuda")(x, x, x)
    >>> [found] = unfused_attention(module, hs.cost(module, hs.machines.h100(1)))
    >>> found.fused_s < found.time_s / 2, found.fused_bytes / (4 * 16 * 2048 * 64 * 2) < 1.05
    (True, True)
    """
    if report.machine.platform not in _PLATFORMS:
        return []
    rows = {row.instruction: row for row in report.rows}
    parts = [part for computation in module.computations for part in _find_parts(computation, rows, report)]
    lines = dict.fromkeys(part.location for part in parts)
    found = [_add_up(line, (part for part in parts if part.location == line)) for line in lines]
    return sorted((each for each in found if each.saved_s > 0), key=lambda each: -each.saved_s)


def _add_up(location: str, parts: Iterable[UnfusedAttention]) -> UnfusedAttention:
    return UnfusedAttention(location, *map(sum, zip(*(part[1:] for part in parts), strict=True)))


def _find_parts(
    computation: Computation, rows: dict[Instruction, Priced], report: CostReport
) -> Iterator[UnfusedAttention]:
    seen: set[Instruction] = set()
    for op in computation.instructions:
        if _is_batched(op) and op in rows and op not in seen:
            scores = _Scores(op)
            seen |= scores.products
            passes = _PASSES.get((scores.has_exponential, len(scores.products)))
            if passes and op.operands[0].shape.element_type in _NARROW:
                yield _price_part(op, scores, passes, rows, report)


def _is_batched(op: Instruction) -> bool:
    return op.opcode == "dot" and bool(op.dot_dims.lhs_batch)


class _Scores:
    """All that has as many elements as what a product makes, and is made of it."""

    def __init__(self, product: Instruction) -> None:
        self.size = product.shape.size
        self.products: set[Instruction] = set()
        self.kernels: set[Instruction] = set()
        """What makes them or reads them, products among them."""
        self.looked_through: set[Instruction] = set()
        """What may be made of other products: a second look would find the same ones."""
        self._follow([product])

    @property
    def has_exponential(self) -> bool:
        return any(op.opcode == "exponential" for op in self.kernels)

    def _follow(self, derived: list[Instruction]) -> None:
        while derived:
            op = derived.pop()
            if op in self.kernels:
                continue
            readers = list(_readers(op))
            self.kernels |= {op, *(user for user in readers if not self._holds(user))}
            self.products |= {each for each in (op, *readers) if _is_batched(each)}
            derived += [user for user in readers if self._holds(user)]
            derived += self._makers(op)

    def _holds(self, op: Instruction) -> bool:
        return op.opcode != "dot" and op.shape.is_array and op.shape.size == self.size

    def _makers(self, op: Instruction) -> Iterator[Instruction]:
        """Other products whose results meet here; what was kept, and masks, make nothing."""
        left = [] if op.opcode == "dot" else list(_values_read(op))
        while left:
            operand = left.pop()
            if operand in self.kernels or operand in self.looked_through:
                continue
            self.looked_through.add(operand)
            if operand.shape.is_array and operand.shape.size == self.size:
                if _is_batched(operand):
                    yield operand
                elif operand.opcode != "dot":
                    left += _values_read(operand)


def _readers(op: Instruction) -> Iterator[Instruction]:
    """What reads an op, be it as the element of a tuple."""
    for user in op.users:
        if user.opcode != "tuple":
            yield user
        places = [n for n, operand in enumerate(user.operands) if operand is op and user.opcode == "tuple"]
        yield from (each for each in user.users if each.opcode == "get-tuple-element" and each.tuple_index in places)


def _values_read(op: Instruction) -> Sequence[Instruction]:
    """What an op reads, of a tuple that was just made the element."""
    is_element = op.opcode == "get-tuple-element" and op.operands[0].opcode == "tuple"
    return (op.operands[0].operands[op.tuple_index],) if is_element else op.operands


def _price_part(
    op: Instruction, scores: _Scores, passes: tuple[bool, ...], rows: dict[Instruction, Priced], report: CostReport
) -> UnfusedAttention:
    own = [rows[each] for each in scores.kernels if each in rows]
    fused = [_fused_work(op, is_backward) for is_backward in passes]
    runs = rows[op].executions
    return UnfusedAttention(
        op.location,
        sum(row.time_s for row in own),
        sum(row.bytes for row in own),
        runs * sum(local_time(work, work.bytes, report.machine) for work in fused),
        runs * sum(work.bytes for work in fused),
    )


def _fused_work(product: Instruction, is_backward: bool) -> OpWork:
    """Of a fused kernel that makes these scores: it reads queries, keys and values, and writes the result and a sum a
    row; backward it reads these and the result's gradient, too, and writes three gradients.
    """
    sizes, dtype = op_work(product).matrix or (1, 1, 1, 1), product.operands[0].shape
    batch, queries, keys, depth = sizes
    arrays = 2 * (queries + keys) * depth * dtype.bits // 8
    nbytes = batch * ((2 if is_backward else 1) * arrays + _BYTES_OF_SUM * queries)
    return flash_attention(sizes, dtype.element_type, nbytes, is_backward=is_backward)
