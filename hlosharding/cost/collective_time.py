"""What one collective costs in bytes and seconds, on a given machine: the cheapest algorithm that it has counts.

Floor: cost.  Knows kinds, sizes, device groups and links; nothing of instructions.  GPUs run NCCL (see `nccl.py`).
Others have the formulas here, alpha-beta: n ranks, S bytes of the full (gathered, reduced or exchanged) local buffer, W
bytes per second per direction and device, a the latency of a hop; g ranks a node, N nodes.  They are those of Thakur,
Rabenseifner and Gropp 2005 (ring, recursive halving and doubling, Bruck), hierarchical rings, and for tori the scaling
book's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import ceil, log2

from hlosharding.cost.machine import Link, Machine
from hlosharding.cost.nccl import nccl_time
from hlosharding.cost.placement import GroupPlacement, group_placement, permute_placement
from hlosharding.errors import CostError
from hlosharding.spmd import Groups

# One level: all members joined by links of one class.  Each list holds every algorithm we know; the cheapest counts.

Formula = Callable[[int, float, float, float], float]
"""(n, S, a, W) -> seconds."""


def _steps(n: int) -> int:
    return ceil(log2(n))


def _ring(n: int, size: float, a: float, w: float) -> float:
    return (n - 1) * a + (n - 1) / n * size / w


def _doubling(n: int, size: float, a: float, w: float) -> float:
    return _steps(n) * a + (n - 1) / n * size / w


def _ring_twice(n: int, size: float, a: float, w: float) -> float:
    return 2 * _ring(n, size, a, w)


def _halving_doubling(n: int, size: float, a: float, w: float) -> float:
    # Rabenseifner: other than powers of two fold their surplus in first and out last.
    fold = 0.0 if n & (n - 1) == 0 else 2 * (a + size / w)
    power = 1 << (n.bit_length() - 1)
    return 2 * _doubling(power, size, a, w) + fold if power > 1 else fold


def _tree_twice(n: int, size: float, a: float, w: float) -> float:
    return 2 * _steps(n) * a + 2 * size / w


def _pipelined_ring(n: int, size: float, a: float, w: float) -> float:
    return (n - 1) * a + size / w


def _tree(n: int, size: float, a: float, w: float) -> float:
    return _steps(n) * a + size / w


def _bruck(n: int, size: float, a: float, w: float) -> float:
    return _steps(n) * (a + size / (2 * w))


_EXCHANGES = ("all-to-all", "ragged-all-to-all")
_GATHER: dict[str, Formula] = {"ring": _ring, "doubling": _doubling}
_REDUCE: dict[str, Formula] = {"ring": _ring_twice, "halving-doubling": _halving_doubling, "tree": _tree_twice}
_EXCHANGE: dict[str, Formula] = {"pairwise": _ring, "bruck": _bruck}
_SPREAD: dict[str, Formula] = {"pipelined ring": _pipelined_ring, "tree": _tree}
ALGORITHMS: dict[str, dict[str, Formula]] = {
    "all-gather": _GATHER,
    "reduce-scatter": _GATHER,
    "all-reduce": _REDUCE,
    **dict.fromkeys(_EXCHANGES, _EXCHANGE),
    "collective-broadcast": _SPREAD,
}


def _one_level(kind: str, n: int, size: float, link: Link) -> tuple[float, str]:
    if n < 2:
        return 0.0, "none"
    table = ALGORITHMS[kind]
    return min((formula(n, size, link.latency, link.bandwidth), name) for name, formula in table.items())


def _two_levels(kind: str, where: GroupPlacement, size: float, machine: Machine) -> tuple[float, str]:
    if where.per_node == 1:
        return _one_level(kind, where.nodes, size, machine.between)
    return min(_flat(kind, where, size, machine), _hierarchical(kind, where, size, machine))


def _flat(kind: str, where: GroupPlacement, size: float, machine: Machine) -> tuple[float, str]:
    """One ring (or direct exchange) over all ranks; a node's g cards carry g rings side by side."""
    n, g, nodes, inside, between = *where[:3], machine.inside, machine.between
    hops = (n - nodes) * inside.latency + (nodes - 1) * between.latency
    if kind in _EXCHANGES:
        # Both classes of links work at once; the slower one decides.
        near, far = size * (g - 1) / n / inside.bandwidth, size * (n - g) / n / between.bandwidth
        return (n - g) * between.latency + (g - 1) * inside.latency + max(near, far), "direct"
    bandwidth = min(inside.bandwidth, g * between.bandwidth)
    if kind == "collective-broadcast":
        return hops + size / bandwidth, "flat ring"
    times = 2 if kind == "all-reduce" else 1
    return times * (hops + (n - 1) / n * size / bandwidth), "flat ring"


def _hierarchical(kind: str, where: GroupPlacement, size: float, machine: Machine) -> tuple[float, str]:
    """Inside the nodes on the whole, between them on a g-th: 2(g-1)/g S/W_in + 2(N-1)/N (S/g)/W_out for all-reduce."""
    g = where.per_node
    near, _ = _one_level("all-gather" if kind == "all-reduce" else kind, g, size, machine.inside)
    far, _ = _one_level(kind, where.nodes, size if kind in _EXCHANGES else size / g, machine.between)
    return (2 * near if kind == "all-reduce" else near) + far, "hierarchical"


def _torus(kind: str, where: GroupPlacement, size: float, machine: Machine) -> tuple[float, str]:
    """Rings along every axis at once: their links add up; an open chain uses its links one way at a time."""
    link, n = machine.inside, where.size
    width = sum((2 if closed else 1) / stride for _, stride, closed in where.axes) * link.bandwidth
    hops = sum((count // 2 if closed else count - 1) * stride for count, stride, closed in where.axes)
    if kind in _EXCHANGES:
        # Half of all data crosses the middle of the longest axis: n S / 4 each way over n / count links.
        cut = max(count * stride * (0.5 if closed else 1) for count, stride, closed in where.axes)
        return hops * link.latency + max(cut * size / (4 * link.bandwidth), (n - 1) / n * size / width), "torus"
    share = 1.0 if kind == "collective-broadcast" else (n - 1) / n
    times = 2 if kind == "all-reduce" else 1
    return times * (hops * link.latency + share * size / width), "torus rings"


def _alpha_beta(kind: str, size: float, where: GroupPlacement, machine: Machine) -> tuple[float, str]:
    if kind == "collective-permute":
        link = machine.between if where.nodes > 1 else machine.inside
        return where.hops * link.seconds(size), "direct"
    if where.nodes > 1:
        return _two_levels(kind, where, size, machine)
    if where.axes:
        return _torus(kind, where, size, machine)
    return _one_level(kind, where.size, size, machine.inside)


@lru_cache(maxsize=262144)
def placement_time(kind: str, nbytes: float, where: GroupPlacement, machine: Machine) -> tuple[float, str]:
    """Seconds and the name of the cheapest algorithm, for callers that hold a `GroupPlacement`."""
    if where.size < 2 or nbytes <= 0:
        return 0.0, "none"
    if kind not in ALGORITHMS and kind != "collective-permute":
        known = ", ".join((*ALGORITHMS, "collective-permute"))
        raise CostError(f"no price for collective {kind!r}", remedy=f"use one of {known}")
    if machine.nccl is not None:
        seconds, name = nccl_time(kind, nbytes, where, machine)
    else:
        seconds, name = _alpha_beta(kind, nbytes / machine.collective_rate(kind), where, machine)
    return machine.collective_launch + seconds, name


def collective_time(
    kind: str, nbytes: float, group_size: int, groups: Sequence[Sequence[int]] | None, machine: Machine
) -> float:
    """Seconds of one execution of a collective.

    `nbytes` is the full local buffer: the *output* of an all-gather, the *input* of a reduce-scatter, and the one
    local buffer of all-reduce, all-to-all, broadcast and permute.  `groups` are device groups, or for a permute
    (source, target) pairs; None means `group_size` neighbours (ids 0, 1, ...).  Nothing to send costs nothing.

    >>> from hlosharding.cost import machines
    >>> h100 = machines.h100(16)
    >>> near = collective_time("all-reduce", 1e9, 8, (tuple(range(8)),), h100)
    >>> far = collective_time("all-reduce", 1e9, 8, (tuple(range(0, 16, 2)),), h100)
    >>> near < far
    True
    """
    if kind == "collective-permute":
        pairs = ((0, 1),) if groups is None else _tuples(groups)
        return placement_time(kind, nbytes, permute_placement(pairs, machine), machine)[0]  # pyright: ignore[reportArgumentType]
    where = _neighbours(group_size, machine) if groups is None else group_placement(_tuples(groups), machine)
    return placement_time(kind, nbytes, where, machine)[0]


@lru_cache(maxsize=4096)
def _neighbours(size: int, machine: Machine) -> GroupPlacement:
    return group_placement((tuple(range(size)),), machine)


def _tuples(groups: Sequence[Sequence[int]]) -> Groups:
    if isinstance(groups, tuple) and (not groups or isinstance(groups[0], tuple)):
        return groups  # pyright: ignore[reportReturnType]
    # Placements are remembered by them, for which lists have no hash.
    return tuple(tuple(int(d) for d in group) for group in groups)


@lru_cache(maxsize=262144)
def op_time(flops: float, nbytes: float, dtype: str, machine: Machine, *, matrix: bool = True) -> float:
    """Seconds of a local op by the roofline: start, then the slower of arithmetic and memory traffic.

    `flops` run on the matrix unit (`matrix`) or on the vector units; `nbytes` are read or written.

    >>> from hlosharding.cost import machines
    >>> h100 = machines.h100()
    >>> op_time(2 * 4096**3, 3 * 2 * 4096**2, "bf16", h100) > op_time(0, 3 * 2 * 4096**2, "bf16", h100)
    True
    """
    rate = machine.flops(dtype) * machine.compute_efficiency if matrix else machine.vector_flops
    return machine.launch + max(flops / rate, machine.traffic_seconds(nbytes))
