"""How many devices are in a group of a collective; live XLA is asked in `tests/unit/spmd/test_participants.py`."""

from __future__ import annotations

import pytest

from hlosharding import load
from hlosharding.ir import group_size

ADD = "add { a = s32[] parameter(0)  b = s32[] parameter(1)  ROOT c = s32[] add(a, b) }\n"


@pytest.mark.parametrize(
    ("ids", "size"),
    [
        ("", 2),  # replicas of one partition
        ("replica_groups={{0},{1}}, ", 1),
        ("channel_id=1, ", 6),  # replicas and partitions
        ("channel_id=1, use_global_device_ids=true, replica_groups={{0,1},{2,3},{4,5}}, ", 2),
    ],
)
def test_of_two_replicas_of_three_partitions(ids: str, size: int) -> None:
    header = "HloModule m, replica_count=2, num_partitions=3\n"
    main = f"ENTRY main {{ x = s32[8] parameter(0)\n ROOT r = s32[8] all-reduce(x), {ids}to_apply=add }}"
    assert group_size(load(f"{header}{ADD}{main}", format="hlo").by_name("r")) == size
