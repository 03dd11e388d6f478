"""Weights from one mesh to another: `plan_transfer`, and the plan as users hold it.

Floor: transfer.  Only shows and runs what was decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hlosharding.collector import collector_waits
from hlosharding.cost import Machine, machine_of
from hlosharding.errors import CostError
from hlosharding.printable import printable
from hlosharding.transfer.links import DeviceLinks, least_busiest
from hlosharding.transfer.pieces import Demand, demands_of
from hlosharding.transfer.placed_arrays import PlacedArrays, read_arrays
from hlosharding.transfer.rounds import PieceSend, rounds_of, seconds_of
from hlosharding.transfer.routes import routes_of
from hlosharding.transfer.running import run_rounds


class Moved(NamedTuple):
    """What becomes of arrays that are alike."""

    name: str
    """Of the first."""
    count: int
    nbytes: int
    """Of one, whole."""
    received_bytes: int
    """By all devices together, of one: just what they lack."""


@dataclass(frozen=True, slots=True, eq=False)
class TransferPlan:
    """Who sends which part of which array to whom, in rounds.  Bytes are of all arrays together.

    Each device receives the elements of its target tiles that it does not hold, once: so no array is whole anywhere
    that the target does not want it, and no plan moves less.
    """

    machine: Machine | None
    arrays: tuple[Moved, ...]
    """Those that are alike together."""
    rounds: tuple[tuple[PieceSend, ...], ...]
    """Sends that go at the same time; what one passes on arrived in a round before."""
    busiest: float
    """Seconds for which the busiest link is busy; without a machine its bytes."""
    bound: float
    """What no plan is below, however it cuts and forwards: see `links.py`."""
    busiest_link: str
    _placed: PlacedArrays
    _demands: tuple[Demand, ...]
    _links: DeviceLinks

    @property
    def received_bytes(self) -> int:
        """By all devices together."""
        return sum(moved.count * moved.received_bytes for moved in self.arrays)

    @property
    def seconds(self) -> float | None:
        """Of all rounds, one after the other; None without a machine."""
        return None if self.machine is None else sum(seconds_of(sends, self._links) for sends in self.rounds)

    def run(self, tree: Any) -> Any:
        """The arrays, laid out as the target says; the given ones stay.  Raises ExecutionError where the plan is for
        devices that are not there, or arrays do not lie as the source says.

        >>> import jax, hlosharding as hs
        >>> from jax.sharding import NamedSharding, PartitionSpec as P
        >>> trainer, rollout = (jax.make_mesh((4,), ("x",), devices=jax.devices()[n : n + 4]) for n in (0, 4))
        >>> source, target = NamedSharding(trainer, P("x")), NamedSharding(rollout, P(None, "x"))
        >>> weights = jax.device_put(jax.numpy.arange(64.0).reshape(8, 8), source)
        >>> moved = hs.plan_transfer(weights, source, target).run(weights)
        >>> moved.sharding == target, bool((moved == jax.device_put(weights, target)).all())
        (True, True)
        """
        return run_rounds(tree, self._placed, self._demands, self.rounds)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{'array':32} {'times':>5} {'bytes':>17} {'received':>17}"
        for moved in self.arrays:
            yield f"{printable(moved.name)[:32]:32} {moved.count:5} {moved.nbytes:17,} {moved.received_bytes:17,}"
        yield f"{'all':32} {sum(m.count for m in self.arrays):5} {self._all_bytes:17,} {self.received_bytes:17,}"
        rounds = f"in {len(self.rounds)} rounds"
        time = "" if self.machine is None else f", {self.seconds:.3g} s on {self.machine.name}"
        yield f"{sum(map(len, self.rounds)):,} sends {rounds}{time}"
        times = f", {self.busiest / self.bound:.3f} times the bound" if self.bound else ""
        yield f"busiest link: {self.busiest_link}, {self._amount(self.busiest)}{times}"

    @property
    def _all_bytes(self) -> int:
        return sum(moved.count * moved.nbytes for moved in self.arrays)

    def _amount(self, busy: float) -> str:
        return f"{busy:,.0f} bytes" if self.machine is None else f"{busy:.3g} s"


@collector_waits
def plan_transfer(
    tree: Any,
    source: Any,
    target: Any,
    *,
    machine: Machine | None = None,
    target_devices: Sequence[int] | None = None,
) -> TransferPlan:
    """How arrays get from the devices of one mesh to those of another, as weights from a trainer to those who generate.

    `tree`: arrays or ShapeDtypeStructs; `source`, `target`: for each a NamedSharding, as trees or prefix trees.  Both
    meshes may share devices.  An AbstractMesh stands for devices that are not there: the source's are numbered from 0,
    the target's from behind those, or as `target_devices` says.  `machine`: whose links count, by its devices' numbers;
    without one all devices send and receive at one rate.

    Each device receives what it lacks and no more.  Where several want the same they pass it on among themselves, where
    several have it they share the sending: so that the busiest link is busy for little longer than some link must be in
    any plan, at most 1.02 times as long in all but rare cases (rows are not cut: tiny arrays are shared out unequally).

    Raises TraceError where a tree is no prefix, ShardingError for what is no NamedSharding or is partial, and CostError
    where the machine has too few devices.

    >>> import jax, hlosharding as hs
    >>> from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec as P
    >>> up, norm = (jax.ShapeDtypeStruct(dims, "bfloat16") for dims in ((8192, 28672), (8192,)))
    >>> source = NamedSharding(AbstractMesh((64,), ("fsdp",)), P("fsdp"))
    >>> rollouts = AbstractMesh((4, 8), ("copy", "model"))
    >>> target = {"up": NamedSharding(rollouts, P(None, "model")), "norm": NamedSharding(rollouts, P())}
    >>> layers = [{"up": up, "norm": norm}] * 80
    >>> print(hs.plan_transfer(layers, source, [target] * 80, machine=hs.machines.h100(96)))
    array                            times             bytes          received
    [0]['norm']                         80            16,384           524,288
    [0]['up']                           80       469,762,048     1,879,048,192
    all                                160    37,582,274,560   150,365,798,400
    4,096 sends in 77 rounds, 0.115 s on h100(96)
    busiest link: between nodes, into device 64, 0.107 s, 1.000 times the bound
    """
    machine, placed = machine_of(machine), read_arrays(tree, source, target, target_devices)
    sides = (side for kind in placed.kinds for side in (kind.source, kind.target))
    count = 1 + max((max(side.devices) for side in sides), default=0)
    if machine is not None and machine.num_devices < count:
        what = f"machine {machine.name!r} has {machine.num_devices} devices, the meshes number {count}"
        raise CostError(what, remedy="give a machine with as many")
    leaves = placed.leaves
    demands = tuple(demands_of(placed.kinds, list(map(len, leaves))))
    links = DeviceLinks.of(machine, count)
    bound = least_busiest(demands, links)
    routes = routes_of(demands, links, bound)
    return TransferPlan(
        machine,
        tuple(_moved(placed, leaves, demands)),
        rounds_of(routes, links),
        routes.busiest,
        bound,
        links.name(int(routes.busy.argmax())),
        placed,
        demands,
        links,
    )


def _moved(placed: PlacedArrays, leaves: list[list[int]], demands: Sequence[Demand]) -> Iterator[Moved]:
    received = [0] * len(placed.kinds)
    for demand in demands:
        for piece in demand.pieces:
            received[piece.kind] += piece.nbytes * len(demand.wanters)
    for kind, own, nbytes in zip(placed.kinds, leaves, received, strict=True):
        yield Moved(placed.names[own[0]], len(own), kind.nbytes, nbytes)
