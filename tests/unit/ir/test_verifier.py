"""Invalid modules are refused with an error of ours, wherever they come in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import hlosharding as hs
from hlosharding import wire
from hlosharding.errors import LoadError, ModuleError
from hlosharding.frontends.hlo import from_hlo_text

TEXT = """HloModule m, num_partitions=2
ENTRY e {
  x = f32[4,6] parameter(0), sharding={devices=[2,1]<=[2]}
  i = s32[3,1] parameter(1)
  n = s32[] constant(0)
  g = f32[3,6] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1,
    slice_sizes={1,6}
  t = f32[6,3] transpose(g), dimensions={1,0}
  b = f32[6,3,2] broadcast(t), dimensions={0,1}
  c = pred[6,3] compare(t, t), direction=LT
  ROOT r = (f32[6,3,2], pred[6,3]) tuple(b, c)
}
"""


def _compare(proto: Any) -> None:
    proto["c"].comparison_direction = "sideways"


def _transpose(proto: Any) -> None:
    proto["t"].dimensions[:] = [7, 0]


def _gather(proto: Any) -> None:
    proto["g"].gather_dimension_numbers.start_index_map[:] = [9]


def _broadcast(proto: Any) -> None:
    proto["b"].dimensions[:] = [0, 9]


@pytest.mark.parametrize("damage", [_compare, _transpose, _gather, _broadcast])
def test_a_broken_module_is_an_error_of_ours(damage: Callable[[Any], None]) -> None:
    with pytest.raises(hs.HloShardingError):
        hs.partition(damaged(damage)).as_python()


def damaged(damage: Callable[[Any], None]) -> hs.Module:
    proto = wire.HloModuleProto.FromString(hs.load(TEXT).to_hlo_proto())
    damage({i.name: i for c in proto.computations for i in c.instructions})
    return hs.Module.from_proto(proto.SerializeToString())


def test_the_law_that_is_broken_is_named() -> None:
    with pytest.raises(ModuleError, match=r"its attributes do not fit|not a valid module"):
        hs.partition(damaged(_transpose))


SPLIT = "sharding={devices=[8]<=[8]}"
TAKEN_BY_THE_PARSER = {
    "call": (f"x = f32[32] parameter(0), {SPLIT}\n  ROOT r = f32[32] call(x), to_apply=two", "the parameters of %two"),
    "generator": (
        "a = u32[2] parameter(0), sharding={replicated}\n  t = (u32[2], u32[2]) tuple(a, a)\n"
        "  ROOT r = u32[96,96] rng-bit-generator(t), algorithm=rng_default, sharding={replicated}",
        "operand %t is no array",
    ),
    "iota": ("ROOT r = () iota(), iota_dimension=24", "it is no array"),
    "tuple": (
        "x = f32[16] parameter(0)\n  t = (f32[16], f32[16]) tuple(x, x)\n"
        "  ROOT r = ((f32[16]), f32[16]) tuple(t, t), sharding={{devices=[8]<=[8]}, {replicated}}",
        "the operands make ((f32[16], f32[16]), (f32[16], f32[16]))",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TAKEN_BY_THE_PARSER)
def test_what_only_xlas_verifier_refuses_is_named_wherever_we_trip_over_it(case: str) -> None:
    module = from_hlo_text(_text(case))
    with pytest.raises(ModuleError) as caught:
        hs.partition(hs.propagate(module, to_outputs=True))
    assert TAKEN_BY_THE_PARSER[case][1] in str(caught.value)


@pytest.mark.parametrize("case", TAKEN_BY_THE_PARSER)
def test_and_it_is_not_loaded(case: str) -> None:
    with pytest.raises(LoadError) as caught:
        hs.load(_text(case))
    assert TAKEN_BY_THE_PARSER[case][1] in str(caught.value)


def _text(case: str) -> str:
    two = "two {\n  p = f32[32] parameter(0)\n  q = f32[32] parameter(1)\n  ROOT m = f32[32] multiply(p, q)\n}\n"
    return f"HloModule m, num_partitions=8\n{two}ENTRY e {{\n  {TAKEN_BY_THE_PARSER[case][0]}\n}}\n"
