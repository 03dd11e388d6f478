"""The one door: which reader gets what, and errors that name the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hlosharding import partition
from hlosharding.errors import LoadError
from hlosharding.frontends import load
from hlosharding.sharding import MeshInfo

HLO = """HloModule m

%twice (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  ROOT %s = f32[4]{0} add(%p, %p)
}

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0), sharding={devices=[2]<=[2]}
  ROOT %c = f32[4]{0} call(%x), to_apply=%twice
}
"""
STABLEHLO = """module @m {
  func.func private @twice(%p: tensor<4xf32>) -> tensor<4xf32> {
    %s = stablehlo.add %p, %p : tensor<4xf32>
    return %s : tensor<4xf32>
  }
  func.func @main(%x: tensor<4xf32> {mhlo.sharding = "{devices=[2]<=[2]}"}) -> tensor<4xf32> {
    %c = func.call @twice(%x) : (tensor<4xf32>) -> tensor<4xf32>
    return %c : tensor<4xf32>
  }
}
"""


def opcodes(module: object) -> list[str]:
    return [i.opcode for i in module.entry.instructions]  # type: ignore[attr-defined]


def test_hlo_text_and_protos_are_taken_as_they_stand_unless_told_otherwise() -> None:
    module = load(HLO)
    assert opcodes(module) == opcodes(load(module.to_hlo_proto())) == ["parameter", "call"]
    assert opcodes(load(HLO, prepare=True)) == ["parameter", "add"]
    assert opcodes(load(module.to_hlo_proto(), prepare=True)) == ["parameter", "add"]


def test_stablehlo_text_is_prepared_unless_told_otherwise() -> None:
    module = load(STABLEHLO)
    assert opcodes(module) == ["parameter", "add"]
    assert opcodes(load(STABLEHLO, prepare=False)) == ["parameter", "call"]
    assert str(module.sharding(module.entry.parameters[0])) == "{devices=[2]<=[2]}"
    assert module.num_partitions == 2


@pytest.mark.parametrize(
    "head",
    [
        "",
        "".join(f'#loc{n} = loc("model.py":{n}:1)\n' for n in range(1000)),
        '// mhlo.num_partitions = 9\n#loc1 = loc("mhlo.num_partitions = 9")\n',
    ],
)
def test_stablehlo_states_its_partitions_behind_its_aliases(head: str) -> None:
    text = (
        head
        + """module @m attributes {mhlo.num_partitions = 8 : i32} {
  func.func public @main(%arg0: tensor<4xf32>) -> tensor<4xf32> { return %arg0 : tensor<4xf32> }
}"""
    )
    assert load(text).num_partitions == 8


def test_stablehlo_from_us_and_from_jax_export_loads() -> None:
    import jax
    import jax.numpy as jnp

    assert opcodes(load(load(HLO).to_stablehlo_text())) == ["parameter", "add"]
    exported = jax.export.export(jax.jit(jnp.sin))(jax.ShapeDtypeStruct((4,), jnp.float32))
    assert "sine" in opcodes(load(exported.mlir_module_serialized))
    assert "sine" in opcodes(load(exported.mlir_module()))


@pytest.mark.parametrize("suffix", [".hlo", ".txt", ".weird", ""])
def test_paths_are_read_and_content_decides_where_the_suffix_does_not(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"m{suffix}").write_text(HLO)
    assert opcodes(load(tmp_path / f"m{suffix}")) == ["parameter", "call"]
    assert opcodes(load(str(tmp_path / f"m{suffix}"))) == ["parameter", "call"]


def test_files_of_protos_and_stablehlo_are_read(tmp_path: Path) -> None:
    (tmp_path / "m.pb").write_bytes(load(HLO).to_hlo_proto())
    (tmp_path / "m.bin").write_bytes(load(HLO).to_hlo_proto())
    (tmp_path / "m.mlir").write_text(STABLEHLO)
    assert opcodes(load(tmp_path / "m.pb")) == opcodes(load(tmp_path / "m.bin")) == ["parameter", "call"]
    assert opcodes(load(tmp_path / "m.mlir")) == ["parameter", "add"]


def test_an_error_in_a_file_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.hlo"
    path.write_text(HLO.replace("<=[2]", "<=[3]"))
    with pytest.raises(LoadError, match=r"bad\.hlo, line 9, column \d+"):
        load(path)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("no/such/file.hlo", "No such file"),
        ("", "cannot read"),
        ("HloModule without a line break", "line breaks"),
        ("x" * 5000, "cannot read"),
        (3, "int is no program"),
        (None, "NoneType is no program"),
        (b"", "the input is empty"),
        (b"\x00\x01\x02", "not a valid HLO module"),
        ("\n\n", "the input is empty"),
    ],
)
def test_what_is_no_program_is_a_load_error(source: object, message: str) -> None:
    with pytest.raises(LoadError, match=message):
        load(source)


def test_unknown_formats_are_listed() -> None:
    with pytest.raises(LoadError, match="hlo, hlo-proto, stablehlo, onnx"):
        load(HLO, format="mhlo")  # type: ignore[arg-type]


def test_a_format_that_contradicts_the_content_is_an_error() -> None:
    with pytest.raises(LoadError, match="binary mode"):
        load(HLO, format="hlo-proto")
    with pytest.raises(LoadError, match="not text"):
        load(b"\xff\xfe", format="hlo")
    with pytest.raises(LoadError, match="StableHLO"):
        load(HLO, format="stablehlo")


def test_a_directory_is_no_program(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="directory"):
        load(tmp_path)


@pytest.mark.parametrize("suffix", [".hlo", ".mlir"])
def test_a_byte_order_mark_is_no_part_of_the_program(tmp_path: Path, suffix: str) -> None:
    stablehlo = "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n  return %a : tensor<4xf32>\n}\n"
    text = stablehlo if suffix == ".mlir" else "HloModule m\nENTRY e {\n  ROOT x = f32[4] parameter(0)\n}\n"
    path = tmp_path / f"program{suffix}"
    path.write_text(text, encoding="utf-8-sig")
    for source in (path, path.read_bytes(), "\ufeff" + text):
        assert str(load(source).entry.root.shape) == "f32[4]"


@pytest.mark.parametrize(
    "text",
    [
        "HloModule m\nENTRY e {\n  ROOT x = f32[?,8] parameter(0)\n}\n",
        "func.func @main(%a: tensor<?x8xf32>) -> tensor<?x8xf32> {\n  return %a : tensor<?x8xf32>\n}\n",
    ],
)
def test_a_dim_without_a_bound_is_refused(text: str) -> None:
    with pytest.raises(LoadError, match=r"dim 0 of f32\[\?,8\] has no bound; at %.*give it a size, or a bound"):
        load(text)


def test_the_axes_of_a_shardy_mesh_are_the_partitions_where_the_module_names_none() -> None:
    module = load("""sdy.mesh @mesh = <["c"=2, "a"=2, "b"=2]>
func.func @main(%arg0: tensor<8xf32>) -> tensor<8xf32> {
  %0 = sdy.manual_computation(%arg0) in_shardings=[<@mesh, [{"c"}]>] out_shardings=[<@mesh, [{"c"}]>]
      manual_axes={"c", "a"} (%arg1: tensor<4xf32>) {
    %1 = stablehlo.add %arg1, %arg1 : tensor<4xf32>
    sdy.return %1 : tensor<4xf32>
  } : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
""")
    assert (module.num_partitions, module.mesh) == (8, MeshInfo(("c", "a", "b"), (2, 2, 2)))
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(partition(module).run_reference(x), 2 * x)


REGION = """HloModule m
xla.sdy.manual_computation_body { p = f32[4] parameter(0)  ROOT n = f32[4] negate(p) }
ENTRY e {
  x = f32[8] parameter(0)
  g = f32[4] custom-call(x), custom_call_target="xla.sdy.GlobalToLocalShape"
  c = f32[4] call(g), to_apply=xla.sdy.manual_computation_body
  ROOT l = f32[8] custom-call(c), custom_call_target="xla.sdy.LocalToGlobalShape"
}
"""


def test_an_edge_of_a_manual_region_that_lost_its_attributes_is_refused() -> None:
    with pytest.raises(LoadError, match=r"xla\.sdy\.GlobalToLocalShape has no .* xla\.sdy\.manual_axes; at"):
        load(REGION)


@pytest.mark.parametrize("given", [{"inputs": {"x": 3}}, {"configuration": "two"}])
def test_what_only_onnx_models_take(given: dict[str, Any]) -> None:
    with pytest.raises(LoadError, match=r"\((x|two)\) for what is no ONNX model"):
        load("HloModule m\nENTRY e {\n  ROOT x = f32[4] parameter(0)\n}", **given)


@pytest.mark.parametrize(
    ("shape", "sharding"),
    [
        ("f32[8]", "{{replicated}, {maximal device=0}}"),
        ("f32[8]", "{{replicated}}"),
        ("f32[8]", "{}"),
        ("(f32[8], f32[8])", "{{replicated}}"),
        ("(f32[8], f32[8])", "{{replicated}, {replicated}, {replicated}}"),
    ],
)
def test_the_sharding_of_a_tuple_has_its_leaves(shape: str, sharding: str) -> None:
    text = f"HloModule m\nENTRY e {{\n  ROOT x = {shape} parameter(0), sharding={sharding}\n}}\n"
    with pytest.raises(LoadError, match=r"not a valid HLO module.*at %x"):
        load(text)


def test_half_a_letter_is_no_text() -> None:
    with pytest.raises(LoadError, match="half a letter"):
        load("HloModule m\nENTRY e {\n  ROOT x = f32[8] parameter(0) // \udcff\n}\n")
