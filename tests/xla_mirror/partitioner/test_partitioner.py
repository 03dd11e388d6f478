"""Every counterpart of XLA's partitioner tests is right and moves no more bytes than live XLA; exceptions are recorded."""

from __future__ import annotations

import pytest

from hlosharding.errors import HloShardingError
from tests.properties.program_check import WrongResult
from tests.xla_mirror.partitioner.cases import Case, all_cases
from tests.xla_mirror.partitioner.running import check, figures, partitioned
from tests.xla_mirror.partitioner.standing import byte_standing, recorded
from tests.xla_mirror.partitioner.table import README, not_expressible, table, xla_tests

CASES = all_cases()
ANSWERS = recorded()


def standing(case: Case) -> str:
    """What is not as it should be; empty if nothing."""
    try:
        local = partitioned(case)
        if not case.unrun:
            check(case, local)
    except WrongResult:
        return "wrong result"
    except HloShardingError as refused:
        return f"refused: {type(refused).__name__}"
    found = byte_standing(figures(local.module), ANSWERS[case.name])
    return found if found == "more bytes" else ""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_right_with_no_more_bytes_than_live_xla(case: Case) -> None:
    assert standing(case) == ANSWERS[case.name].get("known", "")


def test_every_test_of_xla_has_a_counterpart_or_a_reason() -> None:
    mirrored = {case.mirrors for case in CASES}
    assert mirrored | set(not_expressible()) == set(xla_tests())
    assert len(xla_tests()) == 447


def test_readme_is_what_the_recorder_writes() -> None:
    assert README.read_text() == table()
