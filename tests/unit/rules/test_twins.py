"""Custom calls like a JAX function: the rule for their shapes, its price, and what is no twin."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.pallas.ops.gpu import softmax

from hlosharding.cost import op_work
from hlosharding.errors import RuleError
from hlosharding.rules import Nothing, Signature, register_rule, signature_of
from tests.support.custom_calls import call


def rule_of(target: str, operands: list[str], result: str) -> Signature:
    found = signature_of(call(target, operands, result))
    assert isinstance(found, Signature)
    return found


def free(signature: Signature) -> str:
    return "".join(factor.name for factor in signature.factors if factor.owes == Nothing())


def test_what_depends_on_a_size_is_whole() -> None:
    register_rule("twin_mean", like=lambda x: x.mean(-1))
    found = rule_of("twin_mean", ["f32[64,512]"], "f32[64]")
    assert (str(found), free(found)) == ("a b -> a", "a")
    assert [type(factor.owes).__name__ for factor in found.factors] == ["Nothing", "Whole"]


def test_a_call_of_other_shapes_has_a_rule_of_its_own_and_is_not_tried_again() -> None:
    shapes: list[Any] = []

    def twin(x: Any, y: Any) -> Any:
        shapes.append(x.shape)
        return x @ y

    register_rule("twin_product", like=twin)
    assert str(rule_of("twin_product", ["f32[64,512]", "f32[512,32]"], "f32[64,32]")) == "a b, b c -> a c"
    seen = len(shapes)
    assert [f.size for f in rule_of("twin_product", ["f32[8,16]", "f32[16,32]"], "f32[8,32]").factors] == [8, 16, 32]
    assert shapes[seen:] == [(8, 16)]


def test_a_twin_that_takes_large_arguments_only() -> None:
    def blocks(x: Any) -> Any:
        return x.reshape(-1, 32, x.shape[1]).sum(1)

    register_rule("twin_blocks", like=blocks)
    found = rule_of("twin_blocks", ["f32[1024,512]"], "f32[32,512]")
    assert (str(found), free(found)) == ("(a b) c -> a c", "ac")


def test_the_price_is_that_of_the_twins_arithmetic_and_of_the_calls_arrays() -> None:
    register_rule("twin_priced", like=lambda x, y: jnp.exp(x @ y))
    work = op_work(call("twin_priced", ["f32[64,512]", "f32[512,32]"], "f32[64,32]"))
    assert work.flops == 2 * 64 * 512 * 32
    assert work.transcendentals == 64 * 32
    assert work.bytes == 4 * (64 * 512 + 512 * 32 + 64 * 32)


def kernel(x: Any) -> Any:
    return softmax.softmax(x, interpret=True)


def test_a_kernel_that_runs_here_is_compared() -> None:
    register_rule("twin_of_kernel", like=jax.nn.softmax, kernel=kernel)
    assert free(rule_of("twin_of_kernel", ["f32[64,512]"], "f32[64,512]")) == "a"
    register_rule("no_twin_of_kernel", like=jax.nn.sigmoid, kernel=kernel)
    with pytest.raises(
        RuleError, match=r"sigmoid, like which 'no_twin_of_kernel' .* gives other numbers than the kernel"
    ):
        rule_of("no_twin_of_kernel", ["f32[64,512]"], "f32[64,512]")


def test_what_the_kernel_does_not_take_in_pieces_is_whole() -> None:
    def blocked(x: Any) -> Any:
        if x.shape[1] % 256:
            raise ValueError("rows of 256")
        return jnp.sin(x)

    register_rule("twin_of_blocked", like=jnp.sin, kernel=blocked)
    assert free(rule_of("twin_of_blocked", ["f32[64,512]"], "f32[64,512]")) == "a"


def calls_itself(x: Any) -> Any:
    return jax.ffi.ffi_call("twin_of_itself", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


NO_TWINS: dict[str, tuple[Any, str]] = {
    "shapes": (lambda x: x.reshape(7, 9), r"cannot be traced for f32\[8,4\]: .*reshape"),
    "arguments": (lambda x, y: x, r"cannot be traced for f32\[8,4\]: .*missing 1 required"),
    "results": (lambda x: x.sum(0), r"gives f32\[4\], and the call f32\[8,4\]"),
    "types": (lambda x: x.astype(jnp.bfloat16), r"gives bf16\[8,4\], and the call f32\[8,4\]"),
    "number": (lambda x: (x, x), r"gives f32\[8,4\], f32\[8,4\], and the call f32\[8,4\]"),
    "itself": (calls_itself, "calls_itself, like which 'twin_of_itself' is partitioned, calls the kernel itself"),
}


@pytest.mark.parametrize("what", NO_TWINS)
def test_what_is_no_twin_is_an_error_that_names_it(what: str) -> None:
    function, message = NO_TWINS[what]
    register_rule(f"twin_of_{what}", like=function)
    with pytest.raises(RuleError, match=message):
        rule_of(f"twin_of_{what}", ["f32[8,4]"], "f32[8,4]")


def test_a_kernel_without_a_twin_says_nothing() -> None:
    with pytest.raises(RuleError, match="nothing to compare it with"):
        register_rule("twin_less", "i -> i", kernel=kernel)
