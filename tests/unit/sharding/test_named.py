"""Named shardings: text, meaning, names found again, proto, errors.  Meanings are those of jaxlib 0.10.2."""

from __future__ import annotations

import pytest

from hlosharding.errors import ShardingError, ShardingParseError
from hlosharding.sharding import (
    HloSharding,
    MeshInfo,
    find_named_form,
    merge_if_compatible,
    propagate_through_reshape,
    replicate_on_dims,
    transpose_sharding,
    with_mesh,
)

parse = HloSharding.parse
MESH = MeshInfo(("a", "b"), (2, 4))

MEANINGS = [
    ("{mesh['a'=2,'b'=4], [{'a'}, {'b'}]}", "{devices=[2,4]<=[8]}"),
    ("{mesh['a'=2,'b'=4], [{'b'}, {'a'}]}", "{devices=[4,2]<=[2,4]T(1,0)}"),
    ("{mesh['a'=2,'b'=4], [{'a', 'b'}, {}]}", "{devices=[8,1]<=[8]}"),
    ("{mesh['a'=2,'b'=4], [{'b':(1)2}, {'b':(2)2}]}", "{devices=[2,2,2]<=[2,4]T(1,0) last_tile_dim_replicate}"),
    ("{mesh['a'=2,'b'=4], [{'b':(2)2}, {'b':(1)2}]}", "{devices=[2,2,2]<=[2,2,2]T(2,1,0) last_tile_dim_replicate}"),
    ("{mesh['a'=2,'b'=4], [{'a', ?}, {?}]}", "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"),
    ("{mesh['a'=2,'b'=4], [{'a'}, {}], replicated={'b'}}", "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"),
    ("{mesh['a'=2,'b'=4], [{'a'}, {}], unreduced={'b'}}", "{devices=[2,1,4]<=[8] last_tile_dims={unreduced}}"),
    ("{mesh['a'=2,'b'=4], [{'a'}, {}], manual={'b'}}", "{devices=[2,1,4]<=[8] last_tile_dims={manual}}"),
    (
        "{mesh['a'=2,'b'=4,'c'=2,'d'=2], [{'a'}, {}], replicated={'b'}, unreduced={'c'}, manual={'d'}}",
        "{devices=[2,1,2,2,4]<=[2,4,2,2]T(0,3,2,1) last_tile_dims={manual, unreduced, replicated}}",
    ),
    ("{mesh['a'=2,'b'=4], device_ids=(0,2,1,3,4,5,6,7), [{'a'}, {'b'}]}", "{devices=[2,4]0,2,1,3,4,5,6,7}"),
    ("{mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)), [{'a'}, {'b'}]}", "{devices=[2,4]<=[4,2]T(1,0)}"),
    ("{mesh['a'=2], replicated}", "{replicated}"),
    ("{mesh['a'=2], manual}", "{manual}"),
    ("{mesh['a'=2], unreduced}", "{unreduced}"),
    ("{mesh[], replicated}", "{replicated}"),
    ("{maximal_mesh[device_id=3]}", "{maximal device=3}"),
    ("{mesh['a'=2,'b'=4], [{}, {}]}", "{replicated}"),
    ("{mesh['a'=2,'b'=4], [{?}, {}]}", "{replicated}"),
    ("{mesh['a'=2,'b'=4], [], replicated={'a'}}", "{replicated}"),
    ("{mesh['a'=1,'b'=4], [{'b'}, {'a'}]}", "{devices=[4,1]<=[4]}"),
    ("{mesh['a'=2,'b'=4], [{'a', 'b':(1)2}], manual={'b':(2)2}}", "{devices=[4,2]<=[8] last_tile_dims={manual}}"),
    (
        "{mesh['a'=2,'b'=4], [{'a'}], unreduced={'b':(2)2}}",
        "{devices=[2,2,2]<=[2,2,2]T(0,2,1) last_tile_dims={unreduced, replicated}}",
    ),
    ("{mesh['a'=2,'b'=2], [{}, {}], manual={'a', 'b'}}", "{manual}"),
    ("{{mesh['a'=2], [{'a'}]}, {replicated}}", "{{devices=[2]<=[2]}, {replicated}}"),
    ("{mesh['a.b'=2,'<x> y'=2], [{'a.b'}, {'<x> y'}]}", "{devices=[2,2]<=[4]}"),
]


@pytest.mark.parametrize(("text", "meaning"), MEANINGS)
def test_text_and_meaning(text, meaning):
    s = parse(text)
    assert str(s) == text
    assert str(s.without_names()) == meaning
    assert s == parse(meaning)


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        ('{mesh["a"=2,"b"=4], [{"b"}, {"a"}]}', "{mesh['a'=2,'b'=4], [{'b'}, {'a'}]}"),
        ("{mesh['a'=2,'b'=4], []}", "{mesh['a'=2,'b'=4], replicated}"),
        ("{mesh['a'=2,'b'=2], [], manual={'a','b'}}", "{mesh['a'=2,'b'=2], manual}"),
        ("{mesh['a'=2,'b'=1], [], unreduced={'a'}}", "{mesh['a'=2,'b'=1], unreduced}"),
        ("{mesh['a'=2,'b'=2], device_ids=([4]), [{'a'}]}", "{mesh['a'=2,'b'=2], [{'a'}]}"),
        ("{mesh['a'=2,'b'=4],[{'b'},{'a'}],replicated={}}", "{mesh['a'=2,'b'=4], [{'b'}, {'a'}]}"),
    ],
)
def test_short_forms(given, printed):
    assert str(parse(given)) == printed


BAD = [
    ("{mesh['a'=2], [{'c'}]}", 16, "no axis 'c'"),
    ("{mesh['a'=2], [{'a'}, {'a'}]}", 23, "used twice"),
    ("{mesh['a'=2], [{'a'}], manual={'a'}}", 31, "used twice"),
    ("{mesh['a'=2,'a'=2], [{'a'}]}", 12, "two axes are named 'a'"),
    ("{mesh['b'=4], [{'b':(1)3}]}", 16, "does not divide"),
    ("{mesh['b'=4], [{'b':(3)2}]}", 16, "does not divide"),
    ("{mesh['b'=4], [{'b':(0)2}]}", 16, "does not divide"),
    ("{mesh['b'=4], [{'b':(1)4}]}", 16, "does not divide"),
    ("{mesh['b'=4], [{'b':(1)1}]}", 16, "does not divide"),
    ("{mesh['b'=8], [{'b':(1)4}, {'b':(2)2}]}", 28, "used twice"),
    ("{mesh['b'=12], [{'b':(1)2}, {'b':(3)2}]}", 29, "do not fit together"),
    ("{mesh['b'=4], [{'b':(1)2, 'b':(2)2}]}", 26, "are one"),
    ("{mesh['a'=2,'b'=2], [], manual={'b','a'}}", 1, "not in mesh order"),
    ("{mesh['a'=2], device_ids=(0,1), [{'a'}]}", 25, "plain order"),
    ("{mesh['a'=2], device_ids=(0,0), [{'a'}]}", 1, "each once"),
    ("{mesh['a'=2], device_ids=(0,1,2), [{'a'}]}", 25, "plain order"),
    ("{mesh['a'=2], device_ids=(2,1,0), [{'a'}]}", 1, "each once"),
    ("{mesh['a'=2], device_ids=([4,2]T(1,0)), [{'a'}]}", 25, "holds 2 tiles"),
    ("{mesh['a'=0], [{'a'}]}", 1, "at least 1"),
    ("{mesh[a=2], [{a}]}", 6, "in quotes"),
    ("{mesh['a'=2]}", 12, "expected ','"),
    ("{mesh[], [{}]}", 9, "only be replicated"),
    ("{mesh['a'=2], tiled}", 14, "expected the axes"),
    ("{mesh['a'=2], [{'a'}], sharded={'a'}}", 23, "expected one of"),
    ("{mesh['a'=2], [{'a'}], manual={?}}", 23, "among the manual axes"),
    ("{mesh['a'=2], [], manual={}, manual={}}", 29, "a second 'manual'"),
    ("{mesh['a'=2], [{?, 'a'}]}", 17, "expected '}'"),
    ("{mesh['a'=2], [{'a'}] shard_as 1}", 22, "expected '}'"),
    ("{mesh['a'=2], replicated, manual={'a'}}", 26, "expected metadata"),
    ("{mesh['a=2], [{}]}", 6, "never ends"),
    ("{maximal_mesh[device=3]}", 14, "expected device_id"),
]


@pytest.mark.parametrize(("text", "position", "message"), BAD)
def test_bad_names_fail_with_their_position(text, position, message):
    with pytest.raises(ShardingParseError) as caught:
        parse(text)
    assert message in str(caught.value)
    assert caught.value.position == position


@pytest.mark.parametrize("text", [text for text, _ in MEANINGS if not text.startswith(("{{", "{maximal"))])
def test_names_are_found_again(text):
    s = parse(text)
    assert s.named_form is not None
    form = find_named_form(s.without_names(), s.named_form.mesh)
    assert form is not None
    assert HloSharding.from_named_form(form) == s


def test_what_axes_cannot_say():
    for text in (
        "{devices=[8]7,6,5,4,3,2,1,0}",
        "{devices=[4]<=[4]}",
        "{devices=[8]0,1,3,2,4,5,6,7}",
        "{devices=[8]8,1,2,3,4,5,6,7}",
    ):
        assert find_named_form(parse(text), MESH) is None
        assert with_mesh(parse(text), MESH).named_form is None
    six = MeshInfo(("a", "b"), (2, 3))
    assert find_named_form(parse("{devices=[3,2]<=[6]}"), six) is None
    assert find_named_form(HloSharding.unknown(), MESH) is None


def test_names_over_tuples_and_odd_meshes():
    s = parse("{{devices=[2,1,4]<=[8] last_tile_dim_replicate}, {replicated}}")
    assert str(with_mesh(s, MESH)) == "{{mesh['a'=2,'b'=4], [{'a'}, {}]}, {mesh['a'=2,'b'=4], replicated}}"
    turned = MeshInfo(("a", "b"), (2, 2), (3, 1, 2, 0))
    assert str(with_mesh(parse("{devices=[2,2]3,1,2,0}"), turned)) == (
        "{mesh['a'=2,'b'=2], device_ids=(3,1,2,0), [{'a'}, {'b'}]}"
    )


def test_names_stay_through_the_algebra():
    """As live XLA keeps them."""
    a, c, d = (parse(f"{{mesh['a'=2,'b'=4], [{t}]}}") for t in ("{'a'}, {'b'}", "{'a'}, {}", "{}, {'b'}"))
    assert str(transpose_sharding(a, (1, 0))) == "{mesh['a'=2,'b'=4], [{'b'}, {'a'}]}"
    assert str(replicate_on_dims(a, (0,))) == "{mesh['a'=2,'b'=4], [{}, {'b'}]}"
    assert str(merge_if_compatible(c, d)) == "{mesh['a'=2,'b'=4], [{'a'}, {'b'}]}"
    plain = parse("{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}")
    assert str(merge_if_compatible(c, plain)) == "{devices=[2,4]<=[8]}"
    both = parse("{mesh['a'=2,'b'=4], [{'a', 'b'}, {}]}")
    assert str(propagate_through_reshape((8, 4), (2, 4, 4), both)) == "{mesh['a'=2,'b'=4], [{'a'}, {'b'}, {}]}"


def test_mesh_values():
    assert MeshInfo(("a",), (2,)) == MeshInfo(("a",), (2,), (0, 1))
    assert MESH.num_devices == 8
    assert MESH.size_of("b") == 4
    assert MeshInfo.from_jax(MESH) is MESH
    assert str(MeshInfo(("a",), (3,), (2, 0, 1))) == "mesh['a'=3], device_ids=(2,0,1)"
    for bad in (
        lambda: MeshInfo(("a",), (2, 2)),
        lambda: MeshInfo(("a", "a"), (2, 2)),
        lambda: MeshInfo(("a",), (0,)),
        lambda: MeshInfo(("a",), (2,), (0, 2)),
        lambda: MESH.size_of("c"),
        lambda: MeshInfo.from_jax("mesh"),
    ):
        with pytest.raises(ShardingError):
            bad()
