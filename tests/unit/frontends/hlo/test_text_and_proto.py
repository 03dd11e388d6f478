"""HLO text and protos become modules, and what goes out comes in again: order, unknown fields, frames, shardings."""

# ruff: noqa: E501  (StableHLO in one line)
from __future__ import annotations

import pytest

from hlosharding import load, wire, xla_bridge
from hlosharding.errors import LoadError
from hlosharding.frontends.hlo.text_and_proto import devices_of, from_hlo_proto, from_hlo_text
from hlosharding.sharding import HloSharding

TEXT = """HloModule m, num_partitions=4

%late (p: f32[]) -> f32[] {
  ROOT %p = f32[] parameter(0)
}

%early (q: f32[]) -> f32[] {
  %q = f32[] parameter(0)
  ROOT %n = f32[] negate(%q)
}

ENTRY %main (a: f32[], b: f32[]) -> (f32[], f32[]) {
  %b = f32[] parameter(1), sharding={replicated}
  %dead = f32[] add(%b, %b)
  %y = f32[] call(%b), to_apply=%early
  %a = f32[] parameter(0), sharding={maximal device=3}
  %x = f32[] call(%a), to_apply=%late
  ROOT %t = (f32[], f32[]) tuple(%x, %y)
}
"""


def test_computations_instructions_and_users_keep_the_order_of_the_text() -> None:
    module = from_hlo_text(TEXT)
    assert [c.name for c in module.computations] == ["late", "early", "main"]
    assert [i.name for i in module.entry.instructions] == ["b", "dead", "y", "a", "x", "t"]
    assert [u.name for u in module.by_name("b").users] == ["dead", "y"]


def test_the_header_tells_the_number_of_partitions_and_shardings_do_where_it_is_silent() -> None:
    assert from_hlo_text(TEXT).num_partitions == 4
    assert from_hlo_text(TEXT.replace(", num_partitions=4", "")).num_partitions == 4
    assert from_hlo_text(TEXT.replace("num_partitions=4", "num_partitions=16")).num_partitions == 16


def test_devices_are_counted_over_all_leaves() -> None:
    assert devices_of([]) == 1
    assert devices_of([HloSharding.parse("{{devices=[6]<=[6]}, {maximal device=8}}")]) == 9


def test_text_goes_out_and_comes_in_again() -> None:
    module = from_hlo_text(TEXT)
    again = from_hlo_text(module.to_hlo_text())
    assert sorted(i.name for i in again.instructions) == sorted(i.name for i in module.instructions)
    assert {n.name: str(again.sharding(n)) for n in again.instructions if again.sharding(n)} == {
        "a": "{maximal device=3}",
        "b": "{replicated}",
    }


def test_unknown_fields_survive_and_jaxlib_reads_what_we_write() -> None:
    proto = wire.HloModuleProto.FromString(xla_bridge.hlo_text_to_proto(TEXT))
    unknown = b"\xfa\x7f\x05hello"  # field 2047, a string
    marked = type(proto).FromString(proto.SerializeToString() + unknown)
    marked.computations[0].instructions[0].MergeFromString(unknown)
    out = from_hlo_proto(marked.SerializeToString()).to_hlo_proto()
    assert out.count(b"hello") == 2
    assert "ENTRY %main" in xla_bridge.hlo_proto_to_text(from_hlo_text(TEXT).to_hlo_proto())


def test_a_proto_keeps_ids_as_order_and_its_own_order_for_users() -> None:
    proto = wire.HloModuleProto.FromString(xla_bridge.hlo_text_to_proto(TEXT))
    module = from_hlo_proto(proto.SerializeToString())
    assert [i.name for i in module.entry.instructions] == ["b", "dead", "y", "a", "x", "t"]


def test_an_hlo_proto_that_wraps_the_module_is_unwrapped() -> None:
    inner = xla_bridge.hlo_text_to_proto(TEXT)
    length = len(inner)
    varint = bytes([(length & 0x7F) | 0x80, length >> 7]) if length >= 128 else bytes([length])
    assert from_hlo_proto(b"\x0a" + varint + inner).name == "m"


@pytest.mark.parametrize("data", [b"", b"garbage", b"\x0a\xff\xff\xff\xff\xff", bytes(range(256)), b"\x0a\x03abc"])
def test_bytes_that_are_no_module_are_a_load_error(data: bytes) -> None:
    with pytest.raises(LoadError, match="not a valid HLO module"):
        from_hlo_proto(data)


def test_a_bad_sharding_in_a_proto_is_a_load_error() -> None:
    proto = wire.HloModuleProto.FromString(xla_bridge.hlo_text_to_proto(TEXT))
    proto.computations[-1].instructions[0].sharding.type = 3
    proto.computations[-1].instructions[0].sharding.tile_assignment_dimensions[:] = [2, 2]
    proto.computations[-1].instructions[0].sharding.tile_assignment_devices[:] = [0, 1]
    with pytest.raises(LoadError):
        from_hlo_proto(proto.SerializeToString())


def test_frames_stand_in_metadata_and_survive_the_proto() -> None:
    frames = (
        'FileNames\n1 "model.py"\n\nFunctionNames\n1 "loss"\n2 "layer"\n\nFileLocations\n'
        "1 {file_name_id=1 function_name_id=1 line=31 end_line=31 column=4 end_column=9}\n"
        "2 {file_name_id=1 function_name_id=2 line=7 end_line=7 column=2 end_column=8}\n\n"
        "StackFrames\n1 {file_location_id=1 parent_frame_id=1}\n2 {file_location_id=2 parent_frame_id=2}\n\n"
    )
    line = 'ROOT x = f32[] parameter(0), metadata={op_name="x" stack_frame_id=2}'
    text = f"HloModule m\n\n{frames}ENTRY e {{\n  {line}\n}}\n"
    module = from_hlo_proto(from_hlo_text(text).to_hlo_proto())
    assert [(f.function, f.line) for f in module.by_name("x").frames] == [("layer", 7), ("loss", 31)]
    assert module.by_name("x").location == "model.py:7"


@pytest.mark.parametrize(
    "line",
    [
        "ROOT x = f32[4] reshape(c)",
        "ROOT x = f32[4] parameter(7)",
        "ROOT x = pred[] compare(a, a), direction=EQ",
        "ROOT x = f32[4] constant({1,2,3,4,5,6})",
    ],
)
def test_text_on_which_xla_ends_its_process_is_a_load_error(line: str) -> None:
    start = "HloModule m\nENTRY e {\n  c = f32[3] constant({1,2,3})\n  a = token[] after-all()\n"
    with pytest.raises(LoadError):
        from_hlo_text(f"{start}  {line}\n}}\n")
    assert from_hlo_text(TEXT).name == "m"


def test_zero_bytes_in_text_are_refused_with_the_way_out() -> None:
    with pytest.raises(LoadError, match="hlo-proto"):
        from_hlo_text("HloModule\0m")


SHARED = """HloModule m
ENTRY e {
  arg0.1 = f32[8] parameter(0), metadata={op_name="XLA_Args"}
  arg1.1 = f32[8] parameter(1), metadata={op_name="XLA_Args"}
  w.1 = f32[8] parameter(2), metadata={op_name="params['w']"}
  s = f32[8] add(arg0.1, arg1.1)
  ROOT r = f32[8] add(s, w.1)
}
"""


def test_what_names_several_parameters_is_no_path() -> None:
    """TensorFlow's name of every parameter."""
    for module in (load(SHARED), load(from_hlo_text(SHARED).to_hlo_proto())):
        assert [p.path for p in module.entry.parameters] == ["arg0.1", "arg1.1", "params['w']"]
    located = 'module @m {\n  func.func @main(%arg0: tensor<8xf32> loc("XLA_Args"), %arg1: tensor<8xf32> loc("XLA_Args"), %arg2: tensor<8xf32> loc("w")) -> tensor<8xf32> {\n    %0 = stablehlo.add %arg0, %arg1 : tensor<8xf32>\n    %1 = stablehlo.add %0, %arg2 : tensor<8xf32>\n    return %1 : tensor<8xf32>\n  }\n}\n'
    assert [p.path for p in load(located).entry.parameters] == ["arg0", "arg1", "w"]
