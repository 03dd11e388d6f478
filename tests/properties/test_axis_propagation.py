"""The mesh dialect's propagation on every opcode, with random annotations: what must hold whatever is asked."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlosharding.frontends import load
from hlosharding.ir import Module, verify
from hlosharding.mesh_propagation import AxisAnnotation, AxisPropagation, propagate_axes
from hlosharding.notations import AxisSharding
from hlosharding.rules import Signature, signature_of
from tests.oracle.opcode_modules import BODIES, REGIONS

RENAMING = frozenset({"tuple", "get-tuple-element", "opt-barrier", "add-dependency", "domain"})
"""Their results are the values that went in."""
CLUSTERS = ("2x2", "?", "x=2,y=?,z=3")


@functools.cache
def module_of(opcode: str) -> Module:
    """The written module of an opcode, without its own annotations."""
    module = load(f"HloModule m\n{REGIONS}\nENTRY %e {{\n{BODIES[opcode]}\n}}\n", format="hlo")
    module.shardings = {}
    return module


def annotations(module: Module, axes: int, data: st.DataObject) -> list[AxisAnnotation]:
    """Some values, each split along some dims by some axes."""
    arrays = [i for i in module.entry.instructions if i.shape.is_array and i.shape.rank and i.opcode not in RENAMING]
    found: list[AxisAnnotation] = []
    for inst in data.draw(st.lists(st.sampled_from(arrays), unique=True, max_size=3)) if arrays else ():
        places = data.draw(st.lists(st.integers(0, inst.shape.rank), min_size=axes, max_size=axes))
        lists = [[a for a, place in enumerate(places) if place == dim] for dim in range(inst.shape.rank)]
        users = any(user.opcode not in RENAMING for user in inst.users) and data.draw(st.booleans())
        found.append(AxisAnnotation(inst.name, AxisSharding.of(lists), data.draw(st.booleans()), users))
    return found


def assert_consistent(found: AxisPropagation) -> None:
    """Every tensor of an op follows its option, and no loop of another kind than parallel or reduction is split."""
    for name, option in found.options.items():
        inst = next((i for i in found.module.instructions if i.name == name), None)
        signature = None if inst is None else signature_of(inst)
        if inst is None or not isinstance(signature, Signature):
            continue
        used = option.sharding.axes
        assert len(set(used)) == len(used)
        for operand in range(len(inst.operands)):
            seen = found.operand(name, operand)
            assert seen is not None
            assert not seen.partial
            refused = any(c.op == name for c in found.conflicts)
            assert refused or set(seen.axes) <= set(used)


@pytest.mark.parametrize("opcode", sorted(BODIES))
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_orders_are_kept_or_reported_on_every_opcode(opcode: str, data: st.DataObject) -> None:
    module, cluster = module_of(opcode), data.draw(st.sampled_from(CLUSTERS))
    notes = annotations(module, 1 if cluster == "?" else cluster.count("x") + 1, data)
    found = propagate_axes(module, cluster, annotations=notes)
    assert_consistent(found)
    for note in (n for n in notes if n.required and not n.annotate_for_users):
        assert found.sharding(note.value) == AxisSharding.of(note.sharding).rename(found.cluster.axis)
    assert found.annotations == propagate_axes(module, cluster, annotations=notes).annotations
    assert str(found).startswith("mesh.cluster @mesh0")
    if "?" not in cluster:
        verify(found.to_module())
