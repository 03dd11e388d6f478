"""Every counterpart of XLA's partitioner tests is right, with no more bytes than live XLA; exceptions are recorded."""

from __future__ import annotations

import pytest

from hlosharding.compiler import Partitioned
from hlosharding.partitioner import LocalProgram
from tests.support.program_check import WrongResult
from tests.xla_mirror.partitioner.cases import Case, all_cases
from tests.xla_mirror.partitioner.running import check, loaded, partitioned
from tests.xla_mirror.partitioner.standing import PRODUCTS, recorded, rings, standing
from tests.xla_mirror.partitioner.table import README, not_expressible, table, xla_tests

CASES = all_cases()
ANSWERS = recorded()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_right_with_no_more_bytes_than_live_xla(case: Case) -> None:
    found = standing(case, ANSWERS[case.name])
    assert found.known == ANSWERS[case.name].get("known", ""), found.behind


@pytest.mark.parametrize("case", [c for c in CASES if c.topic in PRODUCTS], ids=lambda case: case.name)
def test_products_as_loops_are_right_with_no_more_bytes(case: Case) -> None:
    assert rings(case, ANSWERS[case.name]) == ANSWERS[case.name]["rings"]


@pytest.mark.parametrize("case", [c for c in CASES if c.exempt], ids=lambda case: case.name)
def test_the_program_of_xla_is_wrong_where_its_bytes_are_no_yardstick(case: Case) -> None:
    theirs, ours = loaded(ANSWERS[case.name]["program"], case.devices), partitioned(case)
    root = ours.module.sharding(ours.module.entry.root)
    assert root is not None
    theirs.shardings[theirs.entry.root.id] = root
    with pytest.raises(WrongResult):
        check(case, Partitioned(LocalProgram(theirs), loaded(case.hlo, case.devices), ours.machine, None))


def test_every_test_of_xla_has_a_counterpart_or_a_reason() -> None:
    mirrored = {case.mirrors for case in CASES}
    assert mirrored | set(not_expressible()) == set(xla_tests())
    assert len(xla_tests()) == 447


def test_readme_is_what_the_recorder_writes() -> None:
    assert README.read_text() == table()
