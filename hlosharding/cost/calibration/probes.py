"""What to measure: ops and collectives, each with what the cost formulas say it takes.

Floor: cost.  A probe is a value: its sizes, and the op as a function of JAX arrays.  Knows no clocks and no devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import prod
from operator import matmul
from typing import Any

from hlosharding.cost.collective_time import collective_time
from hlosharding.cost.machine import Machine
from hlosharding.cost.model import local_time
from hlosharding.cost.work import OpWork

RANKS = "ranks"
"""Name of the mesh axis along which a probed collective works."""
Dims = tuple[int, ...]
Compute = Callable[..., Any]
"""One device's op on its own JAX arrays."""

CALL, LAUNCH, PRODUCT, STREAM, ARITHMETIC = "program call", "launch", "product", "stream", "arithmetic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One op or collective of one size.

    >>> from hlosharding.cost import machines
    >>> probe = product_probe(1024, 1024, 1024)
    >>> str(probe), probe.predict_seconds(machines.h100()) > machines.h100().launch
    ('product f32[1024,1024] f32[1024,1024]', True)
    """

    kind: str
    """What it tells of: a local op's word above, or a collective's kind."""
    dtype: str = "f32"
    operands: tuple[Dims, ...] = ()
    """Sizes of each device's arrays; the first is overwritten between two runs of the op."""
    work: OpWork | None = None
    """Of a local op."""
    nbytes: float = 0.0
    """Of a collective, as `collective_time` counts them."""
    group: int = 1
    """Devices that take part in a collective together; all such groups work at once."""
    compute: Compute | None = field(default=None, compare=False, repr=False)

    def predict_seconds(self, machine: Machine) -> float:
        """Seconds that the cost formulas give it."""
        if self.kind == CALL:
            return machine.program_launch
        if self.work is not None:
            return local_time(self.work, self.work.bytes, machine)
        return collective_time(self.kind, self.nbytes, self.group, None, machine)

    def __str__(self) -> str:
        arrays = " ".join(f"{self.dtype}[{','.join(map(str, dims))}]" for dims in self.operands)
        return f"{self.kind} {arrays}" + (f" over {self.group}" if self.group > 1 else "")


def all_probes(num_devices: int, *, largest: int = 2048) -> list[Probe]:
    """A grid over all that a machine's figures tell of; `largest`: rows of the largest product.

    >>> {probe.kind for probe in all_probes(1)} == {CALL, LAUNCH, PRODUCT, STREAM, ARITHMETIC}
    True
    """
    sizes = [size for size in (64, 128, 256, 512, 1024, 2048, 4096, 8192) if size <= largest]
    squares = [product_probe(size, size, size, dtype) for dtype in ("f32", "bf16") for size in sizes]
    flat = [product_probe(size, size // 4, size * 2) for size in sizes[2:]]
    local = [call_probe(), launch_probe(), *squares, *flat, *memory_probes(largest)]
    return [*local, *collective_probes(num_devices, largest)]


def call_probe() -> Probe:
    """A program that does next to nothing."""
    return Probe(kind=CALL, operands=((8, 8), (8, 8)), compute=matmul)


def launch_probe() -> Probe:
    """A product so small that all it takes is its start."""
    return Probe(kind=LAUNCH, operands=((8, 8), (8, 8)), work=_product_work((8, 8, 8), "f32"), compute=matmul)


def product_probe(rows: int, depth: int, columns: int, dtype: str = "f32") -> Probe:
    """A matrix product."""
    work = _product_work((rows, depth, columns), dtype)
    return Probe(kind=PRODUCT, dtype=dtype, operands=((rows, depth), (depth, columns)), work=work, compute=matmul)


def memory_probes(largest: int) -> Iterator[Probe]:
    """Elementwise ops: some that move much, some that compute much."""
    for rows in (128, 256, 512, 1024, 2048, 4096):
        if rows <= largest:
            for columns in sorted({128, rows}):
                yield elementwise_probe(STREAM, (rows, columns), flops=2, compute=lambda x: x * 0.5 + 0.25)
    for rows in (64, 256):
        yield elementwise_probe(ARITHMETIC, (rows, 256), flops=2 * _DEGREE, compute=_polynomial)
        yield elementwise_probe(ARITHMETIC, (rows, 256), transcendentals=1, compute=lambda x: _lax().tanh(x))


def elementwise_probe(
    kind: str, dims: Dims, *, flops: float = 0.0, transcendentals: float = 0.0, compute: Compute | None = None
) -> Probe:
    """One fused op on an array of f32: it is read, and another one is written."""
    size = prod(dims)
    work = OpWork(flops * size, transcendentals * size, 8.0 * size)
    return Probe(kind=kind, operands=(dims,), work=work, compute=compute)


def collective_probes(num_devices: int, largest: int) -> Iterator[Probe]:
    """Every kind, over groups of every size that halving leaves, with messages of every size."""
    groups = [size for size in _halve(num_devices) if size > 1]
    for group in groups:
        for rows in (16, 256, 2048, 8192):
            # 8 KiB to 4 MiB a device; a gathered array is `group` times as large.
            if rows <= largest:
                dims = (max(1, rows // group) * group, 128)
                yield from (collective_probe(kind, dims, group) for kind in _COLLECTIVES)


def collective_probe(kind: str, dims: Dims, group: int) -> Probe:
    """One collective on each device's array of `dims` (f32)."""
    nbytes = 4.0 * prod(dims) * (group if kind == "all-gather" else 1)
    compute = partial(_COLLECTIVES[kind], group=group)
    return Probe(kind=kind, operands=(dims,), nbytes=nbytes, group=group, compute=compute)


def _halve(number: int) -> list[int]:
    sizes = [number]
    while sizes[-1] % 2 == 0:
        sizes.append(sizes[-1] // 2)
    return sizes


def _product_work(sizes: tuple[int, int, int], dtype: str) -> OpWork:
    rows, depth, columns = sizes
    nbytes = (rows * depth + depth * columns + rows * columns) * _WIDTHS[dtype]
    return OpWork(2.0 * prod(sizes), 0.0, float(nbytes), (1, rows, columns, depth), dtype)


_WIDTHS = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2}
_DEGREE = 32
"""Of the polynomial: 64 FLOPs for the 8 bytes of an element, and arrays so small that they stay in a cache."""


def _polynomial(x: Any) -> Any:
    """By Horner's rule: two FLOPs a degree."""
    value = x
    for _ in range(_DEGREE):
        value = value * x + 0.125
    return value


def _lax() -> Any:
    from jax import lax

    return lax


_COLLECTIVES: dict[str, Compute] = {
    "all-reduce": lambda x, group: _lax().psum(x, RANKS),
    "all-gather": lambda x, group: _lax().all_gather(x, RANKS, tiled=True),
    "reduce-scatter": lambda x, group: _lax().psum_scatter(x, RANKS, tiled=True),
    "all-to-all": lambda x, group: _lax().all_to_all(x, RANKS, 0, 0, tiled=True),
    "collective-permute": lambda x, group: _lax().ppermute(x, RANKS, [(n, (n + 1) % group) for n in range(group)]),
}
