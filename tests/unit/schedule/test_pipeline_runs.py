"""Training steps on D x T x P devices in K microbatches give what one device gives: every pair of settings once.

All combinations: `python -m benchmarks.pipeline_runs`.
"""

from __future__ import annotations

import pytest

from tests.support.pairwise import pairs, pairwise
from tests.support.pipeline_runs import Plan, plans, run

ALL = plans()
COVER = pairwise(ALL)


@pytest.mark.parametrize("plan", COVER, ids=lambda plan: "-".join(map(str, plan)))
def test_a_plan_gives_what_one_device_gives(plan: Plan) -> None:
    found = run(plan)
    assert found.error < 1e-5
    assert found.stages == plan.stages


def test_every_pair_of_settings_is_run() -> None:
    assert set().union(*map(pairs, COVER)) == set().union(*map(pairs, ALL))
    assert len(COVER) < len(ALL) / 20
