"""Collectives are joined as XLA's combiner joins them: by its rules, and as its GPU compiler leaves them."""

from __future__ import annotations

import sys
from collections import Counter
from random import Random
from types import FrameType
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.cost import collective_time, cost, machines, simulate
from hlosharding.cost.combining import find_combined
from hlosharding.ir import Instruction, Module

H100 = machines.h100(8)
ALL = (tuple(range(8)),)
KIB = 1024


def module(*lines: str, root: str) -> Module:
    """Collectives of arrays of 4 KiB; `GROUPS`: of all devices."""
    text = "\n".join(lines)
    for word, groups in {"GROUPS": "[1,8]", "HALVES": "[2,4]"}.items():
        text = text.replace(word, f"replica_groups={groups}<=[8], use_global_device_ids=true, channel_id=1")
    return hs.load(f"""HloModule m, num_partitions=8
        sum {{ v = f32[] parameter(0)  w = f32[] parameter(1)  ROOT vw = f32[] add(v, w) }}
        most {{ v = f32[] parameter(0)  w = f32[] parameter(1)  ROOT vw = f32[] maximum(v, w) }}
        half {{ v = bf16[] parameter(0)  w = bf16[] parameter(1)  ROOT vw = bf16[] add(v, w) }}
        ENTRY e {{
          x = f32[1024] parameter(0)
          y = f32[1024] parameter(1)
          h = bf16[1024] parameter(2)
          {text}
          ROOT out = {root}
        }}""")


def joined(found: Module) -> list[list[str]]:
    """Names of those that run as one."""
    return sorted([one.name for one in group] for group in cost(found, H100).combined)


TWO_SUMS = module(
    "a = f32[1024] all-reduce(x), GROUPS, to_apply=sum",
    "b = f32[1024] all-reduce(y), GROUPS, to_apply=sum",
    root="(f32[1024], f32[1024]) tuple(a, b)",
)


def test_two_sums_cost_what_one_of_both_sizes_costs() -> None:
    found, apart = cost(TWO_SUMS, H100), cost(TWO_SUMS, H100, combine=False)
    assert found.comm_s == pytest.approx(collective_time("all-reduce", 8 * KIB, 8, ALL, H100))
    assert apart.comm_s == pytest.approx(2 * collective_time("all-reduce", 4 * KIB, 8, ALL, H100))
    assert found.comm_bytes == apart.comm_bytes == 2 * 2 * 4 * KIB * 7 / 8
    assert (len(found.collectives), found.num_combined) == (2, 1)
    assert (apart.combined, apart.num_combined) == ((), 2)
    assert found.by_opcode["all-reduce"].time_s == pytest.approx(found.comm_s)


def test_shares_of_the_time_go_by_bytes() -> None:
    found = module(
        "a = f32[1024] all-reduce(x), GROUPS, to_apply=sum",
        "p = f32[512] slice(y), slice={[0:512]}",
        "b = f32[512] all-reduce(p), GROUPS, to_apply=sum",
        root="(f32[1024], f32[512]) tuple(a, b)",
    )
    seconds = {row.instruction.name: row.time_s for row in cost(found, H100).rows}
    assert seconds["a"] == pytest.approx(2 * seconds["b"])


def test_a_sum_does_not_join_one_that_it_waits_for() -> None:
    found = module(
        "a = f32[1024] all-reduce(x), GROUPS, to_apply=sum",
        "t = f32[1024] tanh(a)",
        "b = f32[1024] all-reduce(t), GROUPS, to_apply=sum",
        root="f32[1024] add(a, b)",
    )
    assert joined(found) == []


def test_what_waits_for_one_of_a_group_waits_for_all_of_it() -> None:
    """The gathers are joined first; then `early` comes before both, and `late`, which reads one, waits for `early`."""
    found = module(
        "early = f32[1024] all-reduce(y), GROUPS, to_apply=sum",
        "g = f32[8192] all-gather(x), GROUPS, dimensions={0}",
        "k = f32[8192] all-gather(early), GROUPS, dimensions={0}",
        "p = f32[1024] slice(g), slice={[0:1024]}",
        "late = f32[1024] all-reduce(p), GROUPS, to_apply=sum",
        root="(f32[8192], f32[1024]) tuple(k, late)",
    )
    assert joined(found) == [["g", "k"]]


@pytest.mark.parametrize(
    "other",
    [
        "b = f32[1024] all-reduce(y), GROUPS, to_apply=most",
        "b = bf16[1024] all-reduce(h), GROUPS, to_apply=half",
        "b = f32[1024] all-reduce(y), HALVES, to_apply=sum",
    ],
    ids=["another reduction", "another type", "another group"],
)
def test_sums_of_another_kind_stay_apart(other: str) -> None:
    first = "a = f32[1024] all-reduce(x), GROUPS, to_apply=sum"
    shape = other.split(" = ")[1].split(" ")[0]
    assert joined(module(first, other, root=f"(f32[1024], {shape}) tuple(a, b)")) == []


def test_gathers_of_any_type_and_dim_are_joined() -> None:
    found = module(
        "a = f32[8192] all-gather(x), GROUPS, dimensions={0}",
        "r = bf16[4,256] reshape(h)",
        "b = bf16[4,2048] all-gather(r), GROUPS, dimensions={1}",
        root="(f32[8192], bf16[4,2048]) tuple(a, b)",
    )
    assert joined(found) == [["a", "b"]]


def test_more_than_thirty_megabytes_make_another_group() -> None:
    """Eight megabytes each: three fit; what is larger than thirty joins nobody, and keeps nobody apart."""
    sizes = [2 << 20, 8 << 20, 2 << 20, 2 << 20, 2 << 20]
    lines = [f"big{n} = f32[{size}] broadcast(c), dimensions={{}}" for n, size in enumerate(sizes)]
    lines += [f"sum{n} = f32[{size}] all-reduce(big{n}), GROUPS, to_apply=sum" for n, size in enumerate(sizes)]
    shapes, names = ", ".join(f"f32[{size}]" for size in sizes), ", ".join(f"sum{n}" for n in range(5))
    found = module("c = f32[] constant(1)", *lines, root=f"({shapes}) tuple({names})")
    assert joined(found) == [["sum0", "sum2", "sum3"]]


def random_collectives(seed: int) -> Module:
    """Each reads one value or two that were made before it, by one of three: gathers, sums and maxima."""
    random = Random(seed)
    lines, values = list[str](), ["x", "y"]
    for n in range(random.randrange(4, 24)):
        left, right = random.choice(values), random.choice(values[-random.randrange(1, 6) :])
        kind = random.choice(["all-gather", "sum", "most"])
        lines.append(f"in{n} = f32[1024] add({left}, {right})")
        if kind == "all-gather":
            lines.append(f"c{n} = f32[8192] all-gather(in{n}), GROUPS, dimensions={{0}}")
            lines.append(f"out{n} = f32[1024] slice(c{n}), slice={{[0:1024]}}")
        else:
            lines.append(f"c{n} = f32[1024] all-reduce(in{n}), GROUPS, to_apply={kind}")
            lines.append(f"out{n} = f32[1024] copy(c{n})")
        values.append(f"out{n}")
    return module(*lines, root="f32[1024] add(x, y)")


def waited_for(op: Instruction, together: dict[Instruction, list[Instruction]]) -> set[Instruction]:
    """All that must be done before an op begins: before one of a group, what any of the group waits for."""
    found, left = set[Instruction](), list(op.operands)
    while left:
        one = left.pop()
        if one not in found:
            members = together.get(one, [one])
            found.update(members)
            left += [operand for member in members for operand in member.operands]
    return found


@pytest.mark.parametrize("seed", range(25))
def test_those_are_joined_that_come_next_and_do_not_wait_for_each_other(seed: int) -> None:
    """XLA's law, by a search through the program at each question."""
    found = random_collectives(seed)
    together, kinds = dict[Instruction, list[Instruction]](), ("all-gather", "all-reduce")
    for kind in kinds:
        left = found.of_opcodes(kind)
        while left:
            group = left[:1]
            for op in (op for op in left[1:] if op.called == left[0].called):
                before = waited_for(op, together)
                if any(one in before or op in waited_for(one, together) for one in group):
                    break
                group.append(op)
            together |= dict.fromkeys(group, group)
            left = [op for op in left if op not in group]
    wanted = {tuple(op.name for op in group) for group in together.values() if len(group) > 1}
    assert joined(found) == sorted(map(list, wanted))


def test_twice_as_many_take_twice_the_steps() -> None:
    """Pairs of sums, each of which waits for the pair before it."""
    assert steps(400) < 2.1 * steps(200)


def steps(pairs: int) -> int:
    """Lines that Python runs while it forms groups."""
    lines = ["v0 = f32[1024] copy(x)"]
    for n in range(pairs):
        lines += [f"{side}{n} = f32[1024] all-reduce(v{n}), GROUPS, to_apply=sum" for side in "ab"]
        lines.append(f"v{n + 1} = f32[1024] add(a{n}, b{n})")
    found = module(*lines, root=f"f32[1024] copy(v{pairs})")
    sums = {found.by_name(one.name): one for one in hs.collectives(found)}
    count, before = 0, sys.gettrace()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace if frame.f_code.co_filename == find_combined.__code__.co_filename else None

    sys.settrace(trace)
    try:
        assert len(find_combined(found.entry, sums)) == pairs
    finally:
        sys.settrace(before)
    return count


def test_a_program_that_xla_has_compiled_stands_as_it_is() -> None:
    text = TWO_SUMS.to_hlo_text().replace("HloModule m,", "HloModule m, is_scheduled=true,")
    found = cost(hs.load(text), H100)
    assert found.num_combined == len(found.collectives) == 2


def test_joined_sums_begin_when_the_operands_of_all_are_there() -> None:
    found = module(
        "a = f32[1024] all-reduce(x), GROUPS, to_apply=sum",
        "t = f32[1024] tanh(y)",
        "b = f32[1024] all-reduce(t), GROUPS, to_apply=sum",
        "u = f32[1024] exponential(a)",
        root="(f32[1024], f32[1024]) tuple(b, u)",
    )
    run = simulate(found, H100)
    start = {op.name: (event.start, event.end) for event in run.timeline for op in event.instructions}
    assert start["a"] == start["b"]
    assert start["a"][0] == start["t"][1]
    assert start["u"][0] == start["a"][1]
    [sums] = [event for event in run.timeline if event.stream == "communication"]
    assert sums.nbytes == cost(found, H100).comm_bytes
    assert simulate(found, H100, combine=False).timeline[0].end < start["a"][1]


def loss(weights: tuple[jax.Array, ...], x: jax.Array) -> jax.Array:
    for w in weights:
        x = jnp.tanh(x @ w)
    return (x * x).sum()


@pytest.mark.gpu_compiler
@pytest.mark.parametrize("specs", [(P("data"), P()), (P("data"), P("model")), (P(), P("model"))], ids=str)
def test_as_many_are_left_as_xla_leaves(specs: tuple[P, P]) -> None:
    mesh = hs.topology("h100", 8).mesh((2, 4), ("data", "model"))
    arguments = tuple(jax.ShapeDtypeStruct((512, 512), jnp.float32) for _ in range(4)), jnp.ones((256, 512))
    of_weights = (specs[1],) * 4
    step = hs.jit(
        jax.value_and_grad(loss), mesh=mesh, in_shardings=(of_weights, specs[0]), out_shardings=(P(), of_weights)
    )
    stage = step.lower(*arguments)
    planned = stage.partitioned.cost
    assert planned.combined
    left = Counter(c.kind for c in planned.collectives)
    left.subtract(kind for group in planned.combined for kind in [group[0].kind] * (len(group) - 1))
    assert left == Counter(c.kind for c in hs.collectives(hs.load(stage.compile().as_text(), format="hlo")))
