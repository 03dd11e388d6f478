"""The stages of `hs.jit`, one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.compiler import Compiled, PartitionedStage, PropagatedStage, Traced

X = np.arange(64, dtype=np.float32).reshape(8, 8) / 64


def f(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return jnp.tanh(x @ params["up"]) @ params["down"]


PARAMS = {"up": np.ones((8, 16), np.float32), "down": np.full((16, 4), 0.5, np.float32)}
SPECS = ({"up": P(None, "model"), "down": P("model", None)}, P("data"))


@pytest.fixture(scope="module")
def step() -> hs.compiler.Jitted:
    mesh = Mesh(np.array(jax.devices("cpu")).reshape(2, 4), ("data", "model"))
    return hs.jit(f, mesh=mesh, in_shardings=SPECS, out_shardings=P("data"))


@pytest.fixture(scope="module")
def traced(step: hs.compiler.Jitted) -> Traced:
    return step.trace(
        jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), PARAMS), jax.ShapeDtypeStruct((8, 8), np.float32)
    )


def test_abstract_arguments_are_enough(traced: Traced) -> None:
    assert "ENTRY" in traced.as_text()
    assert traced.module.signature.names[-1] == "x" or len(traced.module.signature.names) == 3


def test_jaxs_own_names_lead_to_the_same_program(step: hs.compiler.Jitted, traced: Traced) -> None:
    for stage in (step.lower(PARAMS, X), step.trace(PARAMS, X).lower()):
        assert stage.as_python() == traced.propagate().partition().as_python()
        np.testing.assert_allclose(stage.compile()(PARAMS, X), f(PARAMS, X), rtol=1e-6)


def test_a_program_runs_on_the_devices_of_its_mesh() -> None:
    devices = jax.devices("cpu")[:2:-1][:4]
    double = hs.jit(lambda x: 2 * x, mesh=Mesh(np.array(devices), ("data",)), in_shardings=P("data"))
    for result in (double(X), double.lower(X).compile()(X)):
        assert [s.device for s in sorted(result.addressable_shards, key=lambda s: s.index[0].start)] == devices


def test_propagation_can_be_asked(traced: Traced) -> None:
    stage = traced.propagate()
    assert isinstance(stage, PropagatedStage)
    assert "sharding=" in stage.as_text()
    name = next(i.name for i in stage.module.entry.instructions if i.opcode == "tanh")
    assert str(stage.shardings[name]) == "{devices=[2,4]<=[8]}"
    assert "up" in str(stage.explain(name)) or "dot" in str(stage.explain(name))


def test_partitioning_shows_text_source_and_cost(traced: Traced) -> None:
    stage = traced.propagate().partition()
    assert isinstance(stage, PartitionedStage)
    assert "all-reduce" in stage.partitioned.to_hlo_text()
    assert "sdy.sharding" in stage.as_text()
    assert "psum" in stage.as_python()
    figures = stage.cost_analysis()
    assert figures["bytes received"] == 2 * 3 / 4 * (8 // 2) * 4 * 4
    assert figures["flops"] >= 2 * 8 * 8 * 16 / 8 + 2 * 8 * 16 * 4 / 8
    assert figures["seconds"] > 0


def test_the_machine_may_be_named(traced: Traced) -> None:
    stage = traced.propagate().partition(machine=hs.machines.dgx2_v100(8))
    assert stage.partitioned.machine.name.startswith("dgx2")


def test_the_last_stage_runs(traced: Traced) -> None:
    compiled = traced.propagate().partition().compile()
    assert isinstance(compiled, Compiled)
    np.testing.assert_allclose(compiled(PARAMS, X), f(PARAMS, X), rtol=1e-6)
    assert compiled.output_shardings.spec == P("data")
    assert len(jax.tree.leaves(compiled.input_shardings)) == 3
    assert compiled.as_python().count("def ") >= 1
    assert "ENTRY" in compiled.as_text()


def test_a_compiled_program_refuses_other_arguments(traced: Traced) -> None:
    compiled = traced.propagate().partition().compile()
    with pytest.raises((hs.HloShardingError, ValueError), match=r"structure|types differ"):
        compiled(PARAMS, X[:4])
    with pytest.raises(TypeError, match="structure"):
        compiled(X)
    with pytest.raises(TypeError, match="structure"):
        compiled([PARAMS["up"], PARAMS["down"]], X)


def test_lists_of_as_many_arrays_are_no_arrays(mesh_2x4: Mesh) -> None:
    compiled = hs.jit(jnp.sin, mesh=mesh_2x4).lower(1.0).compile()
    with pytest.raises(TypeError, match="does not match the input pytree it was called with"):
        compiled([1.0])


def test_a_compiled_program_is_not_traced(mesh_2x4: Mesh) -> None:
    compiled = hs.jit(jnp.sin, mesh=mesh_2x4).lower(X).compile()
    with pytest.raises(TypeError, match="Cannot apply JAX transformations"):
        jax.jit(compiled)(X)


def test_what_a_stage_tells_is_what_jax_tells(mesh_2x4: Mesh) -> None:
    options = {"in_shardings": jax.NamedSharding(mesh_2x4, P("data")), "donate_argnums": (0,)}
    x = jax.core.ShapedArray((8, 4), np.dtype(np.float32))
    ours = hs.jit(lambda x: (x * 2, x.sum()), **options).lower(x)
    theirs = jax.jit(lambda x: (x * 2, x.sum()), **options).lower(x)
    assert (ours.in_avals, ours.donate_argnums) == (theirs.in_avals, theirs.donate_argnums)
    for mine, its in zip(ours.compile().out_info, theirs.compile().out_info, strict=True):
        assert (mine.shape, mine.dtype) == (its.shape, its.dtype)
        assert mine.sharding.is_equivalent_to(its.sharding, len(its.shape))


def test_a_compiled_program_takes_arrays_only_where_it_was_compiled_for(mesh_2x4: Mesh) -> None:
    rows, columns = (jax.NamedSharding(mesh_2x4, spec) for spec in (P("data"), P(None, "model")))
    compiled = hs.jit(lambda x: x + 1, in_shardings=rows).lower(jax.ShapeDtypeStruct((8, 8), np.float32)).compile()
    np.testing.assert_array_equal(compiled(jax.device_put(X, rows)), X + 1)
    np.testing.assert_array_equal(compiled(X), X + 1)
    with pytest.raises(ValueError, match="disagree with the shardings of arguments passed to it"):
        compiled(jax.device_put(X, columns))


def test_stages_say_in_a_line_what_they_are(traced: Traced) -> None:
    stages = (traced, traced.propagate(), traced.lower(), traced.lower().compile())
    texts = [repr(stage) for stage in stages]
    assert [text.partition("(")[0] for text in texts] == ["Traced", "PropagatedStage", "PartitionedStage", "Compiled"]
    assert all("jit_f" in text and len(text) < 150 for text in texts)


def test_programs_are_found_in_jaxs_persistent_cache(mesh_2x4: Mesh, tmp_path: Path) -> None:
    """As jax.jit's: what was compiled before does not change a program, nor does a new function object."""

    def total(x: jax.Array) -> jax.Array:
        return x.sum(0)

    def compiled(*others: Any) -> set[str]:
        jax.clear_caches()
        compilation_cache.reset_cache()
        for function in (*others, total):
            assert hs.jit(function, mesh=mesh_2x4, in_shardings=P("data")).lower(X).compile().runtime_executable()
        return {path.name for path in tmp_path.glob("jit_total*-cache")}

    settings = {
        "jax_compilation_cache_dir": str(tmp_path),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    try:
        for name, value in settings.items():
            jax.config.update(name, value)
        first = compiled()
        assert len(first) == 1
        assert compiled(jnp.cumsum) == first
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()


def test_a_compiled_program_says_in_jaxs_words_what_does_not_fit() -> None:
    step = hs.jit(lambda x, y: x + y.sum(), mesh=mesh_of(2), in_shardings=P("data"))
    compiled = step.lower(X, np.ones(4, np.float32)).compile()
    with pytest.raises(TypeError, match=r"types differ .*\nArgument 'y' compiled with float32\[4\] and called"):
        compiled(X, np.ones(1, np.float32))
    with pytest.raises(TypeError, match=r"Argument 'x' compiled with float32\[8, 8\] and called with int32\[8, 8\]"):
        compiled(np.ones((8, 8), np.int32), np.ones(4))  # 64 bits are cut, as by jax.jit
    np.testing.assert_array_equal(compiled(X, np.ones(4)), X + 4)


def mesh_of(count: int) -> Mesh:
    return Mesh(np.array(jax.devices("cpu")[:count]), ("data",))


def test_as_many_devices_as_the_program_is_for() -> None:
    lowered = hs.jit(lambda x: x + 1, mesh=mesh_of(2), in_shardings=P("data")).lower(X)
    with pytest.raises(ValueError, match=r"device_assignment passed to .* must match"):
        lowered.compile(device_assignment=jax.devices()[:1])


@pytest.mark.parametrize("keep", [False, True])
def test_arguments_that_nothing_reads_stay_where_they_are(keep: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    step = hs.jit(lambda x, y, z: x + z, mesh=mesh_of(2), in_shardings=P("data"), keep_unused=keep)
    compiled = step.lower(X, X, X).compile()
    assert compiled._executable._kept_var_idx == ({0, 1, 2} if keep else {0, 2})
    put: list[Any] = []
    usual = jax.device_put
    monkeypatch.setattr(jax, "device_put", lambda array, *place: put.append(array) or usual(array, *place))
    elsewhere = usual(X, jax.devices()[5])
    if not keep:
        np.testing.assert_array_equal(compiled(X, elsewhere, X), 2 * X)
        put.clear()
    for _ in range(2):
        np.testing.assert_array_equal(step(X, X, X), 2 * X)
    assert len(put) == (3 if keep else 2)


def test_compiled_programs_are_serialized_as_jaxs_are() -> None:
    from jax.experimental import serialize_executable

    compiled = hs.jit(lambda x: 2 * x, mesh=mesh_of(2), in_shardings=P("data")).lower(X).compile()
    read = serialize_executable.deserialize_and_load(
        *serialize_executable.serialize(compiled), execution_devices=jax.devices()[:2]
    )
    np.testing.assert_array_equal(read(jax.device_put(X, compiled.input_shardings[0][0])), 2 * X)


def test_a_lowered_function_is_read_outside_of_its_context() -> None:
    with jax.set_mesh(mesh_of(2)):
        lowered = hs.jit(lambda x: 2 * x, in_shardings=P("data")).lower(X)
    assert "sdy.mesh" in lowered.as_text()
    assert lowered.compiler_ir() is not None
