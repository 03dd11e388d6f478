"""A module is what its proto says: read, cloned, ordered and written without loss."""

from __future__ import annotations

import pytest

import hlosharding as hs
from hlosharding import wire
from hlosharding.errors import ModuleError
from hlosharding.ir import Builder, DotDims, Module, Shape, verify
from hlosharding.xla_bridge import hlo_proto_to_text, hlo_text_to_proto

TEXT = """HloModule two, num_partitions=4
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}
ENTRY main {
  x = f32[8,4] parameter(0), sharding={devices=[4,1]<=[4]}, metadata={op_name="x" source_file="model.py" source_line=31}
  unused = f32[8,4] negate(x)
  zero = f32[] constant(0)
  rows = f32[8] reduce(x, zero), dimensions={1}, to_apply=add
  ROOT out = (f32[8], f32[8,4]) tuple(rows, x)
}"""


REDUCED = """HloModule m, num_partitions=4
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY e {
  x = f32[4] parameter(0)
  ROOT r = f32[4] all-reduce(x), ATTRIBUTES
}"""


@pytest.fixture
def module() -> Module:
    return hs.load(TEXT)


def test_the_graph(module: Module) -> None:
    rows = module.by_name("rows")
    assert rows.dimensions == (1,)
    assert [o.name for o in rows.operands] == ["x", "zero"]
    assert [c.name for c in rows.called] == ["add"]
    assert [u.name for u in module.by_name("x").users] == ["unused", "rows", "out"]
    assert module.by_name("out").is_entry_root
    assert str(module.sharding(module.by_name("x"))) == "{devices=[4,1]<=[4]}"
    assert module.by_name("x").location == "model.py:31"


def test_ids_are_dense_positions(module: Module) -> None:
    assert [i.id for i in module.instructions] == list(range(len(module.instructions)))


def test_xla_parses_what_we_write(module: Module) -> None:
    again = Module.from_proto(hlo_text_to_proto(hlo_proto_to_text(module.to_hlo_proto())))
    assert sorted(i.name for i in again.instructions) == sorted(i.name for i in module.instructions)
    assert str(again.sharding(again.by_name("x"))) == "{devices=[4,1]<=[4]}"


def test_the_text_says_how_many_partitions(module: Module) -> None:
    assert "num_partitions=4" in module.to_hlo_text().splitlines()[0]


def test_unknown_fields_survive() -> None:
    raw = wire.HloModuleProto.FromString(hlo_text_to_proto(TEXT)).SerializeToString()
    strange = raw + b"\xf2\x3f\x03abc"  # field 1022, bytes
    assert b"\xf2\x3f\x03abc" in Module.from_proto(strange).to_hlo_proto()


def test_a_clone_is_apart(module: Module) -> None:
    clone = module.clone()
    hs.ir.rewrite.dead_code(clone)
    clone.renumber()
    assert "unused" not in {i.name for i in clone.instructions}
    assert "unused" in {i.name for i in module.instructions}
    assert str(clone.sharding(clone.by_name("x"))) == "{devices=[4,1]<=[4]}"
    verify(clone)


def test_post_order_follows_operands_from_userless_ops_in_text_order(module: Module) -> None:
    assert [i.name for i in module.entry.post_order()] == ["x", "unused", "zero", "rows", "out"]


def test_names_have_near_misses(module: Module) -> None:
    with pytest.raises(ModuleError, match=r"did you mean .*rows"):
        module.by_name("row")


def test_bytes_that_are_no_module() -> None:
    for data in (b"", b"\xff\xff\xff", b"hello"):
        with pytest.raises(ModuleError):
            Module.from_proto(data)


def test_references_to_nothing_are_named() -> None:
    proto = wire.HloModuleProto.FromString(hlo_text_to_proto(TEXT))
    proto.computations[-1].instructions[-1].operand_ids[0] = 12345
    with pytest.raises(ModuleError, match="refers to id 12345"):
        Module.from_proto(proto.SerializeToString())


def test_shapes_that_do_not_fit_are_found() -> None:
    builder = Builder("m")
    main = builder.computation("main")
    x = main.parameter(0, Shape.parse("f32[4]"))
    main.add("add", Shape.parse("f32[5]"), (x, x), name="wrong")
    with pytest.raises(ModuleError, match="shape f32\\[5\\], but operand %param_0 is f32\\[4\\]"):
        verify(builder.finish(main))


def test_typed_attributes_go_both_ways() -> None:
    builder = Builder("m")
    main = builder.computation("main")
    x = main.parameter(0, Shape.parse("f32[4,4]"))
    dims = DotDims((1,), (0,))
    dot = main.add("dot", x.shape, (x, x), dot_dims=dims)
    groups = ((0, 2), (1, 3))
    main.add("all-reduce", x.shape, (dot,), replica_groups=groups, channel_id=3, frontend_attributes={"why": "because"})
    again = Module.from_proto(builder.finish(main).to_hlo_proto())
    assert again.by_name("dot").dot_dims == dims
    assert again.by_name("all-reduce").replica_groups == groups
    assert again.by_name("all-reduce").frontend_attributes == {"why": "because"}


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("{{0,2},{1,3}}", ((0, 2), (1, 3))),
        ("[2,2]<=[4]", ((0, 1), (2, 3))),
        ("[2,2]<=[2,2]T(1,0)", ((0, 2), (1, 3))),
        ("mesh['a'=2,'b'=2] {'a'}", ((0, 2), (1, 3))),
        ("mesh['a'=4] {'a':(1)2}", ((0, 2), (1, 3))),
        ("mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'a'}", ((0, 1), (2, 3))),
    ],
)
def test_replica_groups_in_every_form(text: str, groups: tuple[tuple[int, ...], ...]) -> None:
    attributes = f"replica_groups={text}, to_apply=add, channel_id=1, use_global_device_ids=true"
    module = hs.load(REDUCED.replace("ATTRIBUTES", attributes))
    assert module.by_name("r").replica_groups == groups
    [again] = [i for i in hs.load(module.to_stablehlo_text()).instructions if i.opcode == "all-reduce"]
    assert again.replica_groups == groups


def test_a_computation_taken_back_leaves_its_names_free() -> None:
    builder = Builder("m")
    tried = builder.computation("body")
    x = tried.parameter(0, Shape.array("f32", (4,)), name="x")
    tried.add("negate", x.shape, (x,), name="y")
    builder.drop(tried.computation)
    again = builder.computation("body")
    assert again.computation.name == "body"
    assert again.parameter(0, x.shape, name="x").name == "x"
    assert builder.module.computations == [again.computation]


def test_a_parsed_message_is_read_without_a_copy() -> None:
    builder = Builder("m")
    main = builder.computation("main")
    x = main.parameter(0, Shape.array("f32", (4,)))
    main.root(main.add("negate", x.shape, (x,)))
    message = wire.HloModuleProto.FromString(builder.finish(main).to_hlo_proto())
    module = Module.from_proto(message)
    assert module.proto is message
    assert not message.computations
    assert [i.opcode for i in Module.from_proto(module.to_hlo_proto()).instructions] == ["parameter", "negate"]
