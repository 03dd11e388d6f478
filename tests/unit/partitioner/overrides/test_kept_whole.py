"""What is made of whole values stays whole where its parts would have to move; else it is divided."""

from __future__ import annotations

import numpy as np
import pytest

import hlosharding as hs
from tests.support.split_programs import mark, right

WHY = "all that it is made of is whole, and its parts would have to move"
ROWS = "[8,1]<=[8]"


def dispatch(between: str, *, of_x: str = "") -> str:
    """Rows of x are looked up by number, then put into 64 places by number; `between` stands between the two.

    They are given back, too, an eighth on each device: so propagation splits them all the way.
    """
    return f"""
        x = f32[32,128] parameter(0){mark(of_x)}
        ids = s32[64,1] parameter(1){mark("")}
        places = s32[64,1] parameter(2){mark("")}
        t = f32[64,128] gather(x, ids), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
            index_vector_dim=1, slice_sizes={{1,128}}
        {between}
        z = f32[] constant(0)
        none = f32[64,128] broadcast(z), dimensions={{}}
        r = f32[64,128] scatter(none, places, u), update_window_dims={{1}}, inserted_window_dims={{0}},
            scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=add_f32
        y = f32[64,128] negate(r){mark(ROWS)}
        v = f32[64,128] negate(u){mark(ROWS)}
        ROOT both = (f32[64,128], f32[64,128]) tuple(y, v), sharding={{{{devices={ROWS}}}, {{devices={ROWS}}}}}"""


def numbers() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(32, 128)).astype(np.float32)
    return [x, *(rng.integers(0, limit, (64, 1), dtype=np.int32) for limit in (32, 64))]


def overrides(local: hs.Partitioned) -> dict[str, str]:
    return {o.name: o.why for o in local.sharding_overrides}


# Propagation does as is said here: the values between are split by rows.
SPLIT = f"u = f32[64,128] tanh(t), sharding={{devices={ROWS}}}"


@pytest.mark.parametrize(
    "between",
    [
        "u = f32[64,128] tanh(t)",
        "p = (f32[64,128]) tuple(t)\n g = f32[64,128] get-tuple-element(p), index=0\n u = f32[64,128] tanh(g)",
    ],
)
def test_what_is_looked_up_in_whole_values_is_not_divided_and_sent(between: str) -> None:
    local = right(dispatch(between), *numbers())
    assert local.comm_bytes_per_device == 0


def test_what_the_user_annotated_is_divided() -> None:
    local = right(dispatch(SPLIT), *numbers())
    assert "u" not in overrides(local)


def test_what_is_made_of_parts_is_not_gathered_for_it() -> None:
    local = right(dispatch("u = f32[64,128] tanh(t)", of_x=ROWS), *numbers())
    assert WHY not in overrides(local).values()


def test_products_are_divided() -> None:
    """Their work is never repeated for bytes."""
    local = right(
        f"""
        x = f32[64,64] parameter(0){mark("")}
        w = f32[64,64] parameter(1){mark("")}
        d = f32[64,64] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
        e = f32[64,64] tanh(d){mark("[8,1]<=[8]")}
        ROOT y = f32[64,64] add(e, d){mark("")}"""
    )
    assert local.flops_per_device < 2 * 64**3 / 8 + 64**2 * 10


def test_values_whose_readers_take_parts_are_divided() -> None:
    local = right(
        f"""
        x = f32[64,64] parameter(0){mark("")}
        a = f32[64,64] tanh(x)
        b = f32[64,64] exponential(a)
        ROOT y = f32[64,64] add(a, b){mark("[8,1]<=[8]")}"""
    )
    assert local.sharding_overrides == ()
    assert local.comm_bytes_per_device == 0
