"""Text, protos, StableHLO and what JAX lowered become one another, or a LoadError."""

from __future__ import annotations

import numpy as np
import pytest

from hlosharding import wire, xla_bridge
from hlosharding.errors import LoadError
from tests.support.collectives_text import TEXT


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


def test_a_negative_size_is_told_with_its_place() -> None:
    text = "HloModule m\nENTRY e {\n  w = f32[4] parameter(1)\n  ROOT x = f32[2,-64]{1,0} parameter(0)\n}"
    with pytest.raises(LoadError, match=r"not HLO text: line 4, column 12: f32\[2,-64\] has a negative size"):
        xla_bridge.hlo_text_to_proto(text)
    with pytest.raises(LoadError, match="was parsing 4:"):  # XLA's own place, where it says one
        xla_bridge.hlo_text_to_proto(text.replace("[2,-64]", "[2,64").replace("parameter(0)", "p(0), devices=x[-1]"))


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


def test_conversions_are_done_here_where_no_child_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bytes:
        raise PermissionError

    monkeypatch.setattr(xla_bridge.conversions.xla_process, "ask", refuse)
    assert b"main" in xla_bridge.hlo_text_to_proto(TEXT)
    with pytest.raises(LoadError, match="not HLO text"):
        xla_bridge.hlo_text_to_proto("garbage")


def test_a_compiled_function_gives_its_proto() -> None:
    import jax

    proto, header = xla_bridge.compiled_to_hlo_proto(jax.jit(lambda x: x + 1).lower(np.ones(3)).compile())
    assert wire.HloModuleProto.FromString(proto).computations
    assert header.startswith("HloModule jit__lambda")
