"""Text, proto and named meaning as the XLA inside jaxlib has them now.

Only shardings that our own parser has taken are shown to it, as a parameter's attribute in a module's text.
"""

from __future__ import annotations

import re

import pytest

from hlosharding import wire, xla_bridge
from hlosharding.sharding import HloSharding
from tests.oracle.sharding_cases import DEVICES, Questions

FORMS = [
    "{replicated}",
    "{manual}",
    "{unknown}",
    "{unreduced}",
    "{maximal device=3}",
    "{replicated shard_as 3}",
    "{devices=[2,2]<=[4] shard_like 4}",
    "{{replicated}, {devices=[2,2]<=[4]}}",
    '{devices=[2,2]<=[4] metadata={op_name="a"}}',
    '{devices=[2,2]<=[4] metadata={{op_name="a" source_file="f.py" source_line=3}, {op_type="z" op_name="b"}}}',
    "{devices=[2,2,2]<=[8] last_tile_dims={unreduced}}",
    "{devices=[1,2,2,2,2]<=[16] last_tile_dims={replicated, unreduced, manual}}",
    "{mesh['a'=2,'b'=4], [{'b':(2)2}, {'a', ?}]}",
    "{mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)), [{}, {'a'}], replicated={'b'}}",
    "{mesh['a'=2,'b'=4], device_ids=(7,6,5,4,3,2,1,0), [{}, {'a'}], manual={'b'}}",
    "{mesh['a'=2,'b'=4], unreduced}",
    "{maximal_mesh[device_id=3]}",
]


def _through_xla(sharding: HloSharding) -> tuple[bytes, str]:
    """The OpSharding that XLA makes of our text, and the text that it prints for it."""
    shape = "(" + ", ".join("f32[8,8]" for _ in sharding.leaves) + ")" if sharding.is_tuple() else "f32[8,8]"
    attribute = sharding.to_string(metadata=True)
    proto = xla_bridge.hlo_text_to_proto(
        f"HloModule m\nENTRY e {{\n  ROOT p = {shape} parameter(0), sharding={attribute}\n}}\n"
    )
    module = wire.HloModuleProto()
    module.ParseFromString(proto)
    found = re.search(r"parameter\(0\), sharding=(\{.*\})", xla_bridge.hlo_proto_to_text(proto))
    assert found is not None
    return module.computations[0].instructions[0].sharding.SerializeToString(deterministic=True), found.group(1)


@pytest.mark.oracle
@pytest.mark.parametrize("text", FORMS)
def test_forms(text: str) -> None:
    sharding = HloSharding.parse(text)
    proto, printed = _through_xla(sharding)
    assert sharding.to_proto() == proto
    assert HloSharding.from_proto(proto) is sharding
    assert sharding.to_string(metadata=True) == printed


@pytest.mark.oracle
def test_random_leaves() -> None:
    questions = Questions(seed=11)
    for _ in range(300):
        text = questions.text(2, questions.rng.choice(DEVICES))
        sharding = HloSharding.parse(text)
        proto, printed = _through_xla(sharding)
        assert (sharding.to_proto(), str(sharding)) == (proto, printed), text
        assert HloSharding.from_proto(proto) is sharding
