"""The RFC's walk-through: an MLP with 1-D weight stationary splits (its figure 2(a)), annotation by annotation."""

from __future__ import annotations

import numpy as np
import pytest

import hlosharding as hs
from hlosharding.mesh_propagation import AxisAnnotation, AxisPropagation, describe_loops, propagate_axes
from tests.support.mesh_programs import MLP, ZEROS, as_operands, as_results, for_users, program

HIDDEN, PARTIAL = "[[], [], [0]]", "[] partial=sum[0]"
BY_TENSORS = [
    AxisAnnotation("arg0", HIDDEN),
    AxisAnnotation("out", "[[], [], [], [0]]"),
    for_users("out", HIDDEN),
]
BY_OPTION = [AxisAnnotation("arg0", HIDDEN), for_users("out", HIDDEN)]


def completed(size: str = "2") -> AxisPropagation:
    return propagate_axes(program(MLP), size, annotations=BY_TENSORS)


def test_t2_loops_of_max() -> None:
    assert describe_loops(program(MLP).by_name("active")).splitlines() == [
        "loop types: [parallel parallel parallel]",
        "indexing maps:",
        "(d0, d1, d2) -> (d0, d1, d2)",
        "(d0, d1, d2) -> (d0, d1, d2)",
        "(d0, d1, d2) -> (d0, d1, d2)",
    ]


@pytest.mark.parametrize("name", ["hidden", "out"])
def test_t2_loops_of_dot_general(name: str) -> None:
    assert describe_loops(program(MLP).by_name(name)).splitlines() == [
        "loop types: [parallel parallel parallel reduction_sum]",
        "indexing maps:",
        "(d0, d1, d2, d3) -> (d0, d1, d3)",
        "(d0, d1, d2, d3) -> (d3, d2)",
        "(d0, d1, d2, d3) -> (d0, d1, d2)",
    ]


def test_t5_annotations_as_results() -> None:
    """The weights get none: an argument is annotated for its users."""
    assert as_results(completed()) == {
        "arg0": HIDDEN,
        "hidden": HIDDEN,
        "zero": "[]",
        "active": HIDDEN,
        "out": PARTIAL,
    }


def test_t5_annotations_as_operands() -> None:
    assert as_operands(completed()) == {
        ("arg0", "hidden"): "[]",
        ("arg1", "hidden"): "[[], [0]]",
        ("hidden", "active"): HIDDEN,
        ("zero", "active"): HIDDEN,
        ("active", "out"): HIDDEN,
        ("arg2", "out"): "[[0]]",
        ("out", "output"): HIDDEN,
    }


def test_t5_options_on_operations() -> None:
    options = {name: str(option) for name, option in completed().options.items()}
    assert options == {"hidden": HIDDEN, "active": HIDDEN, "out": "[[], [], [], [0]]"}


def test_t5_what_the_user_required_stays_required_and_the_rest_are_hints() -> None:
    assert [(a.value, a.users) for a in completed().annotations if a.required] == [
        ("arg0", ()),
        ("out", ()),
        ("out", ("output",)),
    ]


def test_t5_nothing_conflicts_and_the_gathered_argument_is_told() -> None:
    found = completed()
    assert found.conflicts == ()
    (gathered,) = found.yielded
    assert str(gathered) == (
        "%hidden (dot), loop k0: operand 0 (%arg0), annotated by the user, offers [0],"
        " but axis 0 splits loop n0, as user %active offers [0]; the hint yields"
    )


@pytest.mark.parametrize("size", ["2", "8", "?"])
def test_t8_an_option_on_the_op_gives_the_same(size: str) -> None:
    by_option = propagate_axes(program(MLP), size, annotations=BY_OPTION, options={"out": "[[],[],[],[0]]"})
    by_tensors = completed(size)
    assert as_results(by_option) == as_results(by_tensors)
    assert as_operands(by_option) == as_operands(by_tensors)
    assert by_option.options == by_tensors.options
    assert by_option.conflicts == ()


@pytest.mark.parametrize(("size", "pieces"), [("2", [(2, 4, 4), (8, 16), (16, 8)]), ("8", [(2, 4, 1), (8, 4), (4, 8)])])
def test_t8_local_shapes_of_the_arguments(size: str, pieces: list[tuple[int, ...]]) -> None:
    found = completed(size)
    held = [found.sharding("arg0"), found.operand("hidden", 1), found.operand("out", 1)]
    shapes = [(2, 4, 8), (8, 32), (32, 8)]
    local = [s.local_shape(dims, found.cluster) for s, dims in zip(held, shapes, strict=True) if s is not None]
    assert local == pieces


@pytest.mark.parametrize(
    ("size", "pieces"),
    [("2", ["f32[2,4,4]", "f32[8,16]", "f32[16,8]"]), ("8", ["f32[2,4,1]", "f32[8,4]", "f32[4,8]"])],
)
def test_t6_t7_t8_the_partitioner_makes_of_it_what_the_rfc_shows(size: str, pieces: list[str]) -> None:
    """All-gather of the argument, local dots, reduce-scatter of the partial result; and the right numbers."""
    partitioned = hs.partition(completed(size).to_module(), machine=hs.machines.h100(int(size)))
    local = partitioned.module.entry
    assert [str(p.shape) for p in local.parameters] == pieces
    assert [(c.kind, str(c.shape)) for c in partitioned.collectives] == [
        ("all-gather", "f32[2,4,8]"),
        ("reduce-scatter", pieces[0]),
    ]
    gather, scatter = (i for i in local.instructions if i.opcode in ("all-gather", "reduce-scatter"))
    assert (gather.dimensions, scatter.dimensions) == ((2,), (2,))
    assert gather.replica_groups == scatter.replica_groups == (tuple(range(int(size))),)
    rng = np.random.default_rng(0)
    x, w1, w2 = (rng.standard_normal(dims, np.float32) for dims in ((2, 4, 8), (8, 32), (32, 8)))
    np.testing.assert_allclose(partitioned.run_reference(x, w1, w2), np.maximum(x @ w1, 0) @ w2, rtol=1e-5, atol=1e-5)


def test_a_broadcast_zero_is_split_where_it_is_made() -> None:
    """As JAX writes it: the zero is a scalar, and the broadcast is an op like any other."""
    body = MLP.replace(f"constant({ZEROS})", "broadcast(%scalar), dimensions={}")
    body = body.replace("  %zero", "  %scalar = f32[] constant(0)\n  %zero")
    found = propagate_axes(program(body), "2", annotations=BY_TENSORS)
    assert (as_results(found)["zero"], as_results(found)["scalar"]) == (HIDDEN, "[]")
    assert as_operands(found)["scalar", "zero"] == "[]"


def test_2d_weight_stationary() -> None:
    """Figure 2(b) of the paper: every product is partial along the axis of what it contracts."""
    notes = [
        AxisAnnotation("arg0", "[[], [], [x]]"),
        for_users("arg1", "[[x], [y]]"),
        for_users("arg2", "[[y], [x]]"),
        for_users("hidden", "[[], [], [y]]"),
        for_users("out", "[[], [], [x]]"),
    ]
    found = propagate_axes(program(MLP), "x=2,y=?", annotations=notes)
    assert as_results(found) == {
        "arg0": "[[], [], [x]]",
        "hidden": "[[], [], [y]] partial=sum[x]",
        "zero": "[]",
        "active": "[[], [], [y]]",
        "out": "[[], [], [x]] partial=sum[y]",
    }
    assert (found.conflicts, found.yielded) == ((), ())


def test_the_page_shows_options_and_annotations() -> None:
    assert str(completed()).splitlines()[:6] == [
        "mesh.cluster @mesh0(rank = 1, dim_sizes = [2])",
        "%arg0 = [[], [], [0]], required",
        "%hidden: loops m0 m1 n0 k0, option [[], [], [0]]",
        "  takes %arg0 as []",
        "  takes %arg1 as [[], [0]]",
        "%hidden = [[], [], [0]]",
    ]
