"""Whole programs that are compared: which one is taken."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.compiler.alternatives import Alternative, best_of
from hlosharding.cost import step_seconds
from hlosharding.partitioner import (
    Cost,
    Decisions,
    PartitionOptions,
    Prices,
    ProgramShardings,
    in_plain_forms,
    other_tables,
    partition_module,
    propagated_table,
)
from hlosharding.reshard import Figures
from tests.unit.partitioner.overrides.test_batch_parallel import two_layers


@dataclass
class Priced:
    """What `best_of` reads of an alternative."""

    seconds: float = 1.0
    bytes: float = 100.0
    collectives: int = 3
    flops: float = 1.0
    peak: float = 1.0
    objective: str = "time"
    most_bytes: float = 100.0

    _larger: tuple[()] = ()

    @property
    def own_seconds(self) -> float:
        return self.seconds

    def own_weight(self, objective: str) -> float:
        return Alternative.own_weight(self, objective)  # pyright: ignore[reportArgumentType]

    @property
    def comm_bytes(self) -> float:
        return self.bytes

    @property
    def peak_bytes(self) -> float:
        return self.peak

    @property
    def figures(self) -> Figures:
        return Figures(self.seconds, self.bytes, self.collectives, self.peak)

    def may_be_better(self, other: Priced) -> bool:
        return Alternative.may_be_better(self, other)  # pyright: ignore[reportArgumentType]

    @property
    def decisions(self) -> SimpleNamespace:
        return SimpleNamespace(prices=SimpleNamespace(objective=self.objective))

    def fits_beside(self, own: list[Priced]) -> bool:
        return Alternative.fits_beside(self, own)  # pyright: ignore[reportArgumentType]

    @property
    def is_held(self) -> bool:
        return Alternative.is_held.fget(self)  # pyright: ignore[reportOptionalCall, reportArgumentType]

    def _holds_at_most(self, nbytes: float) -> bool:
        return Alternative._holds_at_most(self, nbytes)  # pyright: ignore[reportArgumentType, reportPrivateUsage]

    @property
    def machine(self) -> SimpleNamespace:
        return SimpleNamespace(memory_bytes=10.0)

    @property
    def cost(self) -> SimpleNamespace:
        memory = SimpleNamespace(is_at_most=lambda nbytes: self.peak <= nbytes)
        return SimpleNamespace(flops=self.flops, peak_memory_bytes=self.peak, comm_bytes=self.bytes, memory=memory)


@pytest.mark.parametrize(
    ("new", "wins"),
    [
        (Priced(), False),
        (Priced(seconds=0.98, bytes=900), True),
        (Priced(seconds=0.995, bytes=101), False),  # as fast, by the margin, and no fewer bytes
        (Priced(seconds=1.005, bytes=99), True),
        (Priced(seconds=1.02, bytes=1), False),
        (Priced(seconds=1.005, collectives=2), True),
        (Priced(seconds=1.005, peak=0.9), True),
        (Priced(seconds=0.5, flops=1.06), True),  # the time of its work is counted
        (Priced(seconds=0.5, peak=1.11), False),
    ],
    ids=str,
)
def test_the_fastest_is_taken_unless_it_holds_more(new: Priced, wins: bool) -> None:
    first = Priced()
    assert (best_of([first, new]) is new) is wins  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("flops", "wins"), [(1.04, True), (1.06, False)])
def test_bytes_are_not_bought_with_work(flops: float, wins: bool) -> None:
    first, new = Priced(objective="bytes"), Priced(objective="bytes", bytes=50, flops=flops)
    assert (best_of([first, new]) is new) is wins  # pyright: ignore[reportArgumentType]


def test_of_those_that_take_too_much_memory_the_next_is_taken_and_where_all_do_the_leanest() -> None:
    found = [Priced(peak=9.5), Priced(seconds=0.5, peak=10.3), Priced(seconds=0.7, peak=9.9)]
    assert best_of(found) is found[2]  # pyright: ignore[reportArgumentType]
    found = [Priced(peak=12), Priced(seconds=0.5, peak=13), Priced(seconds=0.7, peak=11)]
    assert best_of(found) is found[2]  # pyright: ignore[reportArgumentType]


def test_what_is_propagated_may_hold_what_it_holds_and_so_may_others() -> None:
    found = [Priced(), Priced(seconds=0.9, peak=2), Priced(seconds=0.8, peak=2.1), Priced(seconds=0.7, peak=2.3)]
    assert best_of(found[:2]) is found[0]  # pyright: ignore[reportArgumentType]
    assert best_of(found[:2], 2) is found[1]  # pyright: ignore[reportArgumentType]
    assert best_of(found, 2) is found[2]  # pyright: ignore[reportArgumentType]


def test_where_bytes_are_asked_for_the_fewest_are_taken() -> None:
    first, other = Priced(objective="bytes"), Priced(seconds=2, bytes=99)
    assert best_of([first, other]) is other  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("objective", ["bytes", "time"])
@pytest.mark.parametrize(("batch", "width"), [(512, 16), (1024, 16), (512, 24)])
def test_of_all_tables_that_of_the_best_program_is_taken(batch: int, width: int, objective: str) -> None:
    text = f"HloModule m, num_partitions=8\nENTRY e {{{two_layers(batch, width)}\n}}"
    propagated, machine = hs.propagate(hs.load(text)), hs.machines.h100(8)
    module = in_plain_forms(propagated.module)
    prices = Prices(machine, objective)
    own = propagated_table(module, frozenset(), 8, prices)
    first = partition_module(module, own, Decisions(prices), num_partitions=8)
    priced = first.cost(machine)
    cost = Cost(priced.comm_bytes, step_seconds(first.module, priced))
    program = ProgramShardings(module, own.shardings, frozenset(), 8, prices, cost)
    [table] = other_tables(program, own)
    built = [first, partition_module(module, table, Decisions(prices), num_partitions=8)]
    found = hs.partition(propagated, machine=machine, options=PartitionOptions(objective=objective))
    if objective == "bytes":
        assert found.comm_bytes_per_device <= min(hs.cost(one.module, machine).comm_bytes for one in built)
    else:
        least = min(hs.simulate(one.module, machine).time_s for one in built)
        assert hs.simulate(found.module, machine).time_s <= 1.01 * least


GATHERED = """HloModule m, num_partitions=4
ENTRY e {
  x = f32[4096,1024] parameter(0), sharding={devices=[4,1]<=[4]}
  y = f32[4096,1024] parameter(1), sharding={devices=[4,1]<=[4]}
  sum = f32[4096,1024] add(x, y), sharding={devices=[4,1]<=[4]}
  w = f32[1024,4096] parameter(2), sharding={devices=[1,4]<=[4]}
  ROOT out = f32[4096,4096] dot(sum, w), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    sharding={devices=[1,4]<=[4]}
}"""


def loops(overlap: str) -> int:
    """How many loops the program has, its product as a loop of permutes or not."""
    options = PartitionOptions(objective="bytes", overlap=overlap)
    local = hs.partition(hs.load(GATHERED, format="hlo"), machine=hs.machines.h100(4), options=options)
    return sum(i.opcode == "while" for i in local.module.instructions)


def test_loops_for_products_are_tried_and_the_faster_program_is_taken() -> None:
    """The gathered operand is computed: there is a wait to hide, and the simulator says that the loop hides it."""
    simulated = {}
    for overlap in ("off", "always"):
        options = PartitionOptions(objective="bytes", overlap=overlap)
        local = hs.partition(hs.load(GATHERED, format="hlo"), machine=hs.machines.h100(4), options=options)
        simulated[overlap] = hs.simulate(local.module, hs.machines.h100(4)).time_s
    assert loops("off") == 0
    assert loops("always") == 1
    assert loops("auto") == (1 if simulated["always"] < simulated["off"] else 0)


def test_what_is_only_propagated_moves_what_megatron_moves() -> None:
    """An all-reduce behind the second product of a layer (Shoeybi et al. 2019), where it takes less to split its rows
    and to gather the small weights."""
    module = hs.load("""HloModule half, num_partitions=8
    ENTRY e {
      h = f32[32768,512] parameter(0), sharding={devices=[1,8]<=[8]}
      down = f32[512,512] parameter(1), sharding={devices=[8,1]<=[8]}
      ROOT y = f32[32768,512] dot(h, down), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={replicated}
    }""")
    machine = hs.machines.a100(8)
    usual = hs.partition(module, machine=machine)
    found = hs.partition(module, machine=machine, options=PartitionOptions(only_propagated=True))
    assert [c.kind for c in found.collectives] == ["all-reduce"]
    assert found.comm_bytes_per_device == 2 * 7 / 8 * 32768 * 512 * 4 > usual.comm_bytes_per_device


def test_what_is_only_propagated_gathers_what_gspmd_gathers() -> None:
    """Sequences, where a weight and the product's result are split by columns over the same devices, however small the
    weight is: XLA (jaxlib 0.10.2, GSPMD) makes one all-gather of them (Korthikanti et al. 2022)."""
    module = hs.load("""HloModule columns, num_partitions=8
    ENTRY e {
      x = f32[16,8192,128] parameter(0), sharding={devices=[1,8,1]<=[8]}
      up = f32[128,128] parameter(1), sharding={devices=[1,8]<=[8]}
      ROOT y = f32[16,8192,128] dot(x, up), lhs_contracting_dims={2}, rhs_contracting_dims={0},
        sharding={devices=[1,1,8]<=[8]}
    }""")
    found = hs.partition(module, machine=hs.machines.a100(8), options=PartitionOptions(only_propagated=True))
    assert [c.kind for c in found.collectives] == ["all-gather"]
    assert found.comm_bytes_per_device == 7 / 8 * 16 * 8192 * 128 * 4


def test_what_is_not_far_from_the_best_may_be_better_once_its_values_lie_otherwise() -> None:
    """Attention whose batch and heads suit nobody: by propagation's own table queries, keys and values move once each,
    and the result lies where it is wanted, which is the least by brute force; by the batch over all devices, which was
    the better of the two before, keys move twice as often, and the result, too."""
    mesh = jax.make_mesh((2, 2, 2), ("a", "b", "c"), axis_types=(jax.sharding.AxisType.Auto,) * 3)
    specs = P("c", "a", None, "b"), P(("b", "a"), None, "c"), P(None, None, ("b", "a"))

    def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        raised = jnp.exp(jnp.einsum("bqhd,bkhd->bhqk", q, k) * 0.125)
        return jnp.einsum("bhqk,bkhd->bqhd", raised / raised.sum(-1, keepdims=True), v)

    places = [jax.sharding.NamedSharding(mesh, spec) for spec in (*specs, P("a", None, "c", "b"))]
    jitted = hs.jit(attend, in_shardings=tuple(places[:3]), out_shardings=places[3], mesh=mesh)
    traced = jitted.trace(*[jax.ShapeDtypeStruct((16, 64, 1024, 64), "float32")] * 3)
    found = hs.partition(traced.propagate().propagation, options=PartitionOptions(objective="bytes"))
    tile = 16 * 64 * 1024 * 64 * 4 / 8
    assert found.comm_bytes_per_device <= (3 / 4 + 3 / 4 + 7 / 8) * tile
