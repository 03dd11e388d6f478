"""Each private jaxlib touch point does what the rest of the package relies on."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from hlosharding import wire, xla_bridge
from hlosharding.errors import ExecutionError, LoadError

TEXT = """HloModule m

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

ENTRY %main (x: f32[4,2], i: s32[]) -> (f32[4,2], s32[], u32[]) {
  %x = f32[4,2]{1,0} parameter(0), sharding={devices=[2,1]<=[2]}
  %i = s32[] parameter(1)
  %all = f32[4,2] all-reduce(%x), channel_id=1, replica_groups={{0,1},{2,3}}, to_apply=%sum, use_global_device_ids=true
  %next = s32[] collective-permute(%i), channel_id=2, source_target_pairs={{0,1},{1,0}}
  %me = u32[] partition-id()
  ROOT %t = (f32[4,2]{1,0}, s32[], u32[]) tuple(%all, %next, %me)
}
"""

NEGATE = "HloModule n\nENTRY %e (x: f64[3]) -> f64[3] {\n  %x = f64[3] parameter(0)\n  ROOT %y = f64[3] negate(%x)\n}\n"


def test_text_becomes_a_proto_that_our_wire_classes_read() -> None:
    module = wire.HloModuleProto.FromString(xla_bridge.hlo_text_to_proto(TEXT))
    assert module.name == "m"
    assert [c.name for c in module.computations] == ["sum", "main"]
    assert module.computations[1].instructions[0].sharding.tile_assignment_dimensions == [2, 1]


def test_ids_keep_the_order_of_the_text() -> None:
    text = "HloModule o\nENTRY e {\n  b = f32[] parameter(1)\n  y = f32[] negate(b)\n  a = f32[] parameter(0)\n"
    text += "  x = f32[] negate(a)\n  ROOT t = (f32[], f32[]) tuple(x, y)\n}\n"
    module = wire.HloModuleProto.FromString(xla_bridge.hlo_text_to_proto(text))
    by_id = sorted(module.computations[0].instructions, key=lambda i: i.id)
    assert [i.name for i in by_id] == ["b", "y", "a", "x", "t"]


@pytest.mark.parametrize("text", ["", "garbage", "HloModule m\nENTRY e {\n ROOT x = f32[2] add(y, y)\n}", "\x00" * 10])
def test_what_is_no_hlo_text_is_a_load_error(text: str) -> None:
    with pytest.raises(LoadError, match="not HLO text"):
        xla_bridge.hlo_text_to_proto(text)


def test_proto_prints_with_all_constants_and_on_request_without_metadata() -> None:
    values = ", ".join(str(i) for i in range(40))
    text = f'HloModule c\nENTRY e {{\n ROOT c = s32[40] constant({{{values}}}), metadata={{op_name="here"}}\n}}'
    proto = xla_bridge.hlo_text_to_proto(text)
    assert "38, 39" in xla_bridge.hlo_proto_to_text(proto)
    assert 'op_name="here"' in xla_bridge.hlo_proto_to_text(proto)
    assert "op_name" not in xla_bridge.hlo_proto_to_text(proto, metadata=False)
    assert "s32[40] constant" in xla_bridge.hlo_proto_to_text(proto, layouts=False)


def test_bytes_that_are_no_module_are_a_load_error() -> None:
    with pytest.raises(LoadError):
        xla_bridge.hlo_proto_to_text(b"\x01\x02 no proto")


def test_stablehlo_there_and_back_keeps_shardings() -> None:
    stablehlo = xla_bridge.hlo_proto_to_stablehlo(xla_bridge.hlo_text_to_proto(TEXT))
    assert "stablehlo.all_reduce" in stablehlo
    assert "mhlo.sharding" in stablehlo
    module = wire.HloModuleProto.FromString(xla_bridge.stablehlo_to_hlo_proto(stablehlo))
    entry = module.computations[-1].instructions
    assert [i.opcode for i in entry].count("all-reduce") == 1
    assert any(i.opcode == "parameter" and i.sharding.tile_assignment_dimensions == [2, 1] for i in entry)


def test_what_is_no_stablehlo_is_a_load_error() -> None:
    with pytest.raises(LoadError, match="StableHLO"):
        xla_bridge.stablehlo_to_hlo_proto("module { func.func @main( }")


def test_bytecode_and_portable_artifacts_become_text() -> None:
    import jax
    import jax.numpy as jnp

    exported = jax.export.export(jax.jit(jnp.sin))(jax.ShapeDtypeStruct((4,), jnp.float32))
    assert "stablehlo.sine" in xla_bridge.stablehlo_bytecode_to_text(exported.mlir_module_serialized)
    with pytest.raises(LoadError, match="bytecode"):
        xla_bridge.stablehlo_bytecode_to_text(b"ML\xefRgarbage")


def test_a_lowered_function_gives_its_proto_and_its_facts() -> None:
    import jax
    import jax.numpy as jnp

    lowered = jax.jit(lambda x, y: x + 1).lower(jnp.ones(4), jnp.ones(2))
    assert wire.HloModuleProto.FromString(xla_bridge.lowered_to_hlo_proto(lowered)).name == "jit__lambda"
    facts = xla_bridge.lowering_facts(lowered)
    assert facts["num_devices"] == 1
    assert set(facts["kept"]) == {0}
    assert tuple(facts["open_outputs"]) == (True,)


@pytest.mark.parametrize("enabled", [False, True])
def test_the_dialect_of_lowering_is_chosen_by_a_context(enabled: bool) -> None:
    import jax

    mesh = jax.sharding.Mesh(np.array(xla_bridge.cpu_devices(2)), ("a",))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("a"))
    with xla_bridge.shardy(enabled):
        lowered = jax.jit(lambda x: x * 2, in_shardings=split).lower(jax.ShapeDtypeStruct((4,), np.float32))
    assert ("sdy." in lowered.as_text()) == enabled


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

    monkeypatch.setattr(xla_bridge, "has_gspmd_lowering", lambda: has_gspmd)
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

    xla_bridge.hide_own_frames()
    module = wire.HloModuleProto.FromString(xla_bridge.lowered_to_hlo_proto(jax.jit(added).lower(np.float32(1))))
    names = module.stack_frame_index.file_names
    assert any(name.endswith("test_xla_bridge.py") for name in names)
    assert not any(name.endswith("/xla_bridge.py") for name in names)


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


def test_a_module_with_collectives_runs_as_it_stands() -> None:
    x = [np.full((4, 2), d, np.float32) for d in range(4)]
    i = [np.int32(10 + d) for d in range(4)]
    total, shifted, me = xla_bridge.run_proto(xla_bridge.hlo_text_to_proto(TEXT), [x, i], num_devices=4)
    assert [t[0, 0] for t in total] == [1, 1, 5, 5]
    assert [int(s) for s in shifted] == [11, 10, 0, 0]
    assert [int(p) for p in me] == [0, 1, 2, 3]


def test_one_device_keeps_64_bits_and_compiles_once() -> None:
    proto = xla_bridge.hlo_text_to_proto(NEGATE)
    ((y,),) = xla_bridge.run_proto(proto, [[np.array([1.0, 1e-300, 3.0])]])
    assert y.dtype == np.float64
    assert y[1] == -1e-300
    assert xla_bridge.compile_proto(proto) is xla_bridge.compile_proto(proto)


def test_too_few_devices_and_wrong_arguments_are_execution_errors() -> None:
    proto = xla_bridge.hlo_text_to_proto(NEGATE)
    with pytest.raises(ExecutionError, match="xla_force_host_platform_device_count=100000"):
        xla_bridge.compile_proto(proto, 100000)
    with pytest.raises(ExecutionError, match="2 local arrays for 1 devices"):
        xla_bridge.run_proto(proto, [[np.ones(3), np.ones(3)]])
    with pytest.raises(ExecutionError):
        xla_bridge.run_proto(proto, [[np.ones(4)]])


def test_conversions_are_done_here_where_no_child_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bytes:
        raise PermissionError

    monkeypatch.setattr(xla_bridge.xla_process, "ask", refuse)
    assert b"main" in xla_bridge.hlo_text_to_proto(TEXT)
    with pytest.raises(LoadError, match="not HLO text"):
        xla_bridge.hlo_text_to_proto("garbage")


def test_a_compiled_function_gives_its_proto() -> None:
    import jax

    proto, header = xla_bridge.compiled_to_hlo_proto(jax.jit(lambda x: x + 1).lower(np.ones(3)).compile())
    assert wire.HloModuleProto.FromString(proto).computations
    assert header.startswith("HloModule jit__lambda")


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
        with xla_bridge.shardy(is_shardy), xla_bridge.custom_partitioning_as_calls(found, "place", "rule") as options:
            text = function.trace(np.ones(4, np.float32)).lower(**options).as_text()
        assert 'place = "0"' in text
        assert "need_replication={i}" in text
        assert [(given["partition"], given["infer_sharding_from_operands"]) for given in found] == [(partition, None)]
    assert twice.partition is partition
    after = jax.jit(lambda x: twice(x) * 5).lower(np.ones(4, np.float32)).as_text()
    assert "place" not in after
