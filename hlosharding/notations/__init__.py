"""Shardings as others write them: PyTorch's DTensor, MLIR's `shard` dialect, and the RFC's lists of axes."""

from hlosharding.notations import dtensor, mesh_lists, shard_dialect
from hlosharding.notations.axis_sharding import PARTIAL_KINDS, AxisSharding
from hlosharding.sharding import Format

__all__ = ["FORMATS", "AxisSharding"]

_PARTS_IN_ORDER = frozenset({"partial values", "parts of axes", "device order"})

_ROWS = (
    Format(
        "shard", "shard.sharding @grid0 split_axes = [[0]]", shard_dialect.is_shard, shard_dialect.read,
        shard_dialect.write, frozenset(), names_axes=True,
    ),
    Format(
        "mesh", "[[x]]", mesh_lists.is_lists, mesh_lists.read, mesh_lists.write, frozenset({"partial values"}),
        names_axes=True, reductions=PARTIAL_KINDS,
    ),
    Format(
        "dtensor", "(Shard(dim=0),)", dtensor.is_placements, dtensor.read, dtensor.write, _PARTS_IN_ORDER,
        names_axes=True, reductions=dtensor.REDUCTIONS,
    ),
)  # fmt: skip
FORMATS = {form.name: form for form in _ROWS}
"""Rows of the table of formats."""
