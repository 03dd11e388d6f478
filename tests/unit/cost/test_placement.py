"""Where groups stand: counted by hand."""

from __future__ import annotations

from dataclasses import replace

from hlosharding.cost import group_placement, machines, permute_placement

TORUS = replace(machines.tpu_v4p(16), torus=(4, 4))


def test_hops_of_a_permute_on_a_torus() -> None:
    assert permute_placement(((0, 1),), TORUS).hops == 1
    assert permute_placement(((0, 3),), TORUS).hops == 1  # around the corner
    assert permute_placement(((0, 10),), TORUS).hops == 4


def test_the_worst_group_counts() -> None:
    h100 = machines.h100(16)
    assert group_placement(((0, 1), (7, 8)), h100).nodes == 2
    assert group_placement((), h100)[:3] == (16, 8, 2)


def test_of_unlike_groups_on_a_torus_the_largest_counts() -> None:
    assert group_placement(((0,), (4, 5, 6, 7), (8, 9)), TORUS).size == 4
