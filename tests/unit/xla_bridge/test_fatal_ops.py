"""What would end the process that exports it: constants of six bits, and a reduce of several operands in dead code,
whose reducer calls a function."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import pytest

import hlosharding as hs
from hlosharding import xla_bridge

X = jax.ShapeDtypeStruct((4, 6), jnp.float32)


def larger(a: Any, b: Any) -> Any:
    is_first = a[0] > b[0]
    return jnp.where(is_first, a[0], b[0]), jnp.where(is_first, a[1], b[1])


def largest(x: Any) -> Any:
    return jax.lax.reduce((x, jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)), (-jnp.inf, 0), larger, (1,))


def nobody_uses(x: Any) -> Any:
    largest(x)
    return x + 1


def dead_code_uses(x: Any) -> Any:
    largest(largest(x)[0][:, None] + 1)
    return largest(x)[1]


@pytest.mark.parametrize(("function", "living"), [(nobody_uses, 0), (dead_code_uses, 1)])
def test_dead_reduces_are_left_out(function: Any, living: int) -> None:
    lowered: Any = jax.jit(function, keep_unused=True).lower(X)
    module = lowered.compiler_ir("stablehlo")
    with module.context:
        bytecode = module.operation.get_asm(binary=True)
    for form in (lowered, lowered.as_text(), bytecode):
        module = hs.load(form)
        assert [i.opcode for i in module.instructions].count("reduce") == living


def test_living_reduces_are_as_they_were() -> None:
    lowered: Any = jax.jit(lambda x: largest(x)[1]).lower(X)
    protos = xla_bridge.lowered_to_hlo_proto(lowered), lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    ours, theirs = (xla_bridge.hlo_proto_to_text(proto, metadata=False) for proto in protos)
    assert ours == theirs


def test_what_lives_beside_dead_reduces_keeps_its_names_and_lines() -> None:
    module = hs.load(jax.jit(nobody_uses, keep_unused=True).lower(X))
    [add] = [i for i in module.instructions if i.opcode == "add"]
    assert add.op_name.endswith("/add")
    assert "test_fatal_ops.py" in str(add.frames)


@pytest.mark.parametrize("kind", [ml_dtypes.float6_e2m3fn, ml_dtypes.float6_e3m2fn])
def test_constants_of_six_bits_are_refused(kind: Any) -> None:
    with pytest.raises(hs.LoadError, match=r"constant of type f6E.*no form in HLO"):
        hs.load(jax.jit(lambda: jnp.full(2, 1, kind)).lower())
