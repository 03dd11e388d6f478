"""Collectives as NCCL runs them on GPUs: an algorithm under a protocol is a line over bytes, and the lowest one counts.

Floor: cost.  Knows kinds, where a group stands and links.  Seconds and shares are those of NCCL's tuning model
(`src/graph/tuning.cc` of NCCL 2.27), the same for all machines; hops are as long as a machine's latencies.  [F]: fitted
to measured collectives of A100s (`benchmarks.collectives`).  Notation: n devices, g of them in each of N nodes, S bytes
of the full local buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from math import inf
from typing import NamedTuple

from hlosharding.cost.machine import Machine, Nccl
from hlosharding.cost.placement import GroupPlacement

_US = 1e-6


class _Row(NamedTuple):
    """Of the tuning table: seconds before the first hop, of a hop inside a node, of one between nodes."""

    start: float
    near: float
    far: float


_RINGS = {
    "LL": _Row(6.6 * _US, 0.6 * _US, 2.7 * _US),
    "LL128": _Row(14 * _US, 1.9 * _US, 4 * _US),
    "Simple": _Row(8.4 * _US, 3.4 * _US, 14 * _US),
}
_TREES = {
    "LL": _Row(6.8 * _US, 0.6 * _US, 5 * _US),
    "LL128": _Row(14 * _US, 1.25 * _US, 8.5 * _US),
    "Simple": _Row(8.4 * _US, 4 * _US, 14 * _US),
}
_NVLS = _Row(0, 25 * _US, 14 * _US)
_MESSAGES = {"LL": _Row(6.6 * _US, 0.6 * _US, 5 * _US), "Simple": _Row(8.4 * _US, 4 * _US, 14 * _US)}
_LL_MESSAGE = 2**14
"""Bytes of a message, at most, that goes under LL (`NCCL_P2P_LL_THRESHOLD`)."""
_NEAR, _FAR = _RINGS["LL"].near, _RINGS["LL"].far
"""The shortest hops, which `Link.latency` says; all others are longer in proportion."""
_SHARES = {"LL": 1 / 4, "LL128": 0.92, "Simple": 1.0}
"""Of a link's bandwidth; flags take the rest.  Of what the model gives LL, half is reached."""
_TREE_SHARE = 0.92 * 0.85
"""Of what a ring reaches: a tree's, and one whose devices have two children."""
_LAST_COPY = 0.43
"""Of a step of a ring: what comes last is copied out of the ring's buffer, with nothing beside it [F]."""
_FIRST_CHUNK = 400e3
"""Bytes a device that fill an NVLS tree before it runs at its rate (nccl-tests on H100s, by autoparallel's ramp)."""
_SHARPNESS = 4
"""Of the maximum that hops and bytes have inside a node, where flags travel with the data: they hide each other [F]."""


class _CostLine(NamedTuple):
    """Seconds over bytes."""

    algorithm: str
    start: float
    hops: float
    per_byte: float
    hides: bool = False
    most: float = inf
    """Bytes that it is taken for."""

    def seconds(self, nbytes: float, rate: float) -> float:
        data = nbytes * self.per_byte / rate
        if nbytes > self.most:
            return inf
        if self.hides:
            return self.start + (self.hops**_SHARPNESS + data**_SHARPNESS) ** (1 / _SHARPNESS)
        return self.start + self.hops + data


class _NcclGroup(NamedTuple):
    """Its numbers, and what the machine says of its links."""

    n: int
    g: int
    nodes: int
    machine: Machine
    nccl: Nccl

    def hops(self, row: _Row, near: int, far: int) -> float:
        """Seconds of so many inside nodes and between them.  Where some are between, all wait for their posts."""
        one = row.near * self.machine.inside.latency / _NEAR
        if self.nodes > 1:
            one = max(one, self.nccl.post)
        return near * one + far * row.far * self.machine.between.latency / _FAR

    def inside(self, protocol: str) -> float:
        """Bytes per second of a device to others in its node, if there are any."""
        alone = self.g == 1 and self.nodes > 1
        # Endless, so that the network alone decides.
        return inf if alone else self._reached(protocol, self.machine.inside.bandwidth)

    def between(self, protocol: str) -> float:
        """Bytes per second out of a node, through the cards of all its members, if there are other nodes."""
        return self._reached(protocol, self.g * self.machine.between.bandwidth) if self.nodes > 1 else inf

    def _reached(self, protocol: str, bandwidth: float) -> float:
        reached = _SHARES[protocol] * bandwidth
        if protocol == "LL128":
            return min(reached, self.nccl.ll128_bandwidth)
        return min(reached, self.nccl.ll_bandwidth) if protocol == "LL" and self.nodes > 1 else reached


def _rings(kind: str, group: _NcclGroup) -> Iterator[_CostLine]:
    """All bytes pass every device, and the cards of a node carry as many rings side by side."""
    n, nodes = group.n, group.nodes
    times = 2 if kind == "all-reduce" else 1
    sent, copied = (1.0, 0.0) if kind == "collective-broadcast" else (times * (n - 1) / n, _LAST_COPY / n)
    for protocol, row in _RINGS.items():
        if group.g == 1 and nodes > 1:  # no hop inside the node hides the network's
            row = row._replace(far=_TREES[protocol].far)
        hops = group.hops(row, times * (n - nodes), times * (nodes - 1))
        near, far = group.inside(protocol), group.between(protocol)
        per_byte = sent / min(near, far) + copied / near
        yield _CostLine(f"ring {protocol}", row.start, hops, per_byte, hides=nodes == 1 and protocol == "LL128")


def _trees(kind: str, group: _NcclGroup) -> Iterator[_CostLine]:
    """Up and down: a chain inside each node, two binary trees among the nodes."""
    for protocol, row in _TREES.items():
        hops = group.hops(row, 2 * (group.g - 1), 2 * (group.nodes - 1).bit_length())
        per_byte = max(2 / group.inside(protocol), _across(group) / group.between(protocol))
        yield _CostLine(f"tree {protocol}", row.start, hops, per_byte / _TREE_SHARE)


def _across(group: _NcclGroup) -> float:
    """Of the buffer, what a node sends to sum it up with the others'."""
    return 2 * (group.nodes - 1) / group.nodes


def _nvls(kind: str, group: _NcclGroup) -> Iterator[_CostLine]:
    """NVLink's switches add up and copy: a device sends its buffer, and 1/g of the sum for all; trees among nodes."""
    is_sum, g, nodes = kind == "all-reduce", group.g, group.nodes
    if not group.nccl.nvls_efficiency or g == 1 or (nodes > 1 and not is_sum):
        return
    near = (1 + is_sum / g) / (group.nccl.nvls_efficiency * group.machine.inside.bandwidth)
    if nodes == 1:
        yield _CostLine("NVLS", _NVLS.start, group.hops(_NVLS, 1, 0), near)
        return
    per_byte = max(near, _across(group) / (_TREE_SHARE * group.between("Simple")))
    filling = group.n * _FIRST_CHUNK * per_byte
    hops = group.hops(_NVLS, 1, 2 * (nodes - 1).bit_length())
    yield _CostLine("NVLS tree", _NVLS.start, hops + filling, per_byte)


def _exchange(kind: str, group: _NcclGroup) -> Iterator[_CostLine]:
    """A message to each other device.  Both classes of links work at once, and one message is posted while another is
    on its way: what is slowest decides.
    """
    near, far = group.g - 1, group.n - group.g
    for protocol, row in _MESSAGES.items():
        hops = max(group.hops(row, near, 0), group.hops(row, 0, min(far, 1)), far * group.nccl.post)
        per_byte = max(near / group.inside(protocol), far * group.g / group.between(protocol)) / group.n
        yield _message(protocol, row, hops, per_byte, group.n)


def _permute(kind: str, group: _NcclGroup) -> Iterator[_CostLine]:
    is_far = group.nodes > 1
    for protocol, row in _MESSAGES.items():
        rate = group.between(protocol) if is_far else group.inside(protocol)
        yield _message(protocol, row, group.hops(row, not is_far, is_far), 1 / rate, 1)


def _message(protocol: str, row: _Row, hops: float, per_byte: float, count: int) -> _CostLine:
    most = count * _LL_MESSAGE if protocol == "LL" else inf
    return _CostLine(f"direct {protocol}", row.start, hops, per_byte, most=most)


ALGORITHMS: dict[str, tuple[Callable[[str, _NcclGroup], Iterator[_CostLine]], ...]] = {
    "all-gather": (_rings, _nvls),
    "reduce-scatter": (_rings, _nvls),
    "all-reduce": (_rings, _trees, _nvls),
    "all-to-all": (_exchange,),
    "ragged-all-to-all": (_exchange,),
    "collective-broadcast": (_rings,),
    "collective-permute": (_permute,),
}


def nccl_time(kind: str, nbytes: float, where: GroupPlacement, machine: Machine) -> tuple[float, str]:
    """Seconds of a collective that has started, and its algorithm: the fastest that NCCL has for the kind.

    The machine has figures of NCCL.

    >>> from hlosharding.cost import group_placement, machines
    >>> h100 = machines.h100(16)
    >>> where = group_placement((tuple(range(16)),), h100)
    >>> [nccl_time("all-reduce", nbytes, where, h100)[1] for nbytes in (1e3, 1e6, 1e9)]
    ['tree LL', 'tree LL128', 'NVLS tree']
    """
    rate = machine.collective_rate(kind)
    return min((line.seconds(nbytes, rate), line.algorithm) for line in _lines(kind, where, machine))


@lru_cache(maxsize=65536)
def _lines(kind: str, where: GroupPlacement, machine: Machine) -> tuple[_CostLine, ...]:
    assert machine.nccl is not None
    group = _NcclGroup(where.size, where.per_node, where.nodes, machine, machine.nccl)
    return tuple(line for lines in ALGORITHMS[kind] for line in lines(kind, group))
