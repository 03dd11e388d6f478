"""The splits of an op that were not taken: their bytes by hand, the one taken as the program has it, and why not."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.compiler import SplitExplanation
from hlosharding.errors import ModuleError, PartitionError
from hlosharding.partitioner import PartitionOptions, SplitAlternative
from hlosharding.report import split_view, to_record, to_text
from hlosharding.sharding import HloSharding

MESH = AbstractMesh((2, 4), ("d", "x"))
ROWS = P(("d", "x"))


def product(
    m: int, k: int, n: int, x: P, w: P, out: P, *, objective: str = "bytes"
) -> tuple[hs.Partitioned, SplitExplanation]:
    """`x[m,k] @ w[k,n]` on a 2x4 mesh, and what is said of its product."""
    arrays = jax.ShapeDtypeStruct((m, k), jnp.float32), jax.ShapeDtypeStruct((k, n), jnp.float32)
    module = hs.trace(lambda x, w: x @ w, mesh=MESH, in_shardings=(x, w), out_shardings=out)(*arrays)
    local = hs.partition(module, options=PartitionOptions(objective=objective), machine=hs.machines.h100(8))
    [name] = [i.name for i in module.instructions if i.opcode == "dot"]
    return local, local.explain(name)


def whole_product() -> tuple[hs.Partitioned, SplitExplanation]:
    """A narrow x split by rows, and a product that is to be whole on every device."""
    module = hs.load("""HloModule m, num_partitions=8
        ENTRY e {
          x = f32[1024,16] parameter(0), sharding={devices=[8,1]<=[8]}
          w = f32[16,1024] parameter(1), sharding={replicated}
          ROOT y = f32[1024,1024] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={replicated}
        }""")
    local = hs.partition(module, options=PartitionOptions(objective="bytes"), machine=hs.machines.h100(8))
    return local, local.explain("y")


def split(found: SplitExplanation, **ways: str) -> SplitAlternative:
    """The one that is split so: `m="d"`."""
    assert found.splits is not None
    order, sizes = "mnk", {"d": 2, "x": 4}
    used = "".join(ways.get(f, "") for f in order)
    axes = used + "".join(a for a in "dx" if a not in used)
    grid = np.arange(8).reshape(2, 4).transpose(["dx".index(a) for a in axes])
    tiles = [sizes[ways[f]] if f in ways else 1 for f in order]
    wanted = HloSharding.partial_tile(grid.reshape((*tiles, -1))).meaning
    return next(one for one in (found.splits.chosen, *found.splits.others) if one.space.meaning == wanted)


def test_the_split_that_is_taken_is_that_of_the_program() -> None:
    """Rows over d and columns over x: three quarters of 128 rows of x, and of the result 32 rows from three others."""
    local, found = product(256, 4096, 4096, ROWS, P(None, "x"), ROWS)
    assert found.splits is not None
    chosen = found.splits.chosen
    assert chosen is split(found, m="d", n="x")
    assert chosen.comm_bytes == local.comm_bytes_per_device == 4 * (128 - 32) * 4096 + 4 * 32 * (4096 - 1024)
    assert (chosen.work, chosen.excluded) == (1 / 8, "")
    assert chosen.memory_bytes == 4 * (128 * 4096 + 4096 * 1024 + 128 * 1024)


def test_less_memory_would_cost_more_bytes() -> None:
    _, found = product(256, 4096, 4096, ROWS, P(None, "x"), ROWS)
    assert found.splits is not None
    lean = split(found, n="x", k="d")
    assert lean.memory_bytes == 4 * (256 * 2048 + 2048 * 1024 + 256 * 1024) < found.splits.chosen.memory_bytes
    assert lean.comm_bytes > found.splits.chosen.comm_bytes
    assert lean.excluded == "dearer by the objective 'bytes'"


def test_repeated_work_would_save_bytes() -> None:
    """A result that all devices want whole: to gather the narrow x is cheaper than to gather what is made of it."""
    local, found = whole_product()
    assert found.splits is not None
    whole = next(one for one in found.splits.others if one.space.is_replicated())
    assert found.splits.chosen.comm_bytes == local.comm_bytes_per_device == 4 * 1024 * 1024 * 7 / 8
    assert (whole.comm_bytes, whole.work) == (4 * 1024 * 16 * 7 / 8, 1.0)
    assert whole.excluded.startswith("repeats work: 1 of the op on a device, where 0.131")


def test_what_moves_nothing_is_taken_at_once() -> None:
    _, found = product(256, 256, 256, P(), P(None, "x"), P())
    assert found.splits is not None
    assert all(one.excluded for one in found.splits.others)


def test_every_figure_is_shown() -> None:
    _, found = whole_product()
    text = str(found)
    assert "is split m0 n0 k0 as {devices=[8,1,1]<=[8]}: 3,670,016 bytes received" in text
    assert "else m0 n0 k0 as {replicated}: 57,344 bytes received" in text
    assert "not taken: repeats work" in text
    record = to_record(found)
    assert record["schema"] == "hlosharding.split/1"
    assert record["splits"][0]["excluded"] == ""
    assert {"comm_bytes", "time_s", "work", "memory_bytes", "split", "factors"} < set(record["splits"][0])
    assert "repeats work" in to_text(split_view(found))


def test_what_is_no_op_of_dims_has_no_splits() -> None:
    local, _ = product(256, 256, 256, ROWS, P(), ROWS)
    found = local.explain("x.1")
    assert found.splits is None
    assert "is not split by its dims" in str(found)
    with pytest.raises(ModuleError, match="nobody"):
        local.explain("nobody")


def test_a_program_that_xla_compiled_was_not_chosen_here() -> None:
    text = """HloModule m, is_scheduled=true, num_partitions=2
        ENTRY e { x = f32[4] parameter(0)  ROOT y = f32[4] negate(x) }"""
    with pytest.raises(PartitionError, match="nothing was chosen"):
        hs.partition(hs.load(text)).explain("y")
