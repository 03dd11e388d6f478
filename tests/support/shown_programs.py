"""Hand-written per-device programs whose figures one can work out, and how a table reads as text."""

from __future__ import annotations

import hlosharding as hs
from hlosharding.frontends import annotate
from hlosharding.ir import Module
from hlosharding.report import View, to_text
from hlosharding.sharding import MeshInfo

MESH = MeshInfo(("data", "model"), (2, 4))

LOCAL = """HloModule local, num_partitions=8

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}

ENTRY main {
  x = f32[100] parameter(0)
  first = f32[100] all-reduce(x), channel_id=1, replica_groups={{0,1,2,3},{4,5,6,7}},
    use_global_device_ids=true, to_apply=add,
    frontend_attributes={hlosharding.cause="add of partial results for %h.1 (dot)"},
    metadata={source_file="m.py" source_line=3}
  second = f32[100] all-reduce(first), channel_id=2, replica_groups={{0,1,2,3},{4,5,6,7}},
    use_global_device_ids=true, to_apply=add,
    frontend_attributes={hlosharding.cause="add of partial results for %h.2 (dot)"},
    metadata={source_file="m.py" source_line=3}
  moved = f32[100] collective-permute(second), channel_id=3, source_target_pairs={{0,1},{1,0}}
  ROOT all = f32[800] all-gather(moved), channel_id=4, replica_groups={{0,1,2,3,4,5,6,7}},
    use_global_device_ids=true, dimensions={0}
}
"""

GLOBAL = """HloModule global, num_partitions=8

ENTRY main {
  x = f32[64,128] parameter(0), sharding={devices=[2,1,4]<=[8] last_tile_dim_replicate},
    metadata={op_name="params['block'][0]['w']"}
  y = f32[64,128] parameter(1), sharding={devices=[2,1,4]<=[8] last_tile_dim_replicate},
    metadata={op_name="params['block'][1]['w']"}
  m = f32[64,128] parameter(2), sharding={devices=[2,1,4]<=[8] last_tile_dim_replicate},
    metadata={op_name="state.mu['block'][0]['w']"}
  w = f32[128,16] parameter(3), sharding={devices=[1,8]<=[8]}, metadata={op_name="[/w]"}
  total = f32[64,128] add(x, y)
  shifted = f32[64,128] add(total, m)
  ROOT out = f32[64,16] dot(shifted, w),
    lhs_contracting_dims={1}, rhs_contracting_dims={0},
    metadata={source_file="m.py" source_line=7}
}
"""


def local_module(*, mesh: bool = False) -> Module:
    module = hs.load(LOCAL)
    return annotate(module, {}, mesh=MESH) if mesh else module


def propagated(*, mesh: bool = False) -> hs.Propagation:
    return hs.propagate(annotate(hs.load(GLOBAL), {}, mesh=MESH if mesh else None))


def partitioned() -> hs.Partitioned:
    return hs.partition(propagated(mesh=True), num_partitions=8, machine=hs.machines.h100(8))


def text_of(view: View) -> str:
    return to_text(view)


def rows_of(view: View) -> list[list[str]]:
    """The cells of each row of its tables, heads first."""
    lines = [line for line in text_of(view).splitlines() if line.startswith(("┃", "│"))]
    return [[cell.strip() for cell in line.replace("┃", "│").strip("│").split("│")] for line in lines]
