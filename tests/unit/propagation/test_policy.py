"""The tables fit the list of opcodes, and handlers stay few: else the idea of one projection has failed."""

from __future__ import annotations

from hlosharding.ir import ALL_OPCODES
from hlosharding.propagation import BACKWARD, FORWARD, policy


def test_every_table_names_real_opcodes() -> None:
    tables = (
        policy.ANY_LEVEL,
        policy.RECEIVERS,
        policy.SPMD_RECEIVERS,
        policy.FIRST_OPERAND_SPEAKS,
        policy.BEST_OPERAND_SPEAKS,
        policy.FOLLOWS_SHARED_DIMS,
        policy.AS_IS_TO_FIRST_OPERAND,
        policy.TAKES_NOTHING_FORWARD,
        frozenset(FORWARD),
        frozenset(BACKWARD),
    )
    for table in tables:
        assert table <= ALL_OPCODES


def test_handlers_are_few() -> None:
    assert len({*FORWARD, *BACKWARD}) <= 20


def test_projected_ops_need_no_handler() -> None:
    assert not policy.FOLLOWS_SHARED_DIMS & {*FORWARD, *BACKWARD}


def test_levels() -> None:
    levels = {op: policy.through_level(op, False, "") for op in ("transpose", "dot", "broadcast")}
    assert levels == {"transpose": 0, "dot": 1, "broadcast": 2}
    assert policy.through_level("add", True, "") == 0
    assert policy.through_level("custom-call", False, "Sharding") == 0
    assert policy.through_level("custom-call", False, "Foreign") == 1
