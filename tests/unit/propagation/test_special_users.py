"""What the users ahead would like: found once, and forgotten when it may be another thing."""

from __future__ import annotations

import pytest

import hlosharding as hs
from hlosharding.propagation import fixpoint, special_users
from hlosharding.propagation.nodes import Use
from hlosharding.propagation.state import PropagationState
from hlosharding.sharding import HloSharding

ROWS, COLUMNS = "{devices=[4,1]<=[4]}", "{devices=[1,4]<=[4]}"


def dots(count: int, *, last: str = "") -> hs.Module:
    """So many products one behind the other: the operands of each tie, and only the last has a word of its own.

    Every second weight is itself a product, whose sharding is found on the way.
    """
    lines = [
        f"  x0 = f32[8,8] parameter(0), sharding={ROWS}",
        f"  w = f32[8,8] parameter(1), sharding={COLUMNS}",
    ]
    for n in range(1, count + 1):
        contracts = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        if n % 2:
            lines.append(f"  v{n} = f32[8,8] dot(w, w), {contracts}")
        said = f", sharding={last}" if last and n == count else ""
        lines.append(
            f"  {'ROOT ' * (n == count)}x{n} = f32[8,8] dot(x{n - 1}, {f'v{n}' if n % 2 else 'w'}), {contracts}{said}"
        )
    return hs.load("\n".join(["HloModule m", "ENTRY e {", *lines, "}"]))


@pytest.mark.parametrize("last", ["", ROWS, COLUMNS])
def test_what_is_remembered_is_what_would_be_found_anew(last: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def both(state: PropagationState, p: int) -> HloSharding | None:
        remembered = special_users.look_ahead(state, p)
        known, state.ahead = state.ahead, {}
        assert special_users.look_ahead(state, p) == remembered
        state.ahead = known
        asked.append(p)
        return remembered

    monkeypatch.setattr(fixpoint, "look_ahead", both)
    hs.propagate(dots(12, last=last))
    assert len(set(asked)) > 5


def test_a_chain_is_walked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    count, offers, ask = 40, list[int](), special_users.offer

    def counted(state: PropagationState, p: int, use: Use, level: int) -> HloSharding | None:
        offers.append(p)
        return ask(state, p, use, level)

    monkeypatch.setattr(special_users, "offer", counted)
    hs.propagate(dots(count, last=COLUMNS))
    assert count // 2 < len(offers) < 10 * count  # count * count / 2 were each walked alone
