"""Shardy's programs by hand and from live JAX: loaded with the meaning that Shardy gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.errors import LoadError
from hlosharding.ir import Instruction, rewrite

MESH = 'sdy.mesh @mesh = <["a"=2, "b"=4]>\n'
ROWS = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"
COLUMNS = "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}"


def program(body: str, *, said: str = '[{"a"}, {}]', meshes: str = MESH, name: str = "@mesh") -> str:
    """One argument, of which rows are split by default, and one op."""
    return f"""{meshes}
func.func @main(%x: tensor<8x16xf32> {{sdy.sharding = #sdy.sharding<{name}, {said}>}}) -> tensor<8x16xf32> {{
  {body}
  return %0 : tensor<8x16xf32>
}}"""


def root(text: str) -> str:
    """The sharding of the result, propagated."""
    found = hs.propagate(hs.load(text))
    return str(found.module.sharding(found.module.entry.root))


CONSTRAINED: dict[str, tuple[str, str]] = {
    "constraint": ('%0 = sdy.sharding_constraint %x <@mesh, [{}, {"b"}]> : tensor<8x16xf32>', COLUMNS),
    "reshard": ('%0 = sdy.reshard %x <@mesh, [{}, {"b"}]> : tensor<8x16xf32>', COLUMNS),
    "sub-axis": (
        '%0 = sdy.sharding_constraint %x <@mesh, [{"b":(1)2}, {"b":(2)2}]> : tensor<8x16xf32>',
        "{devices=[2,2,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
    ),
    "open dim takes the operand's rows": (
        '%0 = sdy.sharding_constraint %x <@mesh, [{?}, {"b"}]> : tensor<8x16xf32>',
        "{devices=[2,4]<=[8]}",
    ),
    "all_gather": (
        '%0 = sdy.all_gather [{"a"}, {}] %x out_sharding=<@mesh, [{}, {}]> : tensor<8x16xf32>',
        "{replicated}",
    ),
    "all_slice": (
        '%0 = sdy.all_slice [{}, {"b"}] %x out_sharding=<@mesh, [{"a"}, {"b"}]> : tensor<8x16xf32>',
        "{devices=[2,4]<=[8]}",
    ),
    "all_to_all": (
        '%0 = sdy.all_to_all [{"a"}: 0->1] %x out_sharding=<@mesh, [{}, {"a"}]> : tensor<8x16xf32>',
        "{devices=[1,2,4]<=[8] last_tile_dim_replicate}",
    ),
    "collective_permute": (
        '%0 = sdy.collective_permute %x out_sharding=<@mesh, [{"b":(1)2}, {}]> : tensor<8x16xf32>',
        "{devices=[2,1,4]<=[2,2,2]T(1,0,2) last_tile_dim_replicate}",
    ),
    "named computation": (
        """%0 = sdy.named_computation<"layer">(%x) in_shardings=[<@mesh, [{"a"}, {}]>]
        out_shardings=[<@mesh, [{}, {"b"}]>] (%y: tensor<8x16xf32>) {
    %1 = stablehlo.add %y, %y : tensor<8x16xf32>
    sdy.return %1 : tensor<8x16xf32>
  } : (tensor<8x16xf32>) -> tensor<8x16xf32>""",
        COLUMNS,
    ),
    "sharding of a value": (
        '%0 = stablehlo.negate %x {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {"b"}]>]>} : tensor<8x16xf32>',
        COLUMNS,
    ),
}


@pytest.mark.parametrize(("body", "expected"), CONSTRAINED.values(), ids=CONSTRAINED)
def test_an_op_of_shardys_says_how_its_result_lies(body: str, expected: str) -> None:
    assert hs.same_sharding(root(program(body)), expected)


def test_what_moves_inside_a_region_of_an_op() -> None:
    text = program("""%c = stablehlo.constant dense<0> : tensor<i32>
  %end = stablehlo.constant dense<3> : tensor<i32>
  %n:2 = stablehlo.while(%i = %c, %v = %x) : tensor<i32>, tensor<8x16xf32>
   cond { %p = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1> }
   do { %one = stablehlo.constant dense<1> : tensor<i32>
     %j = stablehlo.add %i, %one : tensor<i32>
     %w = sdy.reshard %v <@mesh, [{}, {"b"}]> : tensor<8x16xf32>
     %u = stablehlo.negate %w : tensor<8x16xf32>
     stablehlo.return %j, %u : tensor<i32>, tensor<8x16xf32> }
  %0 = stablehlo.negate %n#1 : tensor<8x16xf32>""")
    module = hs.load(text)
    calls = [i for i in module.instructions if i.custom_call_target == "Sharding"]
    assert [str(module.sharding(call)) for call in calls] == [COLUMNS]
    x = np.arange(128, dtype=np.float32).reshape(8, 16)
    assert np.array_equal(hs.partition(module).run(x), x)  # negated three times in the loop, once behind it


def test_partial_sums_by_shardys_words() -> None:
    text = f"""{MESH}
func.func @main(%x: tensor<8x16xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{}}, {{"a"}}]>}},
                %w: tensor<16x32xf32>) -> tensor<8x32xf32> {{
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %1 = sdy.sharding_constraint %0 <@mesh, [{{}}, {{}}], unreduced={{"a"}}> : tensor<8x32xf32>
  %2 = sdy.all_reduce {{"a"}} %1 out_sharding=<@mesh, [{{}}, {{}}]> : tensor<8x32xf32>
  return %2 : tensor<8x32xf32>
}}"""
    local = hs.partition(hs.load(text))
    assert [c.kind for c in local.collectives] == ["all-reduce"]
    x, w = np.arange(128.0, dtype=np.float32).reshape(8, 16), np.ones((16, 32), np.float32)
    assert np.allclose(local.run(x, w), x @ w)


def test_several_meshes_and_one_device() -> None:
    meshes = MESH + 'sdy.mesh @back = <["x"=8], device_ids=[7,6,5,4,3,2,1,0]>\nsdy.mesh @third = <[], device_ids=[3]>\n'
    text = program(
        """%1 = sdy.sharding_constraint %x <@third, []> : tensor<8x16xf32>
  %0 = sdy.sharding_constraint %1 <@back, [{}, {"x"}]> : tensor<8x16xf32>""",
        meshes=meshes,
    )
    module = hs.load(text)
    found = [str(module.sharding(i)) for i in module.instructions if i.custom_call_target == "Sharding"]
    assert found == ["{maximal device=3}", "{devices=[1,8]7,6,5,4,3,2,1,0}"]


def test_an_inline_mesh() -> None:
    said = 'mesh<["a"=2, "b"=4]>'
    text = program(f'%0 = sdy.reshard %x <{said}, [{{}}, {{"b"}}]> : tensor<8x16xf32>', meshes="", name=said)
    assert hs.same_sharding(root(text), COLUMNS)


MALFORMED: dict[str, str] = {
    "unknown mesh": program('%0 = sdy.reshard %x <@other, [{}, {"b"}]> : tensor<8x16xf32>'),
    "unknown axis": program('%0 = sdy.reshard %x <@mesh, [{}, {"z"}]> : tensor<8x16xf32>'),
    "wrong rank": program('%0 = sdy.reshard %x <@mesh, [{"b"}]> : tensor<8x16xf32>'),
    "an axis twice": program('%0 = sdy.sharding_constraint %x <@mesh, [{"b"}, {"b"}]> : tensor<8x16xf32>'),
    "a wrong collective": program(
        '%0 = sdy.all_gather [{"a"}, {}] %x out_sharding=<@mesh, [{"b"}, {}]> : tensor<8x16xf32>'
    ),
    "half an op": program("%0 = sdy.reshard %x <@mesh, "),
    "a body without return": program('%0 = sdy.named_computation<"f">(%x) (%y: tensor<8x16xf32>) {}'),
    "priorities of nothing": program("%0 = stablehlo.negate %x : tensor<8x16xf32>", said='[{}p1, {"a"}]'),
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED)
def test_malformed_programs_are_refused(text: str) -> None:
    with pytest.raises(LoadError):
        hs.load(text)


AXES, SPLIT = r"#sdy<manual_axes{\"a\"}>", r"#sdy.sharding_per_value<[<@mesh, [{\"a\"}]>]>"
EXPORTED: dict[str, tuple[str, str, str, dict[str, str], str]] = {
    "a result of nothing": ("f32[8]", "FuncResultSharding", "", {}, "of one value"),
    "a barrier of two": ("f32[8]", "PropagationBarrier", "x, x", {}, "of one value"),
    "a barrier that reshapes": ("f32[2,4]", "PropagationBarrier", "x", {}, "of one value"),
    "a group of nothing": ("()", "ShardingGroup", "", {"sharding_group_id": "1"}, "of one value"),
    "a group that is used": ("f32[8]", "ShardingGroup", "x", {"sharding_group_id": "1"}, "of one value"),
    "a group too far": ("()", "ShardingGroup", "x", {"sharding_group_id": "9" * 20}, "a number of 20 digits"),
    "a group below 0": ("()", "ShardingGroup", "x", {"sharding_group_id": "-1 : i64"}, "the number '-1 : i64'"),
    "no axes": ("f32[4]", "GlobalToLocalShape", "x", {"in_shardings": SPLIT}, "attribute xla.sdy.manual_axes"),
    "no such axis": (
        "f32[4]", "GlobalToLocalShape", "x", {"manual_axes": AXES.replace("a\\", "q\\"), "in_shardings": SPLIT},
        "axis 'q' is manual, and the mesh has a, b",
    ),
    "axes that are none": (
        "f32[4]", "GlobalToLocalShape", "x", {"manual_axes": "a", "in_shardings": SPLIT}, "expected '#sdy<manual_axes{'"
    ),
    "too few shardings": (
        "f32[16]", "LocalToGlobalShape", "x", {"manual_axes": AXES, "out_shardings": ""}, "0 shardings for 1 operands"
    ),
}  # fmt: skip
"""Calls that jaxlib does not write, though HLO text may hold them: shape, target, operands, attributes, the error."""


def exported(shape: str, target: str, operands: str, attributes: dict[str, str], end: str) -> str:
    """HLO as JAX lowers it for Shardy, with one call."""
    said = ", ".join(f'xla.sdy.{name}="{text}"' for name, text in attributes.items())
    meshes = r"{mesh = #sdy.mesh<[\"a\"=2, \"b\"=1]>}"
    return f"""HloModule m, num_partitions=2, frontend_attributes={{xla.sdy.meshes="{meshes}"}}
ENTRY e {{
  x = f32[8] parameter(0)
  f = {shape} custom-call({operands}), custom_call_target="xla.sdy.{target}", frontend_attributes={{{said}}}
  ROOT {end}
}}"""


@pytest.mark.parametrize("case", EXPORTED.values(), ids=EXPORTED)
def test_calls_that_jax_does_not_write_are_refused(case: tuple[str, str, str, dict[str, str], str]) -> None:
    shape, target, operands, attributes, message = case
    read = "x" if shape == "()" and target == "ShardingGroup" else "f"
    text = exported(shape, target, operands, attributes, f"r = {shape.replace('()', 'f32[8]')} negate({read})")
    with pytest.raises(LoadError, match=message.replace("{", r"\{")) as error:
        hs.load(text)
    assert str(error.value.where).startswith("%f = ")


def test_a_tuple_of_an_edge_may_be_taken_whole() -> None:
    edge = "(f32[4])", "GlobalToLocalShape", "x", {"manual_axes": AXES, "in_shardings": SPLIT}
    root = hs.load(exported(*edge, "r = (f32[4]) opt-barrier(f)")).entry.root
    assert (root.opcode, str(root.shape), root.operands[0].opcode) == ("opt-barrier", "(f32[4])", "tuple")


def _both_manual(x: Any, w: Any) -> Any:
    return jax.lax.psum(x @ w, "b") * (1 + jax.lax.axis_index("a"))


def _one_manual(x: Any, w: Any) -> Any:
    return jax.lax.all_gather(jnp.sin(x), "a", tiled=True) @ w


def _nested(x: Any, w: Any) -> Any:
    inner = jax.shard_map(
        lambda y: jax.lax.psum(y, "b"), in_specs=P(None, "b"), out_specs=P(), axis_names={"b"}, check_vma=False
    )
    return inner(x) @ w[:4]


MANUAL: dict[str, tuple[Callable[..., Any], Any, Any, set[str]]] = {
    "all axes": (_both_manual, (P("a", "b"), P("b", None)), P("a"), {"a", "b"}),
    "one axis": (_one_manual, (P("a", None), P()), P(), {"a"}),
    "nested": (_nested, (P("a", None), P()), P("a"), {"a"}),
}


@pytest.mark.parametrize("case", MANUAL.values(), ids=MANUAL)
def test_manual_computations_of_live_jax(case: tuple[Any, ...], cpu_devices: list[Any]) -> None:
    body, in_specs, out_specs, axes = case
    mesh = Mesh(np.array(cpu_devices).reshape(2, 4), ("a", "b"))
    mapped = jax.jit(
        jax.shard_map(body, mesh=mesh, in_specs=in_specs, out_specs=out_specs, axis_names=axes, check_vma=False)
    )
    x = np.linspace(-1, 1, 128, dtype=np.float32).reshape(8, 16)
    w = np.linspace(0, 1, 16 * 12, dtype=np.float32).reshape(16, 12)
    given = [jax.device_put(a, NamedSharding(mesh, P())) for a in (x, w)]
    text = mapped.lower(*given).as_text()
    assert "sdy.manual_computation" in text
    assert np.allclose(hs.partition(hs.load(text)).run(x, w), mapped(*given), rtol=1e-5, atol=1e-5)


def test_results_lose_their_marks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A root of thousands of operands is not written anew for each of them."""
    count, written = 50, list[int]()
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("a", "b"))
    split = NamedSharding(mesh, P("a"))
    shapes = [jax.ShapeDtypeStruct((8, 16), jnp.float32)] * count
    text = jax.jit(lambda *arrays: [jnp.sin(x) for x in arrays], out_shardings=[split] * count).lower(*shapes).as_text()
    assert text.count("sdy.sharding = ") >= count
    write = rewrite.set_operands

    def counted(instruction: Instruction, operands: Iterable[Instruction], **options: Any) -> None:
        write(instruction, operands, **options)
        written.append(len(instruction.operands))

    monkeypatch.setattr(rewrite, "set_operands", counted)
    module = hs.load(text)
    assert [value.opcode for value in module.entry.results] == ["sine"] * count
    assert sum(written) <= 2 * count
