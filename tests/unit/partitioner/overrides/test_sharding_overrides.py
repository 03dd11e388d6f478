"""Values with another sharding than propagation's are named, with what was chosen and why; nobody else is."""

from __future__ import annotations

import hlosharding as hs
from tests.support.split_programs import mark, right, split
from tests.unit.partitioner.overrides.test_batch_parallel import two_layers
from tests.unit.partitioner.overrides.test_relaxed_shardings import SPECTRUM


def sharding_overrides(local: hs.Partitioned) -> dict[str, tuple[str, str]]:
    """By name: what was chosen, and why."""
    return {d.name: (str(d.chosen), d.why) for d in local.sharding_overrides}


def test_what_is_only_cut_is_named() -> None:
    local = right(f"""{SPECTRUM}
        g = c64[65,8] transpose(f), dimensions={{1,0}}, metadata={{source_file="m.py" source_line=7}}
        ROOT s = c64[4,8] slice(g), slice={{[0:4], [0:8]}}{mark("")}""")
    [found] = local.sharding_overrides
    assert (found.name, found.opcode, found.shape, found.location) == ("g", "transpose", "c64[65,8]", "m.py:7")
    assert str(found.propagated) == "{replicated}"
    assert str(found.chosen) == "{devices=[1,8]<=[8]}"
    assert found.why == "nobody reads it whole"
    assert repr(local).endswith("1 sharding override)")


def test_a_value_that_somebody_needs_whole_is_none() -> None:
    local = split(f"""{SPECTRUM}
        g = c64[8,65] negate(f)
        s = c64[8,4] slice(g), slice={{[0:8], [0:4]}}
        ROOT t = (c64[8,4], c64[8,65]) tuple(s, g), sharding={{{{replicated}}, {{replicated}}}}""")
    assert local.sharding_overrides == ()


def test_batches_over_all_devices_are_named_where_they_are_taken() -> None:
    found = sharding_overrides(split(two_layers(512, 16)))
    assert {"h1", "d1", "h2", "d2"} <= set(found)
    for chosen, why in found.values():
        assert chosen == "{devices=[8,1]<=[8]}"
        assert why == "batch over all devices: the whole program is better so"


def test_a_second_table_that_is_not_taken_leaves_no_trace() -> None:
    assert sharding_overrides(split(two_layers(16, 128))) == {}


ADDENDS = f"""
    x = f32[16,64] parameter(0){mark("[1,8]<=[8]")}
    w = f32[64,16] parameter(1){mark("[8,1]<=[8]")}
    a = f32[16,16] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"""


def test_sums_that_wait_are_named_and_the_sum_that_is_made_is_not() -> None:
    local = right(f"""{ADDENDS}
        v = f32[64,16] negate(w)
        b = f32[16,16] dot(x, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
        ROOT r = f32[16,16] add(a, b){mark("[8,1]<=[8]")}""")
    found = sharding_overrides(local)
    assert set(found) == {"a", "b"}
    assert all("unreduced" in chosen for chosen, _ in found.values())


def test_a_sum_that_is_made_at_once_is_none() -> None:
    assert sharding_overrides(split(f"{ADDENDS} ROOT r = f32[16,16] tanh(a){mark('[8,1]<=[8]')}")) == {}
