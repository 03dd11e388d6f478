"""What we ask of JAX while it traces and lowers."""

from __future__ import annotations

import gc
import warnings
import weakref
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from hlosharding import wire, xla_bridge


@pytest.mark.parametrize("enabled", [False, True])
def test_the_dialect_of_lowering_is_chosen_by_a_context(enabled: bool) -> None:
    import jax

    mesh = jax.sharding.Mesh(np.array(xla_bridge.cpu_devices(2)), ("a",))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("a"))
    with xla_bridge.shardy(enabled):
        lowered = jax.jit(lambda x: x * 2, in_shardings=split).lower(jax.ShapeDtypeStruct((4,), np.float32))
    assert ("sdy." in lowered.as_text()) == enabled


def test_outside_of_traces_arrays_are_arrays() -> None:
    import jax

    seen: list[float] = []

    def traced(x: Any) -> Any:
        with xla_bridge.outside_traces():
            seen.append(float(jax.jit(lambda y: y + 1)(np.float32(1.0))))
        return x

    jax.jit(traced)(1.0)
    assert seen == [2.0]


def test_kernels_for_tpus_are_lowered_for_several_devices() -> None:
    import jax
    from jax.experimental.pallas.ops.tpu.example_kernel import double

    mesh = jax.sharding.Mesh(np.array(xla_bridge.cpu_devices(2)), ("a",))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("a"))
    traced = jax.jit(double, in_shardings=split).trace(jax.ShapeDtypeStruct((16, 128), np.float32))
    with pytest.raises(NotImplementedError, match="cannot be automatically partitioned"):
        traced.lower(lowering_platforms=("tpu",))
    options = xla_bridge.lowering_with_calls([], "place", "rule")
    assert "tpu_custom_call" in traced.lower(lowering_platforms=("tpu",), **options).as_text()


def test_whether_jax_can_lower_for_gspmd_is_asked_of_its_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    from jax._src import config

    def refuse(_: bool) -> None:
        raise ValueError("GSPMD is gone")

    assert xla_bridge.has_gspmd_lowering()
    with monkeypatch.context() as patch:
        patch.setattr(config, "use_shardy_partitioner", refuse)
        assert not xla_bridge.has_gspmd_lowering()
    monkeypatch.delattr(config, "use_shardy_partitioner")
    assert not xla_bridge.has_gspmd_lowering()
    assert xla_bridge.is_shardy()


@pytest.mark.parametrize("has_gspmd", [False, True])
def test_hlo_shardings_are_kept_for_a_while_in_either_dialect(monkeypatch: pytest.MonkeyPatch, has_gspmd: bool) -> None:
    import jax

    monkeypatch.setattr(xla_bridge.tracing, "has_gspmd_lowering", lambda: has_gspmd)
    seen: list[bool] = []
    traced = jax.jit(lambda x: (seen.append(xla_bridge.keeps_hlo_shardings()), x)[1])
    for kept in (False, True, False, True):
        with xla_bridge.keeping_hlo_shardings() if kept else nullcontext():
            assert xla_bridge.keeps_hlo_shardings() == kept
            assert xla_bridge.is_shardy() == (not (kept and has_gspmd))
            traced.lower(np.ones(3))
    assert seen == [False, True]


def test_a_sharding_call_survives_both_dialects() -> None:
    import jax

    def lower(_: Any, x: Any) -> list[Any]:
        return [xla_bridge.sharding_custom_call(x, "{devices=[2]1,0}", (0,))]

    primitive = xla_bridge.linear_identity("annotated", transpose=lambda c: c, batch=lambda a, d: (a, d), lower=lower)
    for enabled in (False, True):
        with xla_bridge.shardy(enabled):
            lowered = jax.jit(lambda x: primitive.bind(x + 1)).lower(np.ones(4))
        (entry,) = wire.HloModuleProto.FromString(xla_bridge.lowered_to_hlo_proto(lowered)).computations
        (call,) = (i for i in entry.instructions if i.opcode == "custom-call")
        assert (call.custom_call_target, call.backend_config) == ("Sharding", b"unspecified_dims=[0]")
        assert call.sharding.tile_assignment_devices == [1, 0]


def test_frames_of_this_package_are_hidden() -> None:
    import jax
    import jax.numpy as jnp

    def added(x: Any) -> Any:
        return xla_bridge.weakly_typed(jnp.sin(x))

    xla_bridge.prepare_tracing()
    module = wire.HloModuleProto.FromString(xla_bridge.lowered_to_hlo_proto(jax.jit(added).lower(np.float32(1))))
    names = module.stack_frame_index.file_names
    assert any(name.endswith("xla_bridge/test_tracing.py") for name in names)
    assert not any(name.endswith("hlosharding/xla_bridge/tracing.py") for name in names)


def test_an_array_becomes_weakly_typed_by_no_op() -> None:
    import jax
    import jax.numpy as jnp

    traced = jax.jit(xla_bridge.weakly_typed).trace(jnp.float32(3))
    assert traced.out_info.weak_type
    assert " convert(" not in traced.lower().compile().as_text()
    assert jax.jit(xla_bridge.weakly_typed)(jnp.float32(3)).weak_type


def test_the_mesh_of_the_context_is_found() -> None:
    import jax

    assert xla_bridge.context_mesh() is None
    mesh = jax.sharding.Mesh(np.array(xla_bridge.cpu_devices(2)), ("a",))
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning), mesh:
        assert xla_bridge.context_mesh() == mesh
    with jax.set_mesh(mesh):
        assert xla_bridge.context_mesh() == mesh
    assert xla_bridge.context_mesh() is None


@pytest.mark.parametrize("is_shardy", [False, True])
def test_functions_under_custom_partitioning_become_marked_calls_for_a_while(is_shardy: bool) -> None:
    import jax
    from jax.experimental.custom_partitioning import custom_partitioning

    @custom_partitioning
    def twice(x: jax.Array) -> jax.Array:
        return x + x

    def partition(*_: object) -> None:
        return None

    twice.def_partition(partition, sharding_rule="i -> i", need_replication_factors=("i",))
    function = jax.jit(lambda x: twice(x) * 3)
    for _ in range(2):  # the second time JAX's caches know the function
        found: list[dict[str, Any]] = []
        with xla_bridge.keeping_hlo_shardings(), xla_bridge.shardy(is_shardy):
            options = xla_bridge.lowering_with_calls(found, "place", "rule")
            text = function.trace(np.ones(4, np.float32)).lower(**options).as_text()
        assert 'place = "0"' in text
        assert "need_replication={i}" in text
        assert [(given["partition"], given["infer_sharding_from_operands"]) for given in found] == [(partition, None)]
    assert twice.partition is partition
    after = jax.jit(lambda x: twice(x) * 5).lower(np.ones(4, np.float32)).as_text()
    assert "place" not in after


def test_what_was_lowered_with_all_its_arguments_goes_when_nobody_has_it() -> None:
    import jax
    import jax.numpy as jnp

    def lower() -> weakref.ref[jax.Array]:
        array = jnp.arange(8.0)
        traced = jax.jit(lambda x: x + array, keep_unused=True).trace(1.0)
        traced.lower()
        xla_bridge.forget_lowering(traced)
        return weakref.ref(array)

    array = lower()
    gc.collect()
    assert array() is None


def test_dead_code_goes_and_arguments_stay() -> None:
    import jax
    import jax.numpy as jnp

    array = jnp.arange(8.0)
    traced = jax.jit(lambda x, y: ((y * array).sum(), x + 1)[1], keep_unused=True).trace(1.0, 2.0)
    live = xla_bridge.without_dead_code(traced)
    assert [eqn.primitive.name for eqn in live.jaxpr.eqns] == ["add"]
    assert live.jaxpr.consts == []
    assert len(live.jaxpr.in_avals) == 2
    assert len(traced.jaxpr.eqns) > 1
    assert live.lower().compile()(1.0, 2.0) == 2


def test_the_devices_that_arguments_are_committed_to() -> None:
    import jax

    double = jax.jit(lambda x: 2 * x)
    there = jax.device_put(np.ones(4), jax.devices()[3])
    assert xla_bridge.lowering_facts(double.lower(there))["devices"] == (jax.devices()[3],)
    assert "devices" not in xla_bridge.lowering_facts(double.lower(np.ones(4)))
