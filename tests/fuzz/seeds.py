"""What is valid in each format: where inputs begin."""

from __future__ import annotations

import io
import tempfile
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import hlosharding as hs
from hlosharding.compiler.kept_executable import KeptExecutable
from hlosharding.compiler.program_cache import ProgramCache
from hlosharding.cost import machine_text
from hlosharding.plans import Golden, PlanFile
from hlosharding.search.plans import Plan, SizedPlan
from hlosharding.search.price_file import KnownPrices
from hlosharding.xla_bridge import StoredExecutable, hlo_proto_to_stablehlo

PROGRAM = """HloModule m, num_partitions=8
ENTRY e {
  x = f32[64,64] parameter(0), sharding={devices=[8,1]<=[8]}, metadata={op_name="params['x']"}
  ROOT y = f32[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={replicated}
}
"""


@cache
def source() -> hs.Module:
    """The program before it is partitioned."""
    return hs.propagate(hs.load(PROGRAM)).module


@cache
def partitioned() -> Any:
    """The same as each device runs it."""
    return hs.partition(source(), machine=hs.machines.h100(8))


@cache
def signature() -> Any:
    """What a traced function of that program would say of its boundary."""
    program = partitioned().program.written
    inputs, outputs = (
        tuple(SimpleNamespace(shape=array.shape.dims, dtype=array.shape.dtype) for array in side)
        for side in (program.inputs, program.outputs)
    )
    devices = tuple(SimpleNamespace(id=number) for number in range(8))
    return SimpleNamespace(devices=devices, in_avals=inputs, out_avals=outputs)


_LOOP = """HloModule loop, num_partitions=2
going {
  p = (s32[], f32[4,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT less = pred[] compare(i, n), direction=LT
}
body {
  p = (s32[], f32[4,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[4,8] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[4,8] multiply(x, x), metadata={op_name="jit(f)/mul" source_file="f.py" source_line=3}
  ROOT r = (s32[], f32[4,8]) tuple(next, y)
}
ENTRY e {
  x = f32[4,8] parameter(0), sharding={devices=[2,1]<=[2]}
  zero = s32[] constant(0)
  t = (s32[], f32[4,8]) tuple(zero, x)
  w = (s32[], f32[4,8]) while(t), condition=going, body=body
  ROOT y = f32[4,8] get-tuple-element(w), index=1
}
"""


@cache
def protos() -> tuple[bytes, ...]:
    """The HLO modules on the wire."""
    return tuple(hs.load(text.decode()).to_hlo_proto() for text in HLO_MODULES)


@cache
def stablehlo() -> tuple[bytes, ...]:
    """And in StableHLO."""
    return tuple(hlo_proto_to_stablehlo(proto).encode() for proto in protos())


def _all(*texts: str) -> tuple[bytes, ...]:
    return tuple(text.encode() for text in texts)


def _lines(text: str) -> tuple[bytes, ...]:
    """Each line is one."""
    return _all(*text.strip("\n").split("\n"))


SHARDINGS = _lines("""
{replicated}
{maximal device=3}
{manual}
{unreduced}
{unknown}
{devices=[2,2]0,1,2,3}
{devices=[4,2]<=[2,4]T(1,0)}
{devices=[2,1,4]<=[8] last_tile_dim_replicate}
{devices=[2,2,2]<=[8] last_tile_dims={manual, replicated}}
{{replicated}, {devices=[2]<=[2]}}
{}
{mesh['a'=2,'b'=4], [{'a'}, {'b':(1)2, ?}]}
{mesh['a'=2,'b'=4], [{}, {'a'}], unreduced={'b'}}
{mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)), [{'a','b'}]}
{mesh['a'=2], device_ids=(1,0), manual}
{maximal_mesh[device_id=3]}
{replicated shard_as 1 metadata={op_name="a" source_line=3}}
{devices=[8]<=[8] metadata={{op_name='a'} {source_file='b'}}}
""")
SHARDING_WORDS = _lines("""
devices=
<=
last_tile_dim_replicate
last_tile_dims={manual}
metadata=
shard_like 2
maximal
mesh['a'=2]
device_ids=(
replicated={'a'}
T(1,0)
{'a':(2)2}
unreduced
""")
CONVERSIONS = _lines("""
<@m, [{"x"}, {"y", ?}]> -> hlo
#sdy.sharding<@m, [{"x":(1)2}p1, {}], replicated={"y"}> -> v2
sdy.mesh @m = <["x"=2, "y"=4]> -> sdy
<mesh<["a"=2], device_ids=[1, 0]>, [{"a"}]> -> hlo
[[x], []] -> v3
[[0], [1]] -> dtensor
@m split_axes = [[0], []] partial = sum [1] -> sdy
sharding_specs: x,unsharded mesh: |x=2,y=4| -> hlo
P('x', ('y',), None) -> sdy
P(x, unreduced={y}) -> hlo
{devices=[2,4]<=[8]} -> sdy
{devices=[2,1,4]<=[8] last_tile_dim_replicate} -> shard
(Shard(0), Replicate()) -> hlo
""")
MESHES = _lines("""
x=2,y=4
2x4
2x?x4
data=2, model=?
sdy.mesh @m = <["x"=2, "y"=4]>
<["x"=4], device_ids=[3, 2, 1, 0]>
mesh.cluster @m(rank = 2, dim_sizes = [2, 4], axis_names = [x, y])
shard.grid @g(shape = 2x4)
<[], device_ids=[3]>
""")
SPECS = _lines("""
P('data', None, (x, y))
PartitionSpec()
P(None, unreduced={'x'})
('a', None)
P(P.UNCONSTRAINED)
""")
SHAPES = _lines("""
f32[8,4]
(f32[], (s32[2], pred[]))
bf16[<=8,?]
token[]
f32[2,3]{1,0}
u4[0]
()
""")
SDY_MESHES = _lines("""
{mesh = #sdy.mesh<["a"=2, "b"=4]>, other = #sdy.mesh<[], device_ids=[3]>}
""")
OPEN_DIMS = _lines("""
unspecified_dims=[0,2]
unspecified_dims=[0], unspecified_dims=[ 1 , -2 ]
""")
RULES = _lines("""
m k, k n -> m n
... i (j k), _ -> ...2 i
a, a -> a
""")
SHARDY_RULES = _lines("""
#sdy.op_sharding_rule<([i, jk])->([i, l_1]) {i=4, j=6, k=6, l_1=6} reduction={j} permutation={k}, custom>
""")
HLO = _all(
    PROGRAM,
    "  ROOT x = f32[4] parameter(0), sharding={{replicated}, /*i=1*/ {devices=[2]<=[2]}},"
    ' metadata={op_name="sharding={"}\n',
)
HLO_MODULES = _all(PROGRAM, _LOOP)
SCHEDULES = _all(
    """func @main(%x: f32[8] on {0}, %w: f32[8] on {1-2} as {devices=[2]<=[2]}) {
  %a, %b = split(%x) dim=0 parts=2 axis=micro  // two microbatches
  %y = concat(%a, %b) dim=0 : f32[8] on {0}
  free %a
  return %y, %w
}
""",
    """func @main(%x: f32[8,2] on {0-1}, %z: f32[8,2] on {2,3} as {devices=[2,1]<=[2]}) {
  %y = call @f(%x)
  %t = send(%y) to={2-3} sharding={devices=[2,1]<=[2]}
  %s = add(%t, %z) : f32[8,2] on {2,3} as {devices=[2,1]<=[2]}
  return %s
}
func @f(%x: f32[8,2] on {0-1}) {
  return %x
}
""",
    """func @main(%x: f32[4] on {0}, %y: f32[4] on {1}) {
  %n = number() piece=1 parts=2 axis=micro to={0}
  %a, %b = all-reduce(%x, %y)
  %c = reduce(%a, %b) to={0}
  %d, %e = reduce-scatter(%x, %y) dim=0
  %f, %g = all-gather(%d, %e) dim=0
  return %c, %f
}
""",
    """program @p(f32[8] as {replicated}) -> (f32[8] as {replicated}) sums={0} donates={0} devices=1 <<<
HloModule m
ENTRY e {
  ROOT x = f32[8] parameter(0)
}
>>>
func @main(%x: f32[8] on {0}) {
  %y = @p(%x)
  return %y
}
""",
    "func @main(%x: f32[4] on {0}, sum 0,1/4 of micro) {\n  return %x\n}\n",
    """func @main() {
  %a = constant() value={1,-2} shape=s32[2] to={0}
  %b = constant() value=1.5e-3 shape=f32[] to={0-1}
  %c = concat(%a, %a) dim=0
  return %b, %c
}
""",
)
SCHEDULE_WORDS = _lines("""
 on {0-3}
, piece 1/2 of micro
, sum 0/2 of micro
call @f
call @main
free %x
return
>>>
<<<
%x
dim=0
parts=4
axis=b
to={1}
 as {replicated}
split
concat
constant
value={1,2}
shape=s32[2]
add
reduce-scatter
all-gather
""")
PLANS = _all(
    PlanFile.parse(
        'machine = "h100:8"\nobjective = "bytes"\ncomment = "a.b"\ndevice_ids = [1, 0, 2, 3]\n'
        "[mesh]\ndata = 2\nmodel = 2\n"
        '[annotations]\n"params[*]" = "P(data)"\nx = "{devices=[2,2]<=[4]}"\n'
        '[pipeline]\nstages = 2\nmicrobatches = 4\nschedule = "1f1b"\norder = "PDT"\n'
    ).to_text(),
    'strategy = "fsdp"\nsequence = true\nbatch = ["x"]\ndonate = ["params", "moments[0]"]\n[mesh]\ndata = 2\n',
    "version = 1\n[mesh]\na = 8\n[annotations]\n'*' = \"P(('a',))\"\n",
)
JSON_PLANS = tuple(PlanFile.parse(text.decode()).to_text("json").encode() for text in PLANS)
PLAN_TEXTS = _all(
    "8/2/2/16 zb-h1 PTD fsdp replicas=2 context=2 experts=2 sequence",
    "1/1/8/128 breadth-first-x2",
    " 4/2/1/1  context=4 own.strategy TD",
)
PLAN_WORDS = _lines("""
8/2/2/16
1f1b
gpipe
forward
PDT
megatron
sequence
replicas=2
context=1
=
/
""")
TOML_WORDS = _lines("""
[a]
[[parts]]
a.b.c =
'''
\"\"\"
0x7f
1e400
-inf
nan
1979-05-27T07:32:00Z
{ a = 1 }
\\ud800
objective
mesh
annotations
pipeline
like
[between]
peak_flops
num_devices
torus
#
""")
GOLDENS = (Golden.of(partitioned()).to_text().encode(),)
MACHINES = (
    *_all(
        'like = "h100"\nnum_devices = 16\n[between]\nbandwidth = 12.5e9\nlatency = 5e-6\n',
        'like = "tpu_v5p"\nnum_devices = 8\ntorus = [2, 2, 2]\n',
        '[[parts]]\nlike = "h100"\nnum_devices = 8\n[[parts]]\nlike = "a100"\nnum_devices = 16\nmemory_bytes = 40e9\n',
    ),
    machine_text(hs.machines.h100(8), measured_on={"device_kind": "NVIDIA H100"}).encode(),
    machine_text(hs.machines.tpu_v5p(8)).encode(),
)
FACTS = {"machine": "m"}


def _prices() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.jsonl"
        KnownPrices(path, FACTS).keep(SizedPlan(Plan(2), 8), "the batch is not cut")
        return path.read_bytes()


PRICES = (_prices(),)


def _saved(*, is_archive: bool) -> bytes:
    data = io.BytesIO()
    if is_archive:
        np.savez(data, x=np.ones(4, np.float32), y=np.arange(6).reshape(2, 3))
    else:
        np.save(data, np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)))
    return data.getvalue()


ARCHIVES, ARRAYS = (_saved(is_archive=True),), (_saved(is_archive=False),)


def signed(body: bytes) -> bytes:
    """An entry of the warm start's cache with a right checksum."""
    return b"hlosharding program 2\n" + sha256(body).digest() + body


def _entry() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        executable = KeptExecutable(StoredExecutable(f"jit_f-{'0' * 64}", (0,)), partitioned().program.written)
        ProgramCache(Path(folder)).write("k", partitioned().local, 0.0, lambda: executable)
        data = (Path(folder) / "k").read_bytes()
    return data[len(signed(b"")) :]


CACHE_ENTRIES = (_entry(),)
ANNOTATIONS = _lines("""
x=>{devices=[8,1]<=[8]}
params['x']=>P('x', None)
*=>{replicated}
par?ms[*]=>P(('x', 'y'))
y=>P(x)
""")
ARGUMENTS = _all(
    "propagate\nx.hlo\n--mesh\ndata=2,model=4\n--annotate\nx=P(data, None)\n--annotate\ny={devices=[8]<=[8]}",
    "run\nx.hlo\n-n\n8\n--random\n3\n--tolerance\n1e-3\n--input\nx=f32[8,16]\n--trips\nwhile.7=100",
    "search\nx.hlo\n--machine\nh100:16\n--microbatches\n2,4,8\n--batch\nx",
    "rank\nx.hlo\n--plans\n8/1/1/1,2/2/2/4\n--seed\n1",
    "reshard\n--shape\nf32[8,4]\n{replicated}\n{devices=[2,1]<=[2]}\n--memory-limit\n100000",
)
