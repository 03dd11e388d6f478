"""Piecewise plans: rounds, holders and windows."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest

from hlosharding.cost import machines
from hlosharding.ir import Shape
from hlosharding.reshard.layout import layout_of
from hlosharding.reshard.piecewise import groupings, moves_between, pieces_in_rounds
from hlosharding.reshard.piecewise.assign_rounds import edge_colouring
from hlosharding.reshard.piecewise.piece_moves import PieceMoves
from hlosharding.sharding import HloSharding


def moves(source: str, target: str, dims: tuple[int, ...], devices: int, per_node: int = 8) -> PieceMoves:
    before, after = (layout_of(HloSharding.parse(s), dims, devices) for s in (source, target))
    found = moves_between(before, after, machines.h100(devices if per_node == 8 else devices * 8 // per_node))
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(20))
def test_a_colouring_is_proper_and_needs_no_more_rounds_than_the_busiest_device(seed: int) -> None:
    random = Random(seed)
    count = random.randrange(1, 200)
    senders = random.choices(range(12), k=count)
    receivers = random.choices(range(9), k=count)
    rounds = edge_colouring(senders, receivers)
    assert sorted(message for turn in rounds for message in turn) == list(range(count))
    for turn in rounds:
        assert len({senders[m] for m in turn}) == len({receivers[m] for m in turn}) == len(turn)
    assert len(rounds) == max(*Counter(senders).values(), *Counter(receivers).values())


def test_pieces_cover_every_target_tile_exactly_once() -> None:
    dims = (13, 10)
    pieces = moves("{devices=[4,2]<=[8]}", "{devices=[2,2,2]7,1,3,0,2,6,5,4 last_tile_dim_replicate}", dims, 8)
    for device in range(8):
        got = np.zeros(dims, np.int64)
        for i in np.flatnonzero(pieces.receivers == device):
            start = pieces.write[i] + pieces.target.starts[device]
            got[tuple(slice(a, a + n) for a, n in zip(start, pieces.sizes[i], strict=True))] += 1
        low, high = pieces.target.bounds
        wanted = np.zeros(dims, np.int64)
        wanted[tuple(slice(a, b) for a, b in zip(low[device], high[device], strict=True))] = 1
        np.testing.assert_array_equal(got, wanted)


def test_a_device_that_holds_a_piece_sends_it_to_itself() -> None:
    source = "{devices=[2,4]<=[8] last_tile_dim_replicate}"
    pieces = moves(source, "{devices=[8]7,6,5,4,3,2,1,0}", (16,), 8)
    first = pieces.write[:, 0] + pieces.target.starts[pieces.receivers, 0]
    holds = layout_of(HloSharding.parse(source), (16,), 8).index[pieces.receivers, 0] == first // 8
    assert (pieces.senders[holds] == pieces.receivers[holds]).all()
    assert not holds.all()


def test_holders_share_the_sending() -> None:
    # Four copies of each half; four devices each want a quarter of what the others' half has.
    pieces = moves("{devices=[2,4]<=[8] last_tile_dim_replicate}", "{devices=[8]4,5,6,7,0,1,2,3}", (64,), 8)
    assert set(Counter(pieces.senders.tolist()).values()) == {1}


def test_near_holders_come_before_far_ones() -> None:
    # Two nodes of eight; each half of the array lies in both nodes.
    order = ",".join(str(d) for d in [*range(0, 16, 2), *range(1, 16, 2)])
    source = f"{{devices=[2,8]{order} last_tile_dim_replicate}}"
    pieces = moves(source, "{devices=[16]15,14,13,12,11,10,9,8,7,6,5,4,3,2,1,0}", (16,), 16)
    assert (pieces.senders // 8 == pieces.receivers // 8).all()


def test_pieces_of_unlike_sizes_share_rounds_for_some_padding() -> None:
    pieces = moves("{devices=[4,2]<=[8]}", "{devices=[2,4]3,1,4,0,5,2,6,7}", (13, 10), 8)
    choices = [c for c in groupings(pieces, Shape.parse("u8[13,10]")) if not c.is_padded]
    rounds = [choice.rounds for choice in choices]
    assert rounds == sorted(rounds, reverse=True)
    assert [c.mean_bytes for c in choices] == sorted(c.mean_bytes for c in choices)
    moving = pieces.senders != pieces.receivers
    assert choices[0].mean_bytes == pytest.approx(pieces.sizes[moving].prod(axis=1).sum() / 8)
    busiest = max(Counter(pieces.receivers[moving].tolist()).values())
    assert rounds[-1] >= busiest
    assert all(len(pieces_in_rounds(pieces, c).rounds) == c.rounds + 1 for c in choices)


def test_uneven_tiles_on_many_devices_do_not_fall_apart_into_hundreds_of_rounds() -> None:
    pieces = moves("{devices=[32,16]<=[512]}", "{devices=[16,32]<=[512]}", (1000, 1000), 512)
    assert all(grouping.rounds <= 40 for grouping in groupings(pieces, Shape.parse("f32[1000,1000]")))


def test_too_many_pieces_are_no_plan() -> None:
    before, after = (layout_of(HloSharding.parse(s), (512, 512), 512) for s in (
        "{devices=[512,1]<=[512]}", "{devices=[1,512]<=[512]}"))  # fmt: skip
    assert moves_between(before, after, machines.h100(512)) is None
