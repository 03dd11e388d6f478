"""Shardy's texts: what they mean, and that Shardy itself takes and prints what is written here."""

from __future__ import annotations

import pytest
from jax.extend.mlir import ir
from jax.interpreters import mlir

import hlosharding as hs
from hlosharding.sharding import HloSharding

HALVES = "{devices=[2,2]<=[4] last_tile_dim_replicate}"
MESH = 'mesh<["a"=2, "b"=4]>'


def verified(attribute: str, ndim: int) -> str:
    """The attribute as Shardy prints it, after its verifier has seen it on an argument."""
    context = mlir.make_ir_context()
    shape = "x".join(["64"] * ndim + ["f32"])
    ir.Module.parse(
        f"func.func @main(%x: tensor<{shape}> {{sdy.sharding = {attribute}}}) -> tensor<{shape}> "
        f"{{ return %x : tensor<{shape}> }}",
        context,
    )
    return str(ir.Attribute.parse(attribute, context))


@pytest.mark.parametrize(
    ("text", "hlo"),
    [
        (f'#sdy.sharding<{MESH}, [{{"a"}}, {{}}]>', "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"),
        (f'#sdy.sharding<{MESH}, [{{"b", "a"}}]>', "{devices=[8]<=[2,4]T(1,0)}"),
        (f'#sdy.sharding<{MESH}, [{{"b":(2)2}}]>', "{devices=[2,4]<=[4,2]T(1,0) last_tile_dim_replicate}"),
        (f'#sdy.sharding<{MESH}, [{{"b":(1)2, "a"}}, {{"b":(2)2}}]>', "{devices=[4,2]<=[2,2,2]T(1,0,2)}"),
        (f'#sdy.sharding<{MESH}, [{{"a"}}], unreduced={{"b"}}>', "{devices=[2,4]<=[8] last_tile_dims={unreduced}}"),
        (f'#sdy.sharding<{MESH}, [{{"a", ?}}, {{?}}]>', "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"),
        (f'#sdy.sharding<{MESH}, [{{"a", ?}}], replicated={{"b"}}>', "{devices=[2,4]<=[8] last_tile_dim_replicate}"),
        ('#sdy.sharding<mesh<["a"=2], device_ids=[1, 0]>, [{"a"}]>', "{devices=[2]1,0}"),
        ("#sdy.sharding<mesh<[], device_ids=[3]>, []>", "{maximal device=3}"),
        (f"#sdy.sharding<{MESH}, [{{}}, {{}}]>", "{replicated}"),
        (f"#sdy.sharding<{MESH}, []>", "{replicated}"),
        ('#sdy.sharding<mesh<["a\\22b\\\\"=2, "\\C3\\A9"=2]>, [{"a\\22b\\\\"}]>', HALVES),
    ],
)  # fmt: skip
def test_texts_are_read_and_written_as_shardy_does(text: str, hlo: str) -> None:
    found = hs.convert(text, to="hlo")
    assert found == HloSharding.parse(hlo)
    form = found.named_form
    ndim = 0 if form is None or form.whole else len(form.dims)
    written = hs.convert(text, to="sdy")
    assert written == text
    assert verified(written, ndim) == text


@pytest.mark.parametrize(
    "text",
    [
        f'#sdy.sharding<{MESH}, [{{"a", ?}}p2, {{?}}p0]>',
        '#sdy.sharding<@mesh, [{"a"}p0, {"b":(1)2}]>',
    ],
)
def test_priorities_are_kept_among_what_has_them(text: str) -> None:
    declared = 'sdy.mesh @mesh = <["a"=2, "b"=4]>'
    assert hs.convert(text, to="sdy", mesh=declared if "@" in text else None) == text
    assert str(ir.Attribute.parse(text, mlir.make_ir_context())) == text


def test_partial_values_may_be_combined_otherwise() -> None:
    text = f'#sdy.sharding<{MESH}, [{{"a"}}], unreduced=max{{"b"}}>'
    assert hs.convert(text, to="sdy") == text
    assert hs.convert(text, to="mesh") == "[[a]] partial=max[b]"


@pytest.mark.parametrize(
    ("text", "mesh", "expected"),
    [
        ('<@mesh, [{"a"}]>', "a=2", "{devices=[2]<=[2]}"),
        ('<@"my mesh", [{"a"}]>', 'sdy.mesh @"my mesh" = <["a"=2]>', "{devices=[2]<=[2]}"),
        ('sdy.mesh @m = <["a"=2]>\nsdy.mesh @n = <["a"=4]>\n<@n, [{"a"}]>', None, "{devices=[4]<=[4]}"),
        ("sdy.mesh @one = <[], device_ids=[1]> <@one, []>", None, "{maximal device=1}"),
    ],
)
def test_a_mesh_is_declared_or_given(text: str, mesh: str | None, expected: str) -> None:
    assert str(hs.convert(text, to="v2", mesh=mesh)) == expected


def test_a_declared_mesh_is_referred_to() -> None:
    mesh = 'sdy.mesh @"my mesh" = <["a"=2, "b"=4]>'
    assert hs.convert("P(a)", to="sdy", mesh=mesh, ndim=2) == '#sdy.sharding<@"my mesh", [{"a"}, {}]>'


@pytest.mark.parametrize(
    ("text", "says", "position"),
    [
        ('<@mesh, [{"a"}]>', "mesh @mesh is not known", 1),
        ('sdy.mesh @m = <["a"=2]> <@n, [{"a"}]>', "mesh @n is not known", 25),
        (f'<{MESH}, [{{"c"}}]>', "no axis 'c'", 25),
        (f'<{MESH}, [{{"a"}}, {{"a"}}]>', "axis 'a' is used twice", 32),
        (f'<{MESH}, [{{"b":(1)2, "b":(2)2}}]>', "are one", 35),
        (f'<{MESH}, [{{"b":(1)3}}]>', "does not divide", 25),
        (f'<{MESH}, [{{"b":(1)4}}]>', "does not divide", 25),
        (f'<{MESH}, [{{"a"}}p-1]>', "at least 0", 29),
        (f"<{MESH}, [{{}}p1]>", "empty closed dim has a priority", 26),
        (f'<{MESH}, [{{?, "a"}}]>', "expected '}'", 26),
        (f'<{MESH}, [{{}}], replicated={{"a", ?}}>', "'?' among the replicated axes", 29),
        (f'<{MESH}, [{{}}], manual={{"a"}}>', "expected replicated", 29),
        (f'<{MESH}, [{{}}], unreduced={{"a"}}, unreduced={{"b"}}>', "each once", 46),
        (f'<{MESH}, [{{}}], unreduced=avg{{"a"}}>', "one of sum, max, min", 39),
        (f"<{MESH}, [{{}}]> more", "text after", 29),
        ('<mesh<["a"=2, "a"=2]>, [{}]>', "two axes are named 'a'", 14),
        ('<mesh<["a"=0]>, [{}]>', "at least 1", 5),
        ('<mesh<["a"=2], device_ids=[0, 0]>, [{}]>', "each once", 5),
        ('<mesh<["a"=2], device_ids=[0, -1]>, [{}]>', "device -1 is negative", 26),
        ("<mesh<[], device_ids=[3]>, [{}]>", "over one device names no dims", 1),
        ("<mesh<[], device_ids=[9999999]>, []>", "10000000 devices are more than", 21),
        ('<mesh<["a\\FF"=2]>, [{}]>', "no UTF-8", 7),
        ('#sdy.sharding_per_value<[<@m, [{}]>]>', "shardings of several values", 23),
    ],
)  # fmt: skip
def test_malformed_texts_fail_with_their_position(text: str, says: str, position: int) -> None:
    with pytest.raises(hs.ShardingParseError, match=says.replace("?", r"\?")) as error:
        hs.convert(text, to="hlo")
    assert error.value.position == position


def test_unsorted_unreduced_axes_are_refused_as_shardy_does() -> None:
    with pytest.raises(hs.ShardingError, match="not in mesh order"):
        hs.convert(f'<{MESH}, [{{}}], unreduced={{"b", "a"}}>', to="hlo")
    with pytest.raises(ir.MLIRError, match="order"):
        verified(f'#sdy.sharding<{MESH}, [{{}}], unreduced={{"b", "a"}}>', 1)
