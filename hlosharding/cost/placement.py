"""Where the devices that take part in a collective stand: how many in how many nodes, along which axes of a torus.

Floor: cost.  Knows device groups and machines; nothing of kinds, bytes and seconds.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from math import ceil
from typing import NamedTuple

from hlosharding.cost.machine import Machine
from hlosharding.spmd import Groups, Pairs


class GroupPlacement(NamedTuple):
    """Where the members of a group (the worst of the groups) stand."""

    size: int
    per_node: int
    """Members in each node (the fewest: they share the way out)."""
    nodes: int
    axes: tuple[tuple[int, int, bool], ...] = ()
    """On a torus: (members, stride, closed into a ring) along each axis the group spans."""
    hops: int = 1
    """Of a permute on a torus: the longest way."""


@lru_cache(maxsize=65536)
def group_placement(groups: Groups, machine: Machine) -> GroupPlacement:
    """Where the members of the worst group stand: most nodes, then fewest members in a node.

    >>> from hlosharding.cost import machines
    >>> group_placement(((0, 1, 8, 9), (2, 3, 10, 11)), machines.h100(16))[:3]
    (4, 2, 2)
    """
    if not groups:
        groups = (tuple(range(machine.num_devices)),)
    if machine.topology == "torus":
        return max((_on_torus(group, machine) for group in groups), key=lambda w: (w.size, w.nodes, w.axes))
    return max((_on_switches(group, machine) for group in groups), key=lambda w: (w.nodes, w.size, -w.per_node))


def _on_switches(group: tuple[int, ...], machine: Machine) -> GroupPlacement:
    members = Counter(map(machine.node_of, group))
    return GroupPlacement(len(group), min(members.values(), default=1), len(members))


def _on_torus(group: tuple[int, ...], machine: Machine) -> GroupPlacement:
    axes: list[tuple[int, int, bool]] = []
    group = tuple(map(machine.place_of, group))
    inner = machine.devices_per_node
    covered = 1
    for size in machine.torus:
        inner //= size
        coordinates = {device // inner % size for device in group}
        count = len(coordinates)
        if count > 1:
            # Members that are not neighbours share the links between them with the groups in the gaps.
            stride = max(1, (max(coordinates) - min(coordinates)) // (count - 1))
            # A part of an axis is an open chain, whatever closes the whole one.
            axes.append((count, stride, size % machine.wrap_multiple == 0 and count * stride == size))
            covered *= count
    nodes = len({device // machine.devices_per_node for device in group})
    if covered * nodes != len(group) and len(group) > 1:
        # No box: one open chain that winds through the torus.
        axes = [(len(group), max(1, ceil(covered / len(group))), False)]
    return GroupPlacement(len(group), max(1, len(group) // nodes), nodes, tuple(axes))


@lru_cache(maxsize=65536)
def permute_placement(pairs: Pairs, machine: Machine) -> GroupPlacement:
    """Where the worst (source, target) pair of a permute stands; size 1 if nothing moves."""
    moving = [(s, t) for s, t in pairs if s != t]
    if not moving:
        return GroupPlacement(1, 1, 1)
    nodes = 1 + any(machine.node_of(s) != machine.node_of(t) for s, t in moving)
    ways = ((machine.place_of(s), machine.place_of(t)) for s, t in moving)
    hops = max(_torus_hops(s, t, machine) for s, t in ways) if machine.topology == "torus" else 1
    return GroupPlacement(2, 1, nodes, (), hops)


def _torus_hops(source: int, target: int, machine: Machine) -> int:
    hops, inner = 0, machine.devices_per_node
    for size in machine.torus:
        inner //= size
        gap = abs(source // inner % size - target // inner % size)
        hops += min(gap, size - gap) if size % machine.wrap_multiple == 0 else gap
    return max(1, hops)
