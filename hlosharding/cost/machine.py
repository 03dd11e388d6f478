"""What a cluster can do, as data: rates, sizes, links.  Nothing here knows a program.

Floor: cost.  A `Machine` is a value: equal by content, hashable at the price of one attribute (it is a cache key of
every price).  It refuses to know opcodes, shardings and collectives.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from itertools import accumulate
from math import prod
from operator import attrgetter
from statistics import NormalDist
from typing import Any, Literal, get_args

from hlosharding.errors import CostError
from hlosharding.sharding import MOST_DEVICES

Runtime = Literal["compiled", "eager"]
"""Who runs programs: XLA, which fuses ops, or a framework whose host launches a kernel an op."""
Overlap = Literal["gradients", "prefetch", "collective matmul", "exchanges"]
"""Communication that may be under way while a device computes: sums over devices, as of gradients behind the backward
pass; gathers, as of the next layer's weights; permutes, as of a product in a loop of tiles; all else, as of tokens that
go to their experts."""
Topology = str
"""How devices of one node are joined: "switch" (any pair at full rate) or "torus" (rings along each axis)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One class of links, as seen by one device.

    >>> Link(bandwidth=450e9, latency=2e-6).seconds(450_000_000)
    0.001002
    """

    bandwidth: float
    """Bytes per second, per direction, per device (the share of a network card that one device has)."""
    latency: float
    """Seconds for one hop, however small the message: the alpha of alpha-beta."""

    def seconds(self, nbytes: float) -> float:
        """Time of one message of `nbytes` over one hop."""
        return self.latency + nbytes / self.bandwidth


@dataclass(frozen=True, slots=True, kw_only=True)
class Nccl:
    """What NCCL's kernels reach on a GPU, beside what its links do.

    A ring under protocol LL128 uses the links of a device that has 16 channels of 20 GB/s:

    >>> Nccl(ll_bandwidth=20e9, ll128_bandwidth=320e9, nvls_efficiency=0.0, post=1e-6).ll128_bandwidth / 16
    20000000000.0
    """

    ll_bandwidth: float
    """Bytes per second, at most, under protocol LL between nodes."""
    ll128_bandwidth: float
    """Bytes per second, at most, under protocol LL128."""
    nvls_efficiency: float
    """Share of the inside links that is reached where their switches add up and copy (NVLS); 0: they cannot."""
    post: float
    """Seconds in which one message is handed to the network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """What a GPU compiler must know of a chip beside the rates of its machine."""

    kind: str
    """As CUDA names the device."""
    compute_capability: tuple[int, int]
    is_accelerated: bool
    """Has instructions of its own generation only ("sm_90a")."""
    lanes: int
    """f32 units of one multiprocessor; each adds a product in a clock."""
    shared_memory: int
    """Bytes of one multiprocessor."""
    l2_cache: int
    """Bytes."""
    links: int
    """NVLinks of one device."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Machine:
    """A number of devices in nodes; every rate is per device and in base units (bytes, FLOP, seconds).

    Devices are equal, or those of `parts` (see `of_parts`); then each figure is that of the slowest.

    >>> from hlosharding.cost import machines
    >>> machine = machines.h100(16)
    >>> machine.num_nodes, machine.flops("bf16") > machine.flops("f32")
    (2, True)
    """

    name: str
    num_devices: int
    devices_per_node: int
    peak_flops: tuple[tuple[str, float], ...]
    """Element type -> FLOP/s of the matrix unit; a type that is not listed takes its nearest listed kin."""
    vector_flops: float
    """FLOP/s of elementwise arithmetic."""
    memory_bandwidth: float
    memory_bytes: float
    inside: Link
    """Links inside a node (NVLink, ICI, shared memory)."""
    between: Link
    """Links between nodes (InfiniBand, data-centre network)."""
    launch: float
    """Seconds to start one kernel."""
    collective_launch: float
    """Seconds to start one collective, beside the latency of its hops."""
    nccl: Nccl | None = None
    """Of GPUs on switches, whose collectives are NCCL's; None: the best algorithm known, by latency and bytes alone."""
    host_bandwidth: float = 0.0
    """Bytes per second from a device's memory to its host's, and as many back; 0: unknown, no move has a price."""
    program_launch: float = 0.0
    """Seconds from a call of a compiled program to its first kernel, where nothing hides them: presets have none."""
    platform: str = "gpu"
    """Whose compiler: "cpu", "gpu" or "tpu", XLA's names."""
    dispatch: float = 0.0
    """Seconds that the host of a framework without a compiler takes to launch an op; 0: unknown, nothing runs so."""
    runtime: Runtime = "compiled"
    """Who runs programs on it."""
    synchronous: tuple[Overlap, ...] = ()
    """Communication that keeps a device from computing: none, as XLA's latency-hiding scheduler has it."""
    topology: Topology = "switch"
    torus: tuple[int, ...] = ()
    """Axis sizes of the torus one node forms; device ids count row-major over it."""
    wrap_multiple: int = 1
    """A torus axis closes into a ring where its size is a multiple of this."""
    matrix_tile: tuple[int, int, int] = (1, 1, 1)
    """Rows, columns and depth to which a matrix product is padded."""
    matrix_units: int = 1
    """Tiles computed at once (a GPU's multiprocessors): a last, half-empty wave costs as much as a full one."""
    compute_efficiency: float = 1.0
    """Share of `peak_flops` that large products reach."""
    sustained: float = 1.0
    """Share of that rate at which products go on where a program does nothing else: they draw more power than the chip
    may, kernels bound by memory less.  From a half of the time upwards they slow down, in proportion."""
    spread: float = 0.0
    """Standard deviation of the rate of products among equal chips, as a share of it: power limits them, each to a
    clock of its own, and all wait for the slowest."""
    job: int = 0
    """Of a part of a machine: how many devices wait for each other; 0: those that there are."""
    memory_efficiency: float = 1.0
    """Share of `memory_bandwidth` that streaming reaches."""
    attention_efficiency: float = 1.0
    """Share of the rate of large products that those of flash attention reach, forward."""
    attention_backward: float = 0.65
    """Share of that rate that those of its gradients reach.  Of cuDNN 9 on an H100, measured (`benchmarks.one_card`):
    0.64 to 0.70 at 4,096 and 8,192 positions.  Gradients of queries are added up in f32, and before that go sums of the
    result times its gradient."""
    cache_bytes: float = 0.0
    """So many bytes of an op's traffic go through a cache, at `cache_bandwidth`; presets have none."""
    cache_bandwidth: float = 0.0
    collective_rates: tuple[tuple[str, float], ...] = ()
    """Kind of collective -> share of the links' bandwidth that it reaches; 1 for those that are not listed."""
    placement: tuple[int, ...] = ()
    """Of a part of a machine: the place of each device, counted through the nodes; (): device n has place n."""
    chip: Chip | None = None
    """What XLA's GPU compiler asks beside; None where XLA cannot compile for a device that it does not see."""
    parts: tuple[Machine, ...] = ()
    """Where devices are unlike: equal devices in nodes of their own each, one after the other."""
    _hash: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        _check(self)
        object.__setattr__(self, "_hash", hash((self.name, self.num_devices, self.memory_bandwidth, self.peak_flops)))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Machine) and _CONTENT(self) == _CONTENT(other)

    def __reduce__(self) -> tuple[Any, ...]:
        # Built anew where it is unpickled: another process hashes text differently.
        return _rebuild, (_CONTENT(self),)

    @classmethod
    def of_parts(cls, *parts: Machine, between: Link | None = None, name: str | None = None) -> Machine:
        """A machine of unlike nodes: the devices of the first part, then those of the second, ...

        `between`: links among the parts; by default the slowest that a part has between its own nodes.  Raises
        CostError where there is no part, or one that has parts itself or is a torus.

        >>> from hlosharding.cost import machines
        >>> mixed = Machine.of_parts(machines.h100(8), machines.a100(8))
        >>> mixed.name, mixed.num_nodes, mixed.flops("bf16") == machines.a100().flops("bf16")
        ('h100(8) + a100(8)', 2, True)
        """
        if any(part.parts or part.topology == "torus" for part in parts) or not parts:
            raise CostError(
                "parts of a machine are equal devices on switches, one part or more",
                remedy="give machines without parts",
            )
        slowest = _slowest(parts, between)
        return replace(slowest, name=slowest.name if name is None else name, parts=parts)

    @property
    def num_nodes(self) -> int:
        """Nodes, some perhaps partly used."""
        return len(set(map(self.node_of, range(self.num_devices))))

    @property
    def clock(self) -> float:
        """Clocks per second of the multiprocessors: what `vector_flops` says of all lanes.  Raises CostError.

        >>> from hlosharding.cost import machines
        >>> round(machines.h100().clock / 1e9, 2)
        1.98
        """
        if self.chip is None:
            raise CostError(f"machine {self.name!r} says nothing of its chip", remedy="give it a Chip")
        return self.vector_flops / (2 * self.chip.lanes * self.matrix_units)

    def flops(self, dtype: str) -> float:
        """Peak FLOP/s of matrix products in `dtype` ("f32", "bf16", ...; XLA's names)."""
        return _rate(self, dtype)

    @property
    def slowest(self) -> float:
        """The rate of products of the slowest of all devices that wait for each other, as a share of the mean one's.

        The mean least of so many normal numbers, nearly (Blom 1958).

        >>> from hlosharding.cost import machines
        >>> [round(machines.h100(devices).slowest, 3) for devices in (1, 8, 512)]
        [1.0, 0.979, 0.955]
        """
        count = self.job or self.num_devices
        return 1 - self.spread * NormalDist().inv_cdf((count - 0.375) / (count + 0.25))

    @property
    def dispatch_seconds(self) -> float:
        """That the host takes for each launch while the device works: nothing where programs are compiled."""
        return self.dispatch if self.runtime == "eager" else 0.0

    def with_runtime(self, runtime: Runtime | None) -> Machine:
        """The same machine where programs run so; None: as it is.  Raises CostError where it has no figure for that.

        >>> from hlosharding.cost import machines
        >>> machines.a100(8).with_runtime("eager").dispatch_seconds > machines.a100(8).dispatch_seconds
        True
        """
        return self if runtime in (None, self.runtime) else _with_figure(self, "runtime", runtime)

    def without_overlap(self, *cases: Overlap) -> Machine:
        """The same machine where computing waits for such communication; of all where none is named.

        >>> from hlosharding.cost import machines
        >>> machine = machines.h100(8)
        >>> machine.without_overlap("prefetch").synchronous, len(machine.without_overlap().synchronous)
        (('prefetch',), 4)
        """
        return _with_figure(self, "synchronous", tuple(sorted(cases or get_args(Overlap))))

    def traffic_seconds(self, nbytes: float) -> float:
        """Of reading and writing so many bytes in one op.

        >>> from dataclasses import replace
        >>> from hlosharding.cost import machines
        >>> cached = replace(machines.cpu(1), memory_bandwidth=1e9, cache_bytes=1e6, cache_bandwidth=4e9)
        >>> cached.traffic_seconds(1e6), cached.traffic_seconds(2e6)
        (0.00025, 0.00125)
        """
        near = min(nbytes, self.cache_bytes)
        fast = near / self.cache_bandwidth if near > 0 else 0.0
        return fast + (nbytes - near) / (self.memory_bandwidth * self.memory_efficiency)

    def collective_rate(self, kind: str) -> float:
        """Share of the links' bandwidth that collectives of a kind reach."""
        return dict(self.collective_rates).get(kind, 1.0)

    def place_of(self, device: int) -> int:
        """Where `device` (a position in the device assignment) stands, counted through the nodes."""
        return self.placement[device] if self.placement else device

    def node_of(self, device: int) -> int:
        """The node that holds `device`."""
        if self.parts:
            number, first, nodes = self._place(device)
            return nodes + self.parts[number].node_of(device - first)
        return self.place_of(device) // self.devices_per_node

    def kind_of(self, devices: Sequence[int]) -> Machine:
        """Equal devices, as slow as the slowest of these: the machine itself where all are equal."""
        if not self.parts:
            return self
        counts = Counter(self._place(device)[0] for device in devices)
        if len(counts) == 1:
            return self.parts[min(counts)]
        return _slowest(tuple(self.parts[n].with_devices(counts[n]) for n in sorted(counts)), self.between)

    def _place(self, device: int) -> tuple[int, int, int]:
        """Of the part that holds `device` (the last one, of a device that is not there): its number, its first device,
        its first node.
        """
        firsts, nodes = _starts(self.parts)
        number = bisect_right(firsts, device) - 1
        return number, firsts[number], nodes[number]

    def among(self, devices: Sequence[int]) -> Machine:
        """The machine that these of its devices are, in this order: equal ones, as slow as the slowest of these.

        Machines of devices that are joined alike are equal.

        >>> from hlosharding.cost import machines
        >>> machine = machines.h100(16)
        >>> machine.among((8, 9)) == machine.among((0, 1)), machine.among((3, 11)).node_of(1)
        (True, 1)
        >>> mixed = Machine.of_parts(machines.h100(8), machines.a100(8))
        >>> [mixed.among(devices).name for devices in ((0, 1), (8, 9, 10), (7, 8))]
        ['h100(2)', 'a100(3)', 'h100(1) + a100(1)']
        """
        return _among(self, tuple(devices))

    def with_devices(self, num_devices: int) -> Machine:
        """The same machine with another number of devices (a torus changes its shape).

        Of unlike devices nobody says which: so many equal ones, as slow as the slowest.
        """
        return self if num_devices == self.num_devices else _resize(self, num_devices)


_FIELDS = tuple(f.name for f in fields(Machine) if f.init)
_CONTENT = attrgetter(*_FIELDS)


def _rebuild(content: tuple[Any, ...]) -> Machine:
    return Machine(**dict(zip(_FIELDS, content, strict=True)))


@lru_cache(maxsize=1024)
def _with_figure(machine: Machine, name: str, value: Any) -> Machine:
    """With another value of one field, in all its parts, too."""
    return replace(machine, **{name: value}, parts=tuple(_with_figure(part, name, value) for part in machine.parts))


@lru_cache(maxsize=1024)
def _resize(machine: Machine, num_devices: int) -> Machine:
    made = replace(machine, num_devices=num_devices, name=_name(machine, num_devices), placement=(), parts=(), job=0)
    if machine.topology != "torus" or num_devices < 1:
        return made
    return replace(made, torus=near_cube(num_devices, len(machine.torus)), devices_per_node=num_devices)


def _name(machine: Machine, num_devices: int) -> str:
    if num_devices == machine.num_devices:
        return machine.name
    return f"{num_devices} of {machine.name}" if machine.parts else f"{machine.name.split('(')[0]}({num_devices})"


@lru_cache(maxsize=4096)
def _among(machine: Machine, devices: tuple[int, ...]) -> Machine:
    kind, nodes = machine.kind_of(devices), [machine.node_of(device) for device in devices]
    # Of unlike nodes the figure is that of the smallest; larger ones may hold more of these devices.
    per_node = max(kind.devices_per_node, *Counter(nodes).values())
    is_torus = machine.topology == "torus"
    places = tuple(map(machine.place_of, devices)) if is_torus else _filled_up(nodes, per_node)
    if places == tuple(range(kind.num_devices)):
        return kind
    whole = kind.job or kind.num_devices
    return replace(
        kind,
        num_devices=len(devices),
        name=_name(kind, len(devices)),
        devices_per_node=per_node,
        placement=() if places == tuple(range(len(devices))) else places,
        job=whole if len(devices) < whole else 0,
    )


def _filled_up(nodes: Sequence[int], per_node: int) -> tuple[int, ...]:
    """On switches it matters only who is in one node: nodes in the order in which they come, from their first place."""
    firsts = {node: number * per_node for number, node in enumerate(dict.fromkeys(nodes))}
    taken = Counter[int]()
    places: list[int] = []
    for node in nodes:
        places.append(firsts[node] + taken[node])
        taken[node] += 1
    return tuple(places)


@lru_cache(maxsize=1024)
def _starts(parts: tuple[Machine, ...]) -> tuple[list[int], list[int]]:
    """Of each part its first device, and its first node."""
    devices, nodes = [part.num_devices for part in parts], [part.num_nodes for part in parts]
    return [0, *accumulate(devices[:-1])], [0, *accumulate(nodes[:-1])]


_LEAST = ("vector_flops", "memory_bytes", "cache_bytes", "cache_bandwidth", "host_bandwidth")
_MOST = ("launch", "collective_launch", "program_launch", "dispatch")
"""Figures of which the smallest, and the largest, is that of the slowest."""


@lru_cache(maxsize=1024)
def _slowest(parts: tuple[Machine, ...], between: Link | None) -> Machine:
    """Equal devices of which each figure is the worst; tiles are those of the part whose products are slowest.

    Rates are compared as they are reached: the efficiencies are that part's, too.
    """
    base = min(parts, key=lambda part: part.flops("f32") * part.compute_efficiency)
    types = dict.fromkeys(name for part in parts for name, _ in part.peak_flops)
    kinds = dict.fromkeys(kind for part in parts for kind, _ in part.collective_rates)
    computes = [part.compute_efficiency / base.compute_efficiency for part in parts]
    streams = [part.memory_efficiency / base.memory_efficiency for part in parts]
    return replace(
        base,
        name=" + ".join(part.name for part in parts),
        num_devices=sum(part.num_devices for part in parts),
        devices_per_node=min(min(part.num_devices, part.devices_per_node) for part in parts),
        peak_flops=tuple(
            (name, min(part.flops(name) * share for part, share in zip(parts, computes, strict=True))) for name in types
        ),
        memory_bandwidth=min(part.memory_bandwidth * share for part, share in zip(parts, streams, strict=True)),
        **{name: min(getattr(part, name) for part in parts) for name in _LEAST},
        **{name: max(getattr(part, name) for part in parts) for name in _MOST},
        inside=_slowest_link([part.inside for part in parts]),
        between=_slowest_link([*(part.between for part in parts), *([between] if between else [])]),
        nccl=_slowest_nccl([part.nccl for part in parts]),
        collective_rates=tuple((kind, min(part.collective_rate(kind) for part in parts)) for kind in kinds),
        chip=base.chip if all(part.chip == base.chip for part in parts) else None,
    )


def _slowest_link(links: Sequence[Link]) -> Link:
    return Link(bandwidth=min(link.bandwidth for link in links), latency=max(link.latency for link in links))


def _slowest_nccl(each: Sequence[Nccl | None]) -> Nccl | None:
    known = [nccl for nccl in each if nccl is not None]
    if len(known) < len(each):
        return None
    least = {f.name: min(getattr(nccl, f.name) for nccl in known) for f in fields(Nccl)}
    return Nccl(**least | {"post": max(nccl.post for nccl in known)})


def near_cube(count: int, rank: int) -> tuple[int, ...]:
    """Sizes, smallest first, whose product is `count` and which differ least.

    >>> near_cube(16, 3), near_cube(7, 2)
    ((2, 2, 4), (1, 7))
    """
    if rank <= 1:
        return (count,) * rank
    # 64 ** (1 / 3) is 3.9999999999999996.
    first = max(d for d in range(1, int(count ** (1 / rank) + 1e-9) + 1) if count % d == 0)
    return (first, *near_cube(count // first, rank - 1))


# Nearest kin by what hardware shares: 8-bit floats run where 16-bit ones do if there is no faster unit.
_KIN: dict[str, tuple[str, ...]] = {
    "bf16": ("f16",),
    "f16": ("bf16",),
    "s8": ("f8", "bf16", "f16"),
    "u8": ("s8", "f8", "bf16", "f16"),
    "s4": ("s8", "f8", "bf16"),
    "u4": ("s8", "f8", "bf16"),
    "c64": ("f32",),
    "c128": ("f64", "f32"),
}
_NARROW_FLOAT = ("f8", "bf16", "f16")


@lru_cache(maxsize=1024)
def _rate(machine: Machine, dtype: str) -> float:
    table = dict(machine.peak_flops)
    kin = _NARROW_FLOAT if dtype.startswith(("f8", "f4")) else _KIN.get(dtype, ())
    return next((table[name] for name in (dtype, *kin) if name in table), table["f32"])


_LEAST_FIGURE, LARGEST_FIGURE = 1e-30, 1e30
"""Far beyond what there is; sums and quotients of a few of them stay numbers."""
_LONGEST_TORUS = 8
"""Axes: hardware has three; a stranger's file may not have thousands of size 1."""
_COUNTED = ("num_devices", "devices_per_node", "matrix_units", "wrap_multiple")
_RATES = ("vector_flops", "memory_bandwidth", "memory_bytes")
_SHARES = ("compute_efficiency", "sustained", "memory_efficiency", "attention_efficiency", "attention_backward")
_MAY_BE_ZERO = (*_MOST, "spread", "job", "cache_bytes", "cache_bandwidth", "host_bandwidth")


def _figures(machine: Machine) -> Iterator[tuple[str, float, float, float]]:
    """Each figure with its name, and between what it must be."""
    most = LARGEST_FIGURE
    yield from ((name, getattr(machine, name), 1, most) for name in _COUNTED)
    yield from (("matrix_tile", size, 1, most) for size in machine.matrix_tile)
    yield from (("torus", size, 1, most) for size in machine.torus)
    yield from ((name, getattr(machine, name), _LEAST_FIGURE, most) for name in _RATES)
    yield from ((name, getattr(machine, name), _LEAST_FIGURE, 1) for name in _SHARES)
    yield from ((name, getattr(machine, name), 0, most) for name in _MAY_BE_ZERO)
    yield from ((f"peak_flops of {name}", rate, _LEAST_FIGURE, most) for name, rate in machine.peak_flops)
    yield from ((f"collective_rates of {kind}", rate, _LEAST_FIGURE, most) for kind, rate in machine.collective_rates)
    for name, link in (("inside", machine.inside), ("between", machine.between)):
        yield f"{name}.bandwidth", link.bandwidth, _LEAST_FIGURE, most
        yield f"{name}.latency", link.latency, 0, most
    if machine.nccl is not None:
        yield "nccl.ll_bandwidth", machine.nccl.ll_bandwidth, _LEAST_FIGURE, most
        yield "nccl.ll128_bandwidth", machine.nccl.ll128_bandwidth, _LEAST_FIGURE, most
        yield "nccl.nvls_efficiency", machine.nccl.nvls_efficiency, 0, 1
        yield "nccl.post", machine.nccl.post, 0, most
    if machine.cache_bytes > 0:
        yield "cache_bandwidth", machine.cache_bandwidth, _LEAST_FIGURE, most


def _check(machine: Machine) -> None:
    # The first ends it: what is asked after it may ask for figures that are in range (`slowest` of no device is none).
    for what, remedy in _faults(machine):
        raise CostError(f"machine {machine.name!r}: {what}", remedy=remedy)


def _faults(machine: Machine) -> Iterator[tuple[str, str | None]]:
    """What is wrong, and what to do."""
    bad = [name for name, figure, least, most in _figures(machine) if not least <= figure <= most]  # NaN is in no range
    if bad:
        yield f"{', '.join(bad)} must be positive and finite", "correct it"
    if machine.num_devices > MOST_DEVICES:
        yield f"{machine.num_devices} devices are more than {MOST_DEVICES}", None
    if machine.slowest <= 0:
        what = (
            f"a spread of {machine.spread:g} leaves nothing of the rate of the slowest of {machine.num_devices} devices"
        )
        yield what, "give the standard deviation as a share of the rate, as 0.015"
    for what, said, known in (
        ("runtime", (machine.runtime,), get_args(Runtime)),
        ("overlap", machine.synchronous, get_args(Overlap)),
    ):
        yield from ((f"no {what} {word!r}", f"there are {', '.join(known)}") for word in said if word not in known)
    if machine.runtime == "eager" and not machine.dispatch:
        remedy = "to run eagerly there give it a dispatch, in seconds: dataclasses.replace(machine, dispatch=10e-6)"
        yield "nothing says how long a host takes to launch an op", remedy
    if "f32" not in dict(machine.peak_flops):
        yield "peak_flops lacks 'f32'", "give the rate of f32 products"
    if machine.parts and machine.num_devices != sum(part.num_devices for part in machine.parts):
        yield f"num_devices is {machine.num_devices}, its parts have other numbers", "make it with Machine.of_parts"
    if machine.platform not in ("cpu", "gpu", "tpu"):
        yield f"platform {machine.platform!r}", "use 'cpu', 'gpu' or 'tpu'"
    if machine.topology not in ("switch", "torus"):
        yield f"topology {machine.topology!r}", "use 'switch' or 'torus'"
    if machine.topology == "torus" and machine.nccl is not None:
        yield "NCCL on a torus", "leave nccl out, or say topology='switch'"
    node, sizes = machine.devices_per_node, machine.torus
    if machine.topology == "torus" and not (len(sizes) <= _LONGEST_TORUS and prod(sizes) == node <= MOST_DEVICES):
        remedy = f"give up to {_LONGEST_TORUS} sizes that multiply up to the devices of a node"
        yield f"nodes of {node} devices are a torus {sizes[:_LONGEST_TORUS]}", remedy
