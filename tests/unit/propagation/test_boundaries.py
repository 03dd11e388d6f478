"""Outputs and parameters: given, chosen, uneven."""

from __future__ import annotations

import pytest

from hlosharding.errors import PropagationError
from tests.support.propagated_texts import printed, run

ROWS = "{devices=[2,1]<=[2]}"
BODY = (
    f"  %x = f32[4,4] parameter(0), sharding={ROWS}\n  %y = f32[4,4] parameter(1)\n"
    "  %a = f32[4,4] add(%x, %y)\n  ROOT %r = (f32[4,4], f32[4,4]) tuple(%a, %x)"
)


def test_by_default_neither_side_changes() -> None:
    found = run(BODY).shardings
    assert found["r"] is None
    assert found["y"] is None


def test_outputs_and_parameters_may_be_chosen() -> None:
    found = run(BODY, to_outputs=True, to_parameters=True).shardings
    assert str(found["r"]) == f"{{{ROWS}, {ROWS}}}"
    assert str(found["y"]) == ROWS


def test_leaves_that_may_not_change_keep_what_they_had() -> None:
    body = BODY + ", sharding={{replicated}, {replicated}}"
    assert printed(body, "r", to_outputs=[True, False]) == f"{{{ROWS}, {{replicated}}}}"


def test_parameters_that_may_not_change_keep_what_they_had() -> None:
    assert printed(BODY, "y", to_parameters=[True, False]) is None
    assert printed(BODY, "y", to_parameters=[False, True]) == ROWS


def test_uneven_edges_are_replicated() -> None:
    body = f"  %x = f32[3,4] parameter(0), sharding={ROWS}\n  ROOT %r = f32[3,4] negate(%x)"
    assert printed(body, "r", to_outputs=True) == "{replicated}"


@pytest.mark.parametrize("options", [{"to_outputs": [True, False, True]}, {"to_parameters": [True, False, True]}])
def test_vectors_of_a_wrong_size_are_refused(options: dict[str, list[bool]]) -> None:
    body = BODY + ", sharding={{replicated}, {replicated}}"
    with pytest.raises(PropagationError, match="has 3 entries"):
        run(body, **options)
