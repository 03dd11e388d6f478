"""Devices nobody has: what XLA needs in order to compile for GPUs that it does not see, made from a machine.

Floor: cost.  The machine says what the chip can do; here stand only XLA's names for it, and what all CUDA chips share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any, TypeVar

import numpy as np

from hlosharding import xla_bridge
from hlosharding.cost.machine import Chip, Machine
from hlosharding.cost.presets import machine_named
from hlosharding.errors import CostError

# What XLA asks of the libraries it compiles for: the oldest that have all it can use on these chips.
_CUDNN, _CUDA = (9, 8, 0), "12.8.0"
# The same on every chip since Volta (CUDA C++ programming guide, technical specifications per compute capability).
_OF_ALL_CHIPS = {
    "threads_per_block_limit": 1024,
    "threads_per_warp": 32,
    "threads_per_core_limit": 2048,
    "thread_dim_limit_x": 1024,
    "thread_dim_limit_y": 1024,
    "thread_dim_limit_z": 64,
    "block_dim_limit_x": 2**31 - 1,
    "block_dim_limit_y": 2**16 - 1,
    "block_dim_limit_z": 2**16 - 1,
    "registers_per_core_limit": 2**16,
    "registers_per_block_limit": 2**16,
    "shared_memory_per_block": 48 * 1024,
}
_RESERVED = 1024
"""Bytes of a multiprocessor's shared memory that CUDA keeps for itself, for each block."""


@dataclass(frozen=True, slots=True)
class Topology:
    """What `hs.topology` gives: the devices of a machine, for XLA to compile for.  Nothing runs on them."""

    machine: Machine
    """Whose prices they have."""
    devices: tuple[Any, ...] = field(repr=False)
    """As `jax.devices()` has them."""

    def mesh(self, shape: Sequence[int], axis_names: Sequence[str]) -> Any:
        """A `jax.sharding.Mesh` of all devices, in order.  Raises CostError where `shape` is of another number."""
        import jax

        if prod(shape) != len(self.devices) or len(shape) != len(axis_names):
            raise CostError(
                f"a mesh {tuple(shape)} with axes {tuple(axis_names)} of {len(self.devices)} devices",
                remedy="give one size an axis; they multiply up to the number of devices",
            )
        return jax.sharding.Mesh(np.array(self.devices, dtype=object).reshape(tuple(shape)), tuple(axis_names))


def topology(machine: str | Machine, num_devices: int | None = None) -> Topology:
    """Devices that are not there, for `hs.jit(...).lower(...).compile()`: XLA compiles for GPUs it does not see.

    `machine`: a preset by name ("a100", "h100", "h200", "b200") or a Machine with a `chip`.  `num_devices`: by default
    8, or what the Machine has.  Raises CostError where it makes no sense; ExecutionError where JAX has no CUDA plugin.

    >>> import hlosharding as hs
    >>> hs.topology("h1000", 8)
    Traceback (most recent call last):
    ...
    hlosharding.errors.CostError: no machine 'h1000'; there are v100, dgx2_v100, a100, ...
    """
    if isinstance(machine, Machine):
        return _describe(machine if num_devices is None else machine.with_devices(num_devices))
    return _describe(machine_named(machine, 8 if num_devices is None else num_devices))


_Given = TypeVar("_Given", bound=Machine | None)


def machine_of(given: _Given | Topology) -> _Given | Machine:
    """Whose prices count: the machine itself, or that of a topology.  Raises CostError for what is neither."""
    anything: object = given
    if not isinstance(anything, Machine | Topology | None):
        raise CostError(f"{given!r} is no machine", remedy="give one with its devices, as hs.machines.h100(8)")
    return given.machine if isinstance(given, Topology) else given


@lru_cache(maxsize=64)
def _describe(machine: Machine) -> Topology:
    """The same devices each time, so that JAX finds again what it compiled for them."""
    return Topology(machine, xla_bridge.described_devices(target_config(machine), node_topology(machine)))


def node_topology(machine: Machine) -> str:
    """How XLA writes the nodes: slices x nodes x devices of one.  Raises CostError where a node is partly used.

    >>> from hlosharding.cost import machines
    >>> node_topology(machines.h100(4)), node_topology(machines.h100(512))
    ('1x1x4', '1x64x8')
    """
    inside = min(machine.num_devices, machine.devices_per_node)
    if machine.num_devices % inside:
        raise CostError(
            f"{machine.name}: {machine.num_devices} devices do not fill nodes of {inside}, XLA knows full ones only",
            remedy=f"take a multiple of {inside}",
        )
    return f"1x{machine.num_devices // inside}x{inside}"


def target_config(machine: Machine) -> str:
    """XLA's target config of a machine's chip: the text of a GpuTargetConfigProto.  Raises CostError without a chip.

    >>> from hlosharding.cost import machines
    >>> [line.strip() for line in target_config(machines.h100()).splitlines() if "core_count" in line]
    ['core_count: 132']
    """
    if machine.chip is None:
        raise CostError(
            f"XLA cannot compile for {machine.name} from here: the machine says nothing of its chip",
            remedy="take a100, h100, h200 or b200, or a Machine with a `chip`",
        )
    device = "\n".join(f"  {line}" for line in _device_lines(machine, machine.chip))
    cudnn = " ".join(f"{name}: {n}" for name, n in zip(("major", "minor", "patch"), _CUDNN, strict=True))
    return f"""gpu_device_info {{
{device}
}}
platform_name: "CUDA"
dnn_version_info {{ {cudnn} }}
device_description_str: "{machine.chip.kind}"
"""


def _device_lines(machine: Machine, chip: Chip) -> list[str]:
    major, minor = chip.compute_capability
    features = "ACCELERATED_FEATURES" if chip.is_accelerated else "NONE"
    numbers = {
        **_OF_ALL_CHIPS,
        "shared_memory_per_core": chip.shared_memory,
        "shared_memory_per_block_optin": chip.shared_memory - _RESERVED,
        "core_count": machine.matrix_units,
        "fpus_per_core": chip.lanes,
        "clock_rate_ghz": f"{machine.clock / 1e9:.4g}",
        "memory_bandwidth": int(machine.memory_bandwidth),
        "device_memory_size": int(machine.memory_bytes),
        "l2_cache_size": chip.l2_cache,
    }
    return [
        *(f"{name}: {value}" for name, value in numbers.items()),
        f"cuda_compute_capability {{ major: {major} minor: {minor} feature_extension: {features} }}",
        f"device_interconnect_info {{ active_links: {chip.links} }}",
        f'name: "{chip.kind}"',
        f'runtime_version: "{_CUDA}"',
        f'compile_time_toolkit_version: "{_CUDA}"',
        f'dnn_version: "{".".join(map(str, _CUDNN))}"',
    ]
