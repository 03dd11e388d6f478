"""Forms that are changed before the walk: the per-device program computes what the synchronous op computes."""

# ruff: noqa: E501  (HLO reads best with an instruction on one line)
from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from hlosharding import load, partition, propagate, verify_partitioned
from hlosharding.compiler import Partitioned
from hlosharding.errors import ExecutionError, LoadError, PartitionError
from hlosharding.xla_bridge import run_proto, without_shardings

SPLIT = "sharding={devices=[8]<=[8]}"
HEAD = """HloModule m, num_partitions=8
f { p = f32[16] parameter(0)  ROOT n = f32[16] negate(p) }
g { p = f32[16] parameter(0)  q = f32[16] negate(p)  ROOT n = f32[16] multiply(q, p) }
two { a = f32[16] parameter(0)  b = f32[16] parameter(1)  s = f32[16] add(a, b)  d = f32[16] subtract(a, b)  ROOT r = (f32[16], f32[16]) tuple(s, d) }
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
ENTRY e {
"""
X = f"  x = f32[16] parameter(0), {SPLIT}\n"
GROUPS = "channel_id=1, replica_groups={{0},{1},{2},{3},{4},{5},{6},{7}}, use_global_device_ids=true"
PAIRS = {
    "call": ("  s = ((f32[16]), f32[16], u32[]) call-start(x), to_apply=f\n  d = f32[16] call-done(s)\n", "-x"),
    "call with an update": ("  s = ((f32[16]), f32[16], u32[]) call-start(x), to_apply=g\n  u = ((f32[16]), f32[16], u32[]) call-update(s)\n  d = f32[16] call-done(u)\n", "-x*x"),
    "async-start": ("  s = ((f32[16]), f32[16], u32[]) async-start(x), calls=g\n  d = f32[16] async-done(s), calls=g\n", "-x*x"),
    "one op": ("  s = ((f32[16]), f32[16], u32[]) negate-start(x)\n  d = f32[16] negate-done(s)\n", "-x"),
    "copy": ("  s = (f32[16], f32[16], u32[]) copy-start(x)\n  d = f32[16] copy-done(s)\n", "x"),
    "all-reduce": (f"  s = f32[16] all-reduce-start(x), to_apply=sum, {GROUPS}\n  d = f32[16] all-reduce-done(s)\n", "x"),
    "all-gather": (f"  s = (f32[16], f32[16]) all-gather-start(x), dimensions={{0}}, {GROUPS}\n  d = f32[16] all-gather-done(s)\n", "x"),
}  # fmt: skip
MEANINGS: dict[str, Any] = {"x": lambda x: x, "-x": lambda x: -x, "-x*x": lambda x: -x * x}


def judged(text: str, *given: npt.NDArray[Any]) -> tuple[Partitioned, list[npt.NDArray[Any]]]:
    """The program, which XLA and our laws take; what both executors make of it, which is the same."""
    local = partition(propagate(load(text, format="hlo"), to_outputs=True))
    verify_partitioned(local.module)
    assert local.to_hlo_text()
    results = [local.run_reference(*given), local.run(*given)]
    reference, ran = (list(r) if isinstance(r, tuple) else [r] for r in results)
    for one, other in zip(reference, ran, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    return local, reference


@pytest.mark.parametrize("pair", PAIRS)
def test_an_asynchronous_pair_is_the_op_that_it_wraps(pair: str) -> None:
    ops, meaning = PAIRS[pair]
    x = np.arange(1, 17, dtype=np.float32)
    local, (result,) = judged(f"{HEAD}{X}{ops}  ROOT r = f32[16] add(x, d), {SPLIT}\n}}\n", x)
    np.testing.assert_array_equal(result, x + MEANINGS[meaning](x))
    assert not any(i.opcode.endswith(("-start", "-done")) for i in local.module.instructions)


def test_the_value_keeps_the_name_and_the_sharding_of_its_end() -> None:
    ops = f"  s = ((f32[16]), f32[16], u32[]) call-start(x), to_apply=f\n  ROOT d = f32[16] call-done(s), {SPLIT}\n}}\n"
    module = load(HEAD + X + ops, format="hlo")
    root = partition(module).module.entry.root
    assert (root.name, root.opcode, str(root.shape)) == (module.entry.root.name, "call", "f32[2]")


@pytest.mark.parametrize(
    ("ops", "words"),
    [
        ("  s = ((f32[16]), f32[16], u32[]) call-start(x), to_apply=f\n  ROOT r = f32[16] negate(x)", "%s"),
        ("  s = ((f32[16]), f32[16], u32[]) call-start(x), to_apply=f\n  d = f32[16] call-done(s)\n  c = f32[16] call-done(s)\n  ROOT r = f32[16] add(c, d)", "%s"),
        ("  s = ((f32[16]), f32[16], u32[]) call-start(x), to_apply=f\n  d = f32[16] call-done(s)\n  c = f32[16] get-tuple-element(s), index=1\n  ROOT r = f32[16] add(c, d)", "%s"),
    ],
)  # fmt: skip
def test_a_start_has_exactly_one_end(ops: str, words: str) -> None:
    with pytest.raises(PartitionError, match="not read by exactly one async-done") as caught:
        partition(load(f"{HEAD}{X}{ops}\n}}\n", format="hlo"))
    assert words in str(caught.value)


def test_an_end_has_a_start() -> None:
    ops = "  t = (f32[16], f32[16], u32[]) parameter(1)\n  d = f32[16] copy-done(t)\n  ROOT r = f32[16] add(x, d)\n}\n"
    with pytest.raises(LoadError, match="operand %t is no copy-start; at %d"):
        partition(load(HEAD + X + ops, format="hlo"))


def test_a_fusion_is_what_its_body_computes() -> None:
    text = f"{HEAD}{X}  y = f32[16] parameter(1), {SPLIT}\n  ROOT z = (f32[16], f32[16]) fusion(x, y), kind=kLoop, calls=two\n}}\n"
    x, y = np.arange(16, dtype=np.float32), np.ones(16, np.float32)
    local, (total, difference) = judged(text, x, y)
    np.testing.assert_array_equal(total, x + y)
    np.testing.assert_array_equal(difference, x - y)
    assert [str(i.shape) for i in local.module.instructions if i.opcode == "add"] == ["f32[2]"]


CUBE = "x = s32[4,8,8] parameter(0), sharding={devices=[1,2,4]<=[8]}"


@pytest.mark.parametrize("start", [(0, 0, 0), (2, 3, 5), (9, 9, 9), (-3, 7, 1)])
def test_start_indices_in_one_vector(start: tuple[int, ...]) -> None:
    text = f"HloModule m, num_partitions=8\nENTRY e {{\n  {CUBE}\n  i = s32[3] parameter(1)\n  u = s32[2,1,3] parameter(2)\n  d = s32[2,1,3] dynamic-slice(x, i), dynamic_slice_sizes={{2,1,3}}\n  w = s32[4,8,8] dynamic-update-slice(x, u, i)\n  ROOT r = (s32[2,1,3], s32[4,8,8]) tuple(d, w)\n}}\n"
    x, i, u = np.arange(256, dtype=np.int32).reshape(4, 8, 8), np.array(start, np.int32), -np.ones((2, 1, 3), np.int32)
    _, (taken, written) = judged(text, x, i, u)
    at = tuple(
        slice(c, c + n) for s, n, m in zip(start, u.shape, x.shape, strict=True) for c in [min(max(s, 0), m - n)]
    )
    np.testing.assert_array_equal(taken, x[at])
    expected = x.copy()
    expected[at] = u
    np.testing.assert_array_equal(written, expected)


@pytest.mark.parametrize("kind", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
def test_the_high_half_of_a_product(kind: str) -> None:
    bits = int(kind[1:])
    dtype = np.dtype(f"{'int' if kind[0] == 's' else 'uint'}{bits}")
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    numbers = [low, low + 1, 0, 1, 3, 77, high // 3, high // 2, high - 1, high, low // 2, low // 3]
    a, b = zip(*[(p, q) for p in numbers for q in numbers], strict=True)
    expected = np.array([p * q >> bits for p, q in zip(a, b, strict=True)], dtype)
    text = f"HloModule m, num_partitions=8\nENTRY e {{\n  a = {kind}[144] parameter(0), {SPLIT}\n  b = {kind}[144] parameter(1), {SPLIT}\n  ROOT r = {kind}[144] mulhi(a, b)\n}}\n"
    local, (result,) = judged(text, np.array(a, dtype), np.array(b, dtype))
    np.testing.assert_array_equal(result, expected)
    assert not local.collectives


def test_a_size_that_is_set_to_all_there_is() -> None:
    """As TensorFlow writes every top k and sort; of any other size arrays stay whole, and have no form in JAX."""
    ops = f"HloModule m, num_partitions=8\nENTRY e {{\n{X}  n = s32[] constant(16)\n  y = f32[16] set-dimension-size(x, n), dimensions={{0}}, {SPLIT}\n  ROOT r = f32[16] negate(y), {SPLIT}\n}}\n"
    x = np.arange(16, dtype=np.float32)
    local, (result,) = judged(ops, x)
    np.testing.assert_array_equal(result, -x)
    assert not local.collectives
    some = ops.replace("constant(16)", "constant(12)")
    with pytest.raises(ExecutionError, match="sizes change at run time"):
        judged(some, x)


def test_what_nothing_is_joined_to_stays_where_it_is() -> None:
    """As TensorFlow writes a mirrored pad of a picture, along its batch."""
    ops = f"HloModule m, num_partitions=8\nENTRY e {{\n{X}  n = f32[0] slice(x), slice={{[3:3]}}\n  c = f32[16] concatenate(n, x, n), dimensions={{0}}, {SPLIT}\n  d = f32[32] concatenate(x, n, c), dimensions={{0}}, {SPLIT}\n  m = f32[0] concatenate(n, n), dimensions={{0}}, {SPLIT}\n  ROOT r = (f32[16], f32[32], f32[0]) tuple(c, d, m)\n}}\n"
    x = np.arange(16, dtype=np.float32)
    local, (one, two, none) = judged(ops, x)
    np.testing.assert_array_equal(one, x)
    np.testing.assert_array_equal(two, np.concatenate([x, x]))
    assert none.shape == (0,)
    joined = partition(
        propagate(
            load(
                ops.replace("ROOT r", "r").replace(
                    "tuple(c, d, m)\n", "tuple(c, d, m)\n  ROOT y = f32[16] negate(c)\n"
                ),
                format="hlo",
            ),
            to_outputs=True,
        )
    )
    assert not joined.collectives
    assert local.collectives  # halves of the two meet


def test_a_convolution_without_spatial_dims_has_a_window() -> None:
    """XLA refuses one whose window is not set, though it has no dims."""
    text = "HloModule m, num_partitions=8\nENTRY e {\n  x = f32[16,32] parameter(0), sharding={devices=[8,1]<=[8]}\n  w = f32[32,64] parameter(1), sharding={replicated}\n  ROOT c = f32[16,64] convolution(x, w), dim_labels=bf_io->bf, sharding={devices=[8,1]<=[8]}\n}\n"
    x, w = np.ones((16, 32), np.float32), np.ones((32, 64), np.float32)
    _, (result,) = judged(text, x, w)
    one_device = run_proto(without_shardings(load(text, format="hlo").to_hlo_proto()), [[x], [w]])[0][0]
    np.testing.assert_array_equal(result, one_device)
