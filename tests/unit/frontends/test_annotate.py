"""Annotations by name: instruction, parameter path, glob; hints; for users only; errors with near misses."""

from __future__ import annotations

import time

import pytest

from hlosharding.errors import AnnotationError
from hlosharding.frontends import annotate, trace
from hlosharding.frontends.hlo.text_and_proto import from_hlo_text
from hlosharding.ir import Module
from hlosharding.sharding import HloSharding, MeshInfo

TEXT = """HloModule m
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
ENTRY e {
  p0 = f32[8,4] parameter(0), metadata={op_name="params['w1']"}
  p1 = f32[8,4] parameter(1), metadata={op_name="params['w2']"}
  add.1 = f32[8,4] add(p0, p1)
  z = f32[] constant(0)
  total = f32[] reduce(add.1, z), dimensions={0,1}, to_apply=sum
  ROOT out = (f32[8,4], f32[]) tuple(add.1, total)
}"""
ROWS = "{devices=[2,1]<=[2]}"


@pytest.fixture
def module() -> Module:
    return from_hlo_text(TEXT)


def shardings(module: Module) -> dict[str, str]:
    return {i.name: str(module.sharding(i)) for i in module.instructions if module.sharding(i) is not None}


@pytest.mark.parametrize("name", ["add.1", "%add.1"])
def test_an_instruction_by_name(module: Module, name: str) -> None:
    out = annotate(module, {name: ROWS})
    assert shardings(out) == {"add.1": ROWS}
    assert out.num_partitions == 2
    assert shardings(module) == {}


def test_a_parameter_by_its_path_and_globs_in_which_brackets_are_literal(module: Module) -> None:
    assert shardings(annotate(module, {"params['w2']": ROWS})) == {"p1": ROWS}
    assert shardings(annotate(module, {"params['w?']": ROWS})) == {"p0": ROWS, "p1": ROWS}
    assert shardings(annotate(module, {"p*": ROWS})) == {"p0": ROWS, "p1": ROWS}


def test_reducers_are_not_addressed(module: Module) -> None:
    with pytest.raises(AnnotationError):
        annotate(module, {"s": "{replicated}"})


def test_every_spelling_of_a_sharding_is_taken(module: Module) -> None:
    from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

    mesh = AbstractMesh((2, 2), ("a", "b"))
    for spelled in (PartitionSpec("a"), ("a", None), NamedSharding(mesh, PartitionSpec("a"))):
        out = annotate(module, {"add.1": spelled}, mesh=mesh)
        assert shardings(out) == {"add.1": "{devices=[2,1,2]<=[4] last_tile_dim_replicate}"}
        assert out.mesh == MeshInfo(("a", "b"), (2, 2))
    assert shardings(annotate(module, {"add.1": HloSharding.replicate()})) == {"add.1": "{replicated}"}


def test_a_leaf_on_a_tuple_stands_for_all_its_leaves(module: Module) -> None:
    assert shardings(annotate(module, {"out": "{replicated}"})) == {"out": "{{replicated}, {replicated}}"}


def test_a_hint_is_an_annotation_open_in_every_dim(module: Module) -> None:
    out = annotate(module, {"add.1": ROWS}, required=False)
    mark = next(i for i in out.instructions if i.custom_call_target == "Sharding")
    assert (mark.opaque, str(out.sharding(mark))) == ("unspecified_dims=[0,1]", ROWS)
    assert [o.name for o in out.by_name("total").operands] == [mark.name, "z"]
    assert out.by_name("add.1").users == [mark]


def test_for_users_the_value_itself_stays_free(module: Module) -> None:
    out = annotate(module, {"params['w1']": ROWS}, annotate_for_users=True)
    assert list(shardings(out).values()) == [ROWS]
    copy = out.by_name("p0").users[0]
    assert copy.opcode == "copy"
    assert out.sharding(copy) is not None
    assert [u.name for u in copy.users] == ["add.1"]


def test_a_root_annotated_for_its_users_stays_the_root() -> None:
    text = "HloModule m\nENTRY e { x = f32[8] parameter(0)  ROOT y = f32[8] negate(x) }"
    out = annotate(from_hlo_text(text), {"y": "{devices=[2]<=[2]}"}, annotate_for_users=True)
    assert out.entry.root.name == "y"
    required = annotate(from_hlo_text(text), {"y": "{devices=[2]<=[2]}"}, required=False)
    assert required.entry.root.custom_call_target == "Sharding"


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({"ad.1": ROWS}, "did you mean add.1"),
        ({"params['w3']": ROWS}, r"did you mean params\['w"),
        ({"nothing*": ROWS}, "glob match"),
        ({"add.1": "{devices=[2]<=[2]}"}, "splits 1 dims"),
        ({"add.1": "{oops}"}, "unknown word"),
        ({"add.1": 3}, "no sharding"),
        ({"add.1": ("a", None)}, "needs a mesh"),
        ({"add.1": "{{replicated}, {replicated}}"}, "tuple"),
    ],
)
def test_what_does_not_fit_is_an_error(module: Module, annotations: dict[str, object], message: str) -> None:
    with pytest.raises(AnnotationError, match=message):
        annotate(module, annotations)


def test_what_comes_out_is_read_by_jaxlib(module: Module) -> None:
    for options in ({}, {"required": False}, {"annotate_for_users": True}):
        text = annotate(module, {"add.1": ROWS}, **options).to_hlo_text()
        assert f"sharding={ROWS}" in text
        assert len(from_hlo_text(text).instructions) >= len(module.instructions)


def test_annotated_boundaries_are_closed() -> None:
    import jax

    x = jax.ShapeDtypeStruct((8, 4), "float32")
    module = trace(lambda x, y: x + y)(x, x)
    assert module.open_parameters == (True, True)
    out = annotate(module, {"x": ROWS, "add.1": ROWS})
    assert (out.open_parameters, out.open_outputs) == ((False, True), False)
    assert annotate(module, {"x": ROWS}, required=False).open_parameters == (True, True)
    assert module.open_parameters == (True, True)


def test_a_glob_takes_no_more_time_than_it_has_letters() -> None:
    name = "a" * 60
    module = from_hlo_text(f"HloModule m\nENTRY e {{\n  ROOT {name} = f32[4] parameter(0)\n}}\n")
    began = time.process_time()
    with pytest.raises(AnnotationError, match="no instruction"):
        annotate(module, {"*a" * 25 + "*b": "{replicated}"})
    found = annotate(module, {"a*" * 25 + "?a": "{replicated}"})
    with pytest.raises(AnnotationError, match="fewer stars"):
        annotate(module, {"*a" * 100_000: "{replicated}"})
    with pytest.raises(AnnotationError, match="no instruction"):
        annotate(module, {"a" * 1_000_000: "{replicated}"})
    assert time.process_time() - began < 1
    assert str(found.sharding(found.by_name(name))) == "{replicated}"


@pytest.mark.parametrize(
    ("glob", "matched"),
    [("*", "ab aab b"), ("a*b", "ab aab"), ("*b*", "ab aab b"), ("?a*", "aab"), ("*a?", "ab aab"), ("a**ab", "aab")],
)
def test_what_a_glob_matches(glob: str, matched: str) -> None:
    ops = "ab = f32[4] parameter(0)", "aab = f32[4] add(ab, ab)", "ROOT b = f32[4] add(ab, aab)"
    module = from_hlo_text("HloModule m\nENTRY e {\n" + "\n".join(ops) + "\n}\n")
    found = annotate(module, {glob: "{devices=[2]<=[2]}"})
    assert {i.name for i in found.instructions if found.sharding(i) is not None} == set(matched.split())
