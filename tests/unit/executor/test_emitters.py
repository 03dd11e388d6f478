"""Every emitter against a one-device run of the same op by XLA."""

# ruff: noqa: E501  (HLO reads best with an instruction on one line)
from __future__ import annotations

import numpy as np
import pytest

from hlosharding import xla_bridge
from hlosharding.errors import ExecutionError
from hlosharding.executor import ShardMapProgram
from hlosharding.executor.emit import EMITTERS, REFUSED
from hlosharding.ir import ALL_OPCODES, Module
from tests.unit.executor.op_cases import CASES, module_of, programs, values

SPECIAL = frozenset({"compare", "maximum", "minimum", "convert", "divide", "remainder", "sign", "abs", "is-finite", "clamp",
                     "round-nearest-afz", "round-nearest-even", "reduce-precision", "sort", "negate", "shift-left",
                     "shift-right-arithmetic", "shift-right-logical", "floor", "ceil", "select"})  # fmt: skip


def inputs_of(module: Module, special: bool) -> list[np.ndarray]:
    leaves = [leaf for p in module.entry.parameters for leaf in p.shape.leaves]
    return [values(leaf, seed, special) for seed, leaf in enumerate(leaves)]


def flat_outputs(module: Module, arguments: list[np.ndarray]) -> list[np.ndarray]:
    return [output[0] for output in xla_bridge.run_proto(module.to_hlo_proto(), [[a] for a in arguments])]


def assert_same(ours: np.ndarray, theirs: np.ndarray) -> None:
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    if ours.dtype.kind in "biu":
        np.testing.assert_array_equal(ours, theirs)
        return
    wide = np.complex128 if ours.dtype.kind == "c" else np.float64
    step = 1e-6 if ours.dtype.name in ("float32", "complex64") else 1e-12 if ours.dtype.itemsize >= 8 else 1e-2
    np.testing.assert_allclose(ours.astype(wide), theirs.astype(wide), rtol=4 * step, atol=4 * step)


@pytest.mark.parametrize("opcode", sorted(CASES))
def test_emitter_equals_one_device_run(opcode: str) -> None:
    for body in programs(opcode):
        module = module_of(body)
        arguments = inputs_of(module, opcode in SPECIAL)
        theirs = flat_outputs(module, arguments)
        program = ShardMapProgram(module)
        ours = program.run(*arguments)
        assert len(ours) == len(theirs), body
        for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            try:
                assert_same(mine, other)
            except AssertionError as error:
                raise AssertionError(f"output {number} of {body}\n{program.source}\n{error}") from None


# XLA's CPU backend runs these only when JAX has taken them apart before; numpy is the judge.
BY_NUMPY = {
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh, "atanh": np.arctanh, "cosh": np.cosh,
    "sinh": np.sinh,
}  # fmt: skip


@pytest.mark.parametrize("opcode", BY_NUMPY)
def test_emitter_equals_numpy(opcode: str) -> None:
    for kind in ("f32", "f64", "f16"):
        module = module_of(f"x = {kind}[64] parameter(0) ROOT r = {kind}[64] {opcode}(x)")
        x = np.random.default_rng(0).uniform(1.1 if opcode == "acosh" else -0.9, 2.0 if opcode == "acosh" else 0.9, 64)
        x = x.astype(module.entry.root.shape.dtype)
        (out,) = ShardMapProgram(module).run(x)
        np.testing.assert_allclose(out, BY_NUMPY[opcode](x), rtol=2e-3 if kind == "f16" else 2e-6)


def test_ragged_dot_equals_a_dot_per_group() -> None:
    """XLA's CPU backend has no ragged-dot of its own."""
    module = module_of(
        "x = f32[6,4] parameter(0) y = f32[2,4,5] parameter(1) g = s32[2] constant({4, 2})"
        " ROOT r = f32[6,5] ragged-dot(x, y, g), lhs_contracting_dims={1}, rhs_contracting_dims={1},"
        " lhs_ragged_dims={0}, rhs_group_dims={0}"
    )
    x, y = inputs_of(module, False)
    (out,) = ShardMapProgram(module).run(x, y)
    np.testing.assert_allclose(out, np.concatenate([x[:4] @ y[0], x[4:] @ y[1]]), rtol=1e-5)


def test_bitcast_is_a_reshape() -> None:
    """XLA refuses a bitcast in a module that is not optimized yet."""
    module = module_of("x = f32[2,6] parameter(0) ROOT r = f32[3,4] bitcast(x)")
    (x,) = inputs_of(module, False)
    np.testing.assert_array_equal(ShardMapProgram(module).run(x)[0], x.reshape(3, 4))


def test_rng_draws_in_its_range() -> None:
    """The stateful op has no value to compare with."""
    module = module_of(
        "a = f32[] constant(2) b = f32[] constant(3) ROOT r = f32[1000] rng(a, b), distribution=rng_uniform"
    )
    (out,) = ShardMapProgram(module).run()
    assert 2 <= out.min() < 2.1
    assert 2.9 < out.max() < 3


def test_every_opcode_has_an_emitter_or_a_reason() -> None:
    no_line = {"parameter", "tuple", "get-tuple-element", "copy", "domain", "add-dependency"}
    assert not set(EMITTERS) & set(REFUSED)
    assert not (set(EMITTERS) | set(REFUSED)) & no_line
    assert set(EMITTERS) | set(REFUSED) | no_line == set(ALL_OPCODES)


def test_every_emitter_has_a_case() -> None:
    elsewhere = {"ragged-dot", "bitcast", "rng", "scan", *BY_NUMPY}
    on_many_devices = {"collective-broadcast", "ragged-all-to-all"}
    assert set(EMITTERS) <= set(CASES) | elsewhere | on_many_devices


def test_refusal_names_op_line_and_reason() -> None:
    module = module_of(
        "x = f32[4] parameter(0) t = token[] after-all() o = token[] outfeed(x, t) ROOT r = f32[4] negate(x)"
    )
    with pytest.raises(ExecutionError, match=r"outfeed cannot run: a transfer to or from the host .*; at %o"):
        ShardMapProgram(module).run(np.ones(4, np.float32))
