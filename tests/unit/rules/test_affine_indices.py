"""Indices that count in even steps: what is said of them is what XLA makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlosharding as hs
from hlosharding.ir import Instruction
from hlosharding.rules import AffineIndices, Signature, addressing, affine_indices, iota_signature, signature_of

U = jax.ShapeDtypeStruct((40, 30), np.float32)
Update = Callable[[Any], Any]


def scatter_of(function: Update, *arguments: Any) -> Instruction:
    module = hs.trace(function)(*(arguments or (U,)))
    [found] = [i for i in module.instructions if i.opcode == "scatter"]
    return found


def numbers(inst: Instruction) -> np.ndarray:
    """The index values, by numpy: every op that made them, in order."""
    meaning: dict[str, Callable[..., Any]] = {
        "iota": lambda i: np.broadcast_to(
            np.arange(i.shape.dims[i.iota_dimension]).reshape(
                [-1 if d == i.iota_dimension else 1 for d in range(i.shape.rank)]
            ),
            i.shape.dims,
        ),
        "constant": lambda i: i.literal,
        "broadcast": lambda i, x: np.broadcast_to(
            np.asarray(x).reshape(
                [i.shape.dims[d] if d in i.dimensions else 1 for d in range(i.shape.rank)]
            ),
            i.shape.dims,
        ),
        "reshape": lambda i, x: np.reshape(x, i.shape.dims),
        "convert": lambda i, x: np.asarray(x).astype(i.shape.dtype),
        "concatenate": lambda i, *xs: np.concatenate(xs, i.dimensions[0]),
        "add": lambda i, x, y: x + y,
        "subtract": lambda i, x, y: x - y,
        "multiply": lambda i, x, y: x * y,
        "negate": lambda i, x: -x,
        "reverse": lambda i, x: np.flip(x, i.dimensions),
        "compare": lambda i, x, y: {"LT": np.less, "GE": np.greater_equal}[i.comparison_direction](x, y),
        "select": lambda i, p, x, y: np.where(p, x, y),
        "clamp": lambda i, low, x, high: np.clip(x, low, high),
        "slice": lambda i, x: x[tuple(slice(d.start, d.limit, d.stride) for d in i.slice_dims)],
        "transpose": lambda i, x: np.transpose(x, i.dimensions),
    }  # fmt: skip
    return np.asarray(meaning[inst.opcode](inst, *(numbers(o) for o in inst.operands)))


def said(steps: AffineIndices, dims: tuple[int, ...]) -> np.ndarray:
    grid = np.indices(dims)
    return sum((grid[d] * step for d, step in steps.steps.items()), np.full(dims, steps.start))


UPDATES: dict[str, Update] = {
    "window": lambda u: u.at[1:-1].add(1.0),
    "window of both dims": lambda u: u.at[2:-3, 5:].set(1.0),
    "row": lambda u: u.at[-1].set(1.0),
    "element": lambda u: u.at[7, -2].add(1.0),
    "even rows": lambda u: u.at[::2].add(1.0),
    "every third, from 4": lambda u: u.at[4:-1:3].set(1.0),
    "backwards": lambda u: u.at[::-2].add(1.0),
    "grid": lambda u: u.at[1::4, 2::3].add(1.0),
    "rows by arange": lambda u: u.at[jnp.arange(10) * 3 + 2].add(1.0),
    "rows counted from the end": lambda u: u.at[-1 - jnp.arange(5)].add(1.0),
    "rows of a constant": lambda u: u.at[np.arange(3, 30, 4)].set(1.0),
    "clipped": lambda u: u.at[50].set(1.0, mode="clip"),
    "outside": lambda u: u.at[jnp.arange(10) * 6].add(1.0, mode="drop"),
}


@pytest.mark.parametrize("name", UPDATES)
def test_every_index_is_said(name: str) -> None:
    inst = scatter_of(UPDATES[name])
    found, how = affine_indices(inst), addressing(inst)
    assert found is not None
    indices = inst.operands[how.indices]
    values = numbers(indices)
    for number, steps in enumerate(found):
        column = np.take(values, number, how.vector_dim) if how.vector_dim < values.ndim else values
        # What is said is said of the dims of the indices, the component's own left out.
        whole = said(steps, indices.shape.dims)
        taken = np.take(whole, 0, how.vector_dim) if how.vector_dim < values.ndim else whole
        np.testing.assert_array_equal(taken, column)


@pytest.mark.parametrize(
    "update",
    [
        lambda u: u.at[np.array([1, 2, 4])].add(1.0),
        lambda u: u.at[jnp.arange(6) ** 2].add(1.0),
        lambda u: u.at[jnp.arange(6) % 3].add(1.0),
        lambda u: u.at[jnp.argmax(u[0])].set(1.0),
        lambda u: u.at[jnp.where(jnp.arange(8) > 3, jnp.arange(8), 0)].add(1.0),
    ],
)
def test_what_does_not_count_evenly_is_not_said(update: Update) -> None:
    assert affine_indices(scatter_of(update)) is None


def test_a_narrow_type_starts_anew() -> None:
    """300 numbers of eight bits: the 129th is negative."""
    text = """HloModule m
    f { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
    ENTRY e {
      x = f32[400] parameter(0)
      i = s8[300,1] iota(), iota_dimension=0
      u = f32[300] parameter(1)
      ROOT s = f32[400] scatter(x, i, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=f
    }"""  # noqa: E501
    assert affine_indices(hs.load(text).entry.root) is None


# An iota, 0, 1, 2, ...: which ways of making one are seen through, and which are not what they look like.

LOOP = """
HloModule m
condition {{
  c = (s32[6], s32[]) parameter(0)
  n = s32[] get-tuple-element(c), index=1
  three = s32[] constant(3)
  ROOT r = pred[] compare(n, three), direction=LT
}}
body {{
  c = (s32[6], s32[]) parameter(0)
  i = s32[6] get-tuple-element(c), index=0
  n = s32[] get-tuple-element(c), index=1
  zero = f32[] constant(0)
  t = f32[6,4] broadcast(zero), dimensions={{}}
  g = f32[6,4] gather(t, i), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}}, index_vector_dim=1,
    slice_sizes={{1,4}}
  one = s32[] constant(1)
  next = s32[] add(n, one)
  other = s32[6] negate(i)
  ROOT r = (s32[6], s32[]) tuple({kept}, next)
}}
ENTRY main {{
  i = s32[6] iota(), iota_dimension=0
  n = s32[] constant(0)
  c = (s32[6], s32[]) tuple(i, n)
  ROOT w = (s32[6], s32[]) while(c), condition=condition, body=body
}}
"""


def reading(text: str, opcode: str = "gather") -> str | None:
    """The other reading of the only gather (or scatter) of a module."""
    module = hs.load(text, format="hlo")
    [inst] = [i for i in module.instructions if i.opcode == opcode]
    signature = signature_of(inst)
    assert isinstance(signature, Signature)
    found = iota_signature(inst, signature)
    return None if found is None else str(found)


def rows_at(made: str, kind: str = "s32", size: int = 6) -> str | None:
    """The reading of a gather of rows of f32[size,4] by the values `i`."""
    return reading(f"""
      HloModule m
      ENTRY main {{
        t = f32[{size},4] parameter(0)
        {made}
        ROOT g = f32[{size},4] gather(t, i), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
          index_vector_dim=1, slice_sizes={{1,4}}
      }}""")


COUNTS = {
    "iota": "i = s32[6] iota(), iota_dimension=0",
    "constant": "i = s32[6] constant({0, 1, 2, 3, 4, 5})",
    "other type": "a = s64[6] iota(), iota_dimension=0  i = s32[6] convert(a)",
    "copy": "a = s32[6] iota(), iota_dimension=0  i = s32[6] copy(a)",
    "reshape": "a = s32[1,6,1] iota(), iota_dimension=1  i = s32[6] reshape(a)",
    "slice": "a = s32[9] iota(), iota_dimension=0  i = s32[6] slice(a), slice={[0:6]}",
    "negative places as JAX counts them": """
        a = s32[6] iota(), iota_dimension=0
        zero = s32[] constant(0)
        zeros = s32[6] broadcast(zero), dimensions={}
        size = s32[] constant(6)
        sizes = s32[6] broadcast(size), dimensions={}
        below = pred[6] compare(a, zeros), direction=LT
        moved = s32[6] add(a, sizes)
        i = s32[6] select(below, moved, a)""",
    "clamped to where it is": """
        a = s32[6] iota(), iota_dimension=0
        zero = s32[] constant(0)
        last = s32[] constant(5)
        zeros = s32[6] broadcast(zero), dimensions={}
        lasts = s32[6] broadcast(last), dimensions={}
        i = s32[6] clamp(zeros, a, lasts)""",
    "element of a tuple": """
        a = s32[6] iota(), iota_dimension=0
        pair = (s32[6], f32[6,4]) tuple(a, t)
        fenced = (s32[6], f32[6,4]) opt-barrier(pair)
        i = s32[6] get-tuple-element(fenced), index=0""",
}

DOES_NOT_COUNT = {
    "given": "i = s32[6] parameter(1)",
    "another order": "i = s32[6] constant({0, 1, 2, 3, 5, 4})",
    "backwards": "a = s32[6] iota(), iota_dimension=0  i = s32[6] reverse(a), dimensions={0}",
    "from one on": "a = s32[9] iota(), iota_dimension=0  i = s32[6] slice(a), slice={[1:7]}",
    "every other": "a = s32[12] iota(), iota_dimension=0  i = s32[6] slice(a), slice={[0:12:2]}",
    "merged dims": "a = s32[2,3] iota(), iota_dimension=1  i = s32[6] reshape(a)",
    "clamped lower": """
        a = s32[6] iota(), iota_dimension=0
        zero = s32[] constant(0)
        last = s32[] constant(4)
        zeros = s32[6] broadcast(zero), dimensions={}
        lasts = s32[6] broadcast(last), dimensions={}
        i = s32[6] clamp(zeros, a, lasts)""",
    "one side of a choice": """
        a = s32[6] iota(), iota_dimension=0
        b = s32[6] parameter(1)
        p = pred[6] parameter(2)
        i = s32[6] select(p, a, b)""",
}


@pytest.mark.parametrize("how", COUNTS)
def test_values_that_count_make_rows_and_places_one_factor(how: str) -> None:
    assert rows_at(COUNTS[how]) == "b0 o1, b0 -> b0 o1"


@pytest.mark.parametrize("how", DOES_NOT_COUNT)
def test_values_that_do_not_count_are_not_taken_for_it(how: str) -> None:
    assert rows_at(DOES_NOT_COUNT[how]) is None


@pytest.mark.parametrize(("kind", "size", "counts"), [("u8", 256, True), ("u8", 300, False), ("s8", 129, False)])
def test_a_narrow_type_starts_anew_at_its_end(kind: str, size: int, counts: bool) -> None:
    made = f"a = {kind}[{size}] iota(), iota_dimension=0  i = s32[{size}] convert(a)"
    assert (rows_at(made, size=size) is not None) == counts


def test_more_rows_than_places_stay_apart() -> None:
    assert reading("""
      HloModule m
      ENTRY main {
        t = f32[8,4] parameter(0)
        i = s32[6] iota(), iota_dimension=0
        ROOT g = f32[6,4] gather(t, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
          index_vector_dim=1, slice_sizes={1,4}
      }""") is None  # fmt: skip


def test_each_component_of_an_index_counts_by_itself() -> None:
    text = """
      HloModule m
      ENTRY main {{
        t = f32[6,5,4] parameter(0)
        a = s32[{first}] {made}
        b = s32[6,3,1] parameter(1)
        i = s32[6,3,2] concatenate(a, b), dimensions={{2}}
        ROOT g = f32[6,3,4] gather(t, i), offset_dims={{2}}, collapsed_slice_dims={{0,1}}, start_index_map={{0,1}},
          index_vector_dim=2, slice_sizes={{1,1,4}}
      }}"""
    with_iota = text.format(first="6,3,1", made="iota(), iota_dimension=0")
    assert reading(with_iota) == "b0 x1 o2, b0 b1 _ -> b0 b1 o2"
    assert reading(text.format(first="6,3,1", made="iota(), iota_dimension=1")) is None


def test_one_dim_is_in_step_with_one_other() -> None:
    # The diagonal: both components count along the same dim.
    assert reading("""
      HloModule m
      ENTRY main {
        t = f32[6,6] parameter(0)
        i = s32[6,2] iota(), iota_dimension=0
        ROOT g = f32[6] gather(t, i), offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1},
          index_vector_dim=1, slice_sizes={1,1}
      }""") == "b0 x1, b0 _ -> b0"  # fmt: skip


def test_a_scatter_owes_nothing_along_places_that_count() -> None:
    text = """
      HloModule m
      add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
      ENTRY main {
        t = f32[6,5] parameter(0)
        a = s32[6,1] iota(), iota_dimension=0
        b = s32[6,1] parameter(1)
        i = s32[6,2] concatenate(a, b), dimensions={1}
        u = f32[6] parameter(2)
        ROOT g = f32[6,5] scatter(t, i, u), to_apply=add, update_window_dims={}, inserted_window_dims={0,1},
          scatter_dims_to_operand_dims={0,1}, index_vector_dim=1
      }"""
    assert reading(text, "scatter") == "s0 x1, s0 _, s0 -> s0 x1"


@pytest.mark.parametrize(("kept", "counts"), [("i", True), ("other", False)])
def test_what_a_loop_hands_on_unchanged_counts_in_every_round(kept: str, counts: bool) -> None:
    assert (reading(LOOP.format(kept=kept)) is not None) == counts


def test_a_function_called_with_different_values_is_not_sure() -> None:
    text = """
      HloModule m
      rows {{
        i = s32[6] parameter(0)
        t = f32[6,4] parameter(1)
        ROOT g = f32[6,4] gather(t, i), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
          index_vector_dim=1, slice_sizes={{1,4}}
      }}
      ENTRY main {{
        t = f32[6,4] parameter(0)
        i = s32[6] iota(), iota_dimension=0
        j = s32[6] {other}
        a = f32[6,4] call(i, t), to_apply=rows
        b = f32[6,4] call(j, t), to_apply=rows
        ROOT r = f32[6,4] add(a, b)
      }}"""
    assert reading(text.format(other="iota(), iota_dimension=0")) == "b0 o1, b0 -> b0 o1"
    assert reading(text.format(other="negate(i)")) is None


def test_a_long_chain_ends_without_an_answer() -> None:
    chain = "\n".join(f"v{n + 1} = s32[6] copy(v{n})" for n in range(3000))
    assert (
        rows_at(f"v0 = s32[6] iota(), iota_dimension=0\n{chain}\ni = s32[6] transpose(v3000), dimensions={{0}}") is None
    )
