"""What users say of custom calls: said, said again, and taken back."""

from __future__ import annotations

import warnings

import pytest

import hlosharding as hs
from hlosharding.cost import op_work
from hlosharding.errors import RuleError
from hlosharding.ir import Instruction
from hlosharding.rules import Opaque, Signature, SignatureMaker, count_changes, register_rule, signature_of
from tests.support.custom_calls import call


def test_registered_rules_are_used_and_checked() -> None:
    inst = call("unit_test_scale", ["f32[4,6]"], "f32[4,6]")
    assert isinstance(signature_of(inst), Opaque)
    register_rule("unit_test_scale", "i j -> i j")
    assert str(signature_of(inst)) == "i j -> i j"
    with pytest.raises(RuleError, match="2 dims"):
        signature_of(call("unit_test_scale", ["f32[4]"], "f32[4]"))


def test_functions_as_rules() -> None:
    def rule(inst: Instruction) -> Signature:
        make = SignatureMaker(inst)
        make.factor("b", inst.shape.dims[0], [(0, 0)], [(0, 0)])
        return make.build()

    register_rule("unit_test_rows", rule)
    assert str(signature_of(call("unit_test_rows", ["f32[4,6]"], "f32[4,3]"))) == "b _ -> b _"
    with pytest.raises(RuleError, match="says all by itself"):
        register_rule("unit_test_other", rule, reduction_factors=("b",))


def test_a_lying_function_is_caught() -> None:
    def rule(inst: Instruction) -> Signature:
        make = SignatureMaker(inst)
        make.factor("b", 7, [(0, 0)], [(0, 0)])
        return make.build()

    register_rule("unit_test_liar", rule)
    with pytest.raises(RuleError, match="dim 0 is 4, and its factors b make 7"):
        signature_of(call("unit_test_liar", ["f32[4]"], "f32[4]"))


def test_a_second_rule_replaces_the_first_and_says_so() -> None:
    inst = call("unit_test_again", ["f32[4,6]"], "f32[4,6]")
    register_rule("unit_test_again", "i j -> i j", cost=lambda _: hs.CallCost(7.0, 8.0))
    before = count_changes()
    with pytest.warns(hs.RuleReplacedWarning, match="'unit_test_again' had a rule") as told:
        register_rule("unit_test_again", "i _ -> i _")
    assert told[0].filename == __file__
    assert str(signature_of(inst)) == "i _ -> i _"
    assert op_work(inst).flops == 0.0  # the cost went with the rule that it came with
    assert count_changes() > before


def test_a_rule_that_is_taken_back_is_gone() -> None:
    register_rule("unit_test_gone", "i j -> i j")
    hs.unregister_rule("unit_test_gone")
    assert isinstance(signature_of(call("unit_test_gone", ["f32[4,6]"], "f32[4,6]")), Opaque)
    with pytest.raises(RuleError, match="no rule was registered for 'unit_test_gone'"):
        hs.unregister_rule("unit_test_gone")
    with warnings.catch_warnings(action="error"):
        register_rule("unit_test_gone", "i j -> i j")


def test_what_this_library_knows_holds_again() -> None:
    inst = call("lapack_spotrf_ffi", ["f32[3,4,4]"], "(f32[3,4,4], s32[3])")
    known = signature_of(inst)
    with pytest.warns(hs.RuleReplacedWarning):
        register_rule("lapack_spotrf_ffi", "b i j -> b i j, b", need_replication_factors=("i", "j", "b"))
    assert signature_of(inst) != known
    hs.unregister_rule("lapack_spotrf_ffi")
    assert signature_of(inst) == known


@pytest.mark.parametrize(("said", "message"), [({}, "no rule for"), ({"rule": "i -> i", "like": abs}, "more than one")])
def test_one_rule_is_said(said: dict[str, object], message: str) -> None:
    with pytest.raises(RuleError, match=message):
        register_rule("unit_test_none", **said)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("op_name", "said"),
    [
        ("jit(step)/jit(gqa)/vmap(vmap(mha_forward))/pallas_call", "mha_forward"),
        ("jit(step)/jit(gqa)/vmap(vmap(mha_forward))/pallas_call", "gqa/mha_forward"),
        ("jit(step)/transpose(jvp(jit(softmax)))/vmap()/pallas_call", "softmax"),
    ],
)
def test_kernels_of_pallas_are_known_by_their_scopes(op_name: str, said: str) -> None:
    text = f"""HloModule m
    ENTRY e {{ x = f32[4] parameter(0)
      ROOT y = f32[4] custom-call(x), custom_call_target="tpu_custom_call", metadata={{op_name="{op_name}"}} }}"""
    inst = hs.load(text).by_name("y")
    register_rule(said, "i -> i")
    assert str(signature_of(inst)) == "i -> i"
    hs.unregister_rule(said)
    found = signature_of(inst)
    assert isinstance(found, Opaque)
    assert said.rpartition("/")[2] in found.reason
