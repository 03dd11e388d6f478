"""Machines one can buy or rent, each number with its source.

Floor: cost.  Data only.  Sources: [S] jax-ml/scaling-book and the vendors' data sheets; [K] widely published figures of
achieved rates; [N] NCCL's tuning model (`src/graph/tuning.cc`); [C] what CUDA says of the device; [M] measured by this
project; [F] fitted to measured collectives (`benchmarks.collectives`).  "Achieved" bandwidth is what large
all-reduces reach (NCCL's bus bandwidth), since alpha-beta with the sheet's peak is 20 % too fast everywhere.  Bandwidth
to the host is that of a device's own link, each way; of TPU v5e and v5p none is published.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any

from hlosharding.cost.machine import Chip, Link, Machine, Nccl, near_cube
from hlosharding.errors import CostError, is_count

GB, TFLOP, US = 1e9, 1e12, 1e-6
KIB = 1024

_NVLINK_HOP, _NETWORK_HOP = 0.6 * US, 2.7 * US  # those of NCCL's protocol LL [N]
# The model has 20.4 GB/s for LL between 4 nodes and more with Intel's hosts, of which half is reached [F]; LL128 sends
# 16.7 GB/s a channel, of 12; a post takes Intel's hosts 1 us [N].
_NCCL = Nccl(ll_bandwidth=10.2 * GB, ll128_bandwidth=200 * GB, nvls_efficiency=0.0, post=1.0 * US)
_ON_CARDS: dict[str, Any] = {
    "launch": 4.0 * US,  # 4-5 [K]
    "dispatch": 10.0 * US,  # PyTorch without a compiler: 5-25 from Python to the launch of a kernel [K]
    "collective_launch": 5.0 * US,  # XLA's GPU latency model [S]
    # Products of equal cards at their power limit: 8 % between the whiskers of a box plot, which are 5.4 deviations, in
    # three clusters of V100s (Sinha and others 2022) [K].
    "spread": 0.08 / 5.4,
}
"""What most GPUs have in common."""
_ON_AMPERE: dict[str, Any] = {**_ON_CARDS, "collective_launch": 29 * US}  # [F]


def v100(num_devices: int = 8) -> Machine:
    """V100 SXM2 32 GB in nodes of 8 (p3dn-like: 12.5 GB/s a node).

    >>> v100(8).num_nodes
    1
    """
    return _v100("v100", num_devices, per_node=8, inside=130 * GB, between=12.5 * GB / 8)


def dgx2_v100(num_devices: int = 16) -> Machine:
    """DGX-2: 16 V100 32 GB behind NVSwitch, the machine of the DistIR paper; 8 cards of 12.5 GB/s a node [K].

    >>> dgx2_v100().devices_per_node
    16
    """
    return _v100("dgx2_v100", num_devices, per_node=16, inside=130 * GB, between=8 * 12.5 * GB / 16)


@lru_cache
def _v100(name: str, num_devices: int, *, per_node: int, inside: float, between: float) -> Machine:
    return Machine(
        name=f"{name}({num_devices})",
        num_devices=_devices(name, num_devices),
        devices_per_node=per_node,
        peak_flops=(("f32", 15.7 * TFLOP), ("f16", 125 * TFLOP), ("bf16", 15.7 * TFLOP), ("f64", 7.8 * TFLOP)),  # [S]
        vector_flops=15.7 * TFLOP,  # [S]
        memory_bandwidth=900 * GB,  # [S]
        memory_bytes=32 * GB,
        inside=Link(bandwidth=inside, latency=_NVLINK_HOP),  # 150 peak, 120-135 achieved [K]
        between=Link(bandwidth=between, latency=_NETWORK_HOP),
        nccl=_NCCL,
        host_bandwidth=12 * GB,  # PCIe 3: 16 peak [S], 12 achieved [K]
        matrix_tile=(128, 128, 32),
        matrix_units=80,  # [S]
        compute_efficiency=0.8,  # 85-105 of 125 achieved [K]
        memory_efficiency=0.85,
        **_ON_CARDS,
    )


_A100 = Chip(
    kind="NVIDIA A100-SXM4-80GB",  # [C]
    compute_capability=(8, 0),
    is_accelerated=False,
    lanes=64,  # [S]
    shared_memory=164 * KIB,  # [S]
    l2_cache=40 * KIB * KIB,  # [S]
    links=12,  # [S]
)


_A100_40GB = replace(_A100, kind="NVIDIA A100-SXM4-40GB")  # [C]


def a100(num_devices: int = 8) -> Machine:
    """A100 SXM 80 GB in nodes of 8, one 200 Gb/s card a device.

    >>> a100(16).num_nodes
    2
    """
    return _ampere("a100", num_devices, memory=80 * GB, bandwidth=2.0e12, chip=_A100)  # [S]


def a100_40gb(num_devices: int = 8) -> Machine:
    """A100 SXM 40 GB: an A100 with less and slower memory.

    >>> a100_40gb().memory_bytes
    40000000000.0
    """
    return _ampere("a100_40gb", num_devices, memory=40 * GB, bandwidth=1.555e12, chip=_A100_40GB)  # [S]


@lru_cache
def _ampere(name: str, num_devices: int, *, memory: float, bandwidth: float, chip: Chip) -> Machine:
    return Machine(
        name=f"{name}({num_devices})",
        num_devices=_devices(name, num_devices),
        devices_per_node=8,
        peak_flops=(  # [S]
            ("f32", 156 * TFLOP),  # TF32, which XLA uses for f32 products at default precision
            ("f16", 312 * TFLOP),
            ("bf16", 312 * TFLOP),
            ("s8", 624 * TFLOP),
            ("f64", 19.5 * TFLOP),
        ),
        vector_flops=19.5 * TFLOP,  # [S]
        memory_bandwidth=bandwidth,
        memory_bytes=memory,
        inside=Link(bandwidth=235 * GB, latency=0.81 * US),  # 300 peak; 235 achieved [N]; hop [F]
        between=Link(bandwidth=24 * GB, latency=_NETWORK_HOP),  # HDR: 25 peak, 24 achieved [K]
        nccl=replace(_NCCL, ll128_bandwidth=176 * GB),  # [F]
        host_bandwidth=25 * GB,  # PCIe 4: 64 GB/s both ways [S], 25 of 32 achieved [K]
        matrix_tile=(128, 128, 32),
        matrix_units=108,  # [S]
        attention_efficiency=1.0,  # FlashAttention-2: 225 of 312 forward at best, exponentials among that [K]
        attention_backward=0.83,  # 196 of 312 at best, likewise [K]
        compute_efficiency=0.82,  # 257 of 312 on random numbers: power, not units, is the limit [K]
        memory_efficiency=0.85,
        chip=chip,
        **_ON_AMPERE,
    )


_HOPPER_FLOPS = (  # dense [S]
    ("f32", 495 * TFLOP),  # TF32
    ("f16", 990 * TFLOP),
    ("bf16", 990 * TFLOP),
    ("f8", 1979 * TFLOP),
    ("s8", 1979 * TFLOP),
    ("f64", 67 * TFLOP),
)


_H100 = Chip(
    kind="NVIDIA H100 80GB HBM3",  # [C]
    compute_capability=(9, 0),
    is_accelerated=True,
    lanes=128,  # [S]
    shared_memory=228 * KIB,  # [S]
    l2_cache=50 * KIB * KIB,  # [S]
    links=18,  # [S]
)


_H200, _H100_96GB = replace(_H100, kind="NVIDIA H200"), replace(_H100, kind="NVIDIA H100")  # [C]
# Of the clock at 700 W: large products reach 0.6 of the sheet on this card (torchao's `roofline_utils.py`, 2024) [K],
# those that fill a step 0.8 * 0.89 at 700 W [M].  A root of 500/700, too; an H100 of 350 W is at 0.7.
_CLOCK_AT_500_W = 0.6 / (0.8 * 0.89)


def h100(num_devices: int = 8) -> Machine:
    """H100 SXM 80 GB in nodes of 8, one 400 Gb/s card a device.

    >>> h100(16).num_nodes, h100().memory_bytes
    (2, 80000000000.0)
    """
    return _hopper("h100", num_devices, memory=80 * GB, bandwidth=3.35e12, chip=_H100)  # [S]


def h100_96gb(num_devices: int = 8) -> Machine:
    """H100 96 GB with HBM2e, limited to 500 W, as PyTorch's torchtitan was measured on.

    >>> h100_96gb().memory_bytes > h100().memory_bytes, h100_96gb().vector_flops < h100().vector_flops
    (True, True)
    """
    whole = _hopper("h100_96gb", num_devices, memory=96 * GB, bandwidth=2.4e12, chip=_H100_96GB)  # [K]
    return _slower(whole, _CLOCK_AT_500_W)


@lru_cache
def _slower(machine: Machine, clock: float) -> Machine:
    """The same at a share of its clock."""
    return replace(
        machine,
        vector_flops=machine.vector_flops * clock,
        compute_efficiency=machine.compute_efficiency * clock,
    )


def h200(num_devices: int = 8) -> Machine:
    """H200 SXM 141 GB: an H100 with more and faster memory.

    >>> h200().memory_bandwidth > h100().memory_bandwidth
    True
    """
    return _hopper("h200", num_devices, memory=141 * GB, bandwidth=4.8e12, chip=_H200)  # [S]


@lru_cache
def _hopper(name: str, num_devices: int, *, memory: float, bandwidth: float, chip: Chip) -> Machine:
    return Machine(
        name=f"{name}({num_devices})",
        num_devices=_devices(name, num_devices),
        devices_per_node=8,
        peak_flops=_HOPPER_FLOPS,
        vector_flops=67 * TFLOP,  # [S]
        memory_bandwidth=bandwidth,
        memory_bytes=memory,
        inside=Link(bandwidth=370 * GB, latency=_NVLINK_HOP),  # 450 peak; <= 370 achieved even at 10 GB [S]
        between=Link(bandwidth=44 * GB, latency=_NETWORK_HOP),  # 400 GB/s a node [S], 350 achieved [K]
        # LL128 reaches 0.68 of the model's 300 GB/s [K]; the switches 0.85 in 15 of 16 channels [N]
        nccl=replace(_NCCL, ll128_bandwidth=205 * GB, nvls_efficiency=0.85 * 15 / 16),
        host_bandwidth=55 * GB,  # PCIe 5: 128 GB/s both ways [S], 55 of 64 achieved [K]
        matrix_tile=(128, 128, 64),
        matrix_units=132,  # [S]
        # On an H100 [M]: products alone 690-735 of 990 for seconds, among other kernels, which leave power, 740-860.
        compute_efficiency=0.8,
        sustained=0.89,
        memory_efficiency=0.9,  # 3.0 of 3.35e12 [M]
        chip=chip,
        **_ON_CARDS,
    )


def b200(num_devices: int = 8) -> Machine:
    """B200 180 GB in nodes of 8.

    >>> b200().flops("bf16")
    2250000000000000.0
    """
    return _blackwell("b200", num_devices, per_node=8, host=55 * GB)  # PCIe 5, as Hopper's


def gb200_nvl72(num_devices: int = 72) -> Machine:
    """GB200 NVL72: 72 Blackwell devices behind one NVSwitch fabric.

    >>> gb200_nvl72().num_nodes
    1
    """
    # NVLink-C2C: 900 GB/s both ways for the two devices of a Grace [S]; Hopper's achieved share assumed.
    return _blackwell("gb200_nvl72", num_devices, per_node=72, host=190 * GB)


@lru_cache
def _blackwell(name: str, num_devices: int, *, per_node: int, host: float) -> Machine:
    chip = Chip(
        kind=f"NVIDIA {name.partition('_')[0].upper()}",  # [C]
        compute_capability=(10, 0),
        is_accelerated=True,
        lanes=128,  # [C]
        shared_memory=228 * KIB,  # [S]
        l2_cache=129_536 * KIB,  # [C]
        links=18,  # [S]
    )
    return Machine(
        name=f"{name}({num_devices})",
        num_devices=_devices(name, num_devices),
        devices_per_node=per_node,
        peak_flops=(  # dense [S]
            ("f32", 1100 * TFLOP),  # TF32
            ("f16", 2250 * TFLOP),
            ("bf16", 2250 * TFLOP),
            ("f8", 4500 * TFLOP),
            ("s8", 4500 * TFLOP),
            ("f64", 40 * TFLOP),
        ),
        vector_flops=80 * TFLOP,  # [S]
        memory_bandwidth=8.0e12,  # [S]
        memory_bytes=180 * GB,
        inside=Link(bandwidth=740 * GB, latency=_NVLINK_HOP),  # 900 peak; Hopper's achieved share assumed
        between=Link(bandwidth=44 * GB, latency=_NETWORK_HOP),  # 400 / 3600 GB/s a node of 8 / 72 [S], as Hopper's
        # channels twice as fast as Hopper's, switches 0.74 [N]
        nccl=replace(_NCCL, ll128_bandwidth=410 * GB, nvls_efficiency=0.74 * 15 / 16),
        host_bandwidth=host,
        matrix_tile=(128, 256, 64),
        matrix_units=148,  # [C]
        compute_efficiency=0.75,
        memory_efficiency=0.85,
        chip=chip,
        **_ON_CARDS,
    )


def tpu_v4p(num_devices: int = 64) -> Machine:
    """TPU v4p: 3-D torus, 45 GB/s a link and direction.

    >>> tpu_v4p(64).torus
    (4, 4, 4)
    """
    # To the host 16 [S].
    return _tpu(
        "tpu_v4p", num_devices, flops=275, vector=4.3, memory=32, bandwidth=1.2e12, link=45, rank=3, wrap=4, host=16
    )


def tpu_v5p(num_devices: int = 64) -> Machine:
    """TPU v5p: 3-D torus, 90 GB/s a link and direction.

    >>> tpu_v5p(8).torus
    (2, 2, 2)
    """
    # 100 nominal, 90 used [S].
    return _tpu("tpu_v5p", num_devices, flops=459, vector=7.0, memory=96, bandwidth=2.8e12, link=90, rank=3, wrap=4)


def tpu_v5e(num_devices: int = 16) -> Machine:
    """TPU v5e: 2-D torus of at most 16x16, closed only where an axis has 16 devices.

    >>> tpu_v5e(16).torus, tpu_v5e(256).torus
    ((4, 4), (16, 16))
    """
    return _tpu("tpu_v5e", num_devices, flops=197, vector=3.1, memory=16, bandwidth=0.81e12, link=45, rank=2, wrap=16)


def tpu_v6e(num_devices: int = 16) -> Machine:
    """TPU v6e (Trillium): 2-D torus, 90 GB/s a link and direction.

    >>> tpu_v6e(8).torus
    (2, 4)
    """
    # To the host 15 [S].
    return _tpu(
        "tpu_v6e",
        num_devices,
        flops=920,
        vector=14,
        memory=32,
        bandwidth=1.6e12,
        link=90,
        rank=2,
        wrap=16,
        tile=256,
        host=15,
    )


def tpu_v7(num_devices: int = 16) -> Machine:
    """TPU v7 (Ironwood): 3-D torus.  A device is one of the two cores of a chip, as JAX counts them: it has half of the
    chip's memory and of its links; `tpu_v7(128)` is 64 chips.

    >>> tpu_v7(128).torus, 2 * tpu_v7().flops("bf16")
    ((4, 4, 8), 2307000000000000.0)
    """
    # A chip has 600 GB/s each way on six links [S], 90 of 100 used as on v5p; links between its cores are faster.
    # Products of 32,768 reach 956 of 1,153 TFLOP/s in bf16 (Google's accelerator-microbenchmarks) [K].
    return _tpu(
        "tpu_v7",
        num_devices,
        flops=2307 / 2,
        vector=2307 / 2 / 64,
        memory=192 * KIB**3 / GB / 2,
        bandwidth=7.38e12 / 2,
        link=90 / 2,
        rank=3,
        wrap=4,
        tile=256,
        narrow="f8",
        efficiency=0.83,
    )


@lru_cache
def _tpu(
    name: str,
    num_devices: int,
    *,
    flops: float,
    vector: float,
    memory: float,
    bandwidth: float,
    link: float,
    rank: int,
    wrap: int,
    tile: int = 128,
    host: float = 0.0,
    narrow: str = "s8",
    efficiency: float = 0.9,
) -> Machine:
    torus = near_cube(_devices(name, num_devices), rank)
    return Machine(
        name=f"{name}({num_devices})",
        num_devices=num_devices,
        devices_per_node=prod(torus),  # one slice: all devices within reach of ICI
        peak_flops=(("f32", flops * TFLOP / 6), ("bf16", flops * TFLOP), (narrow, 2 * flops * TFLOP)),
        # f32 products take six bf16 passes at full precision, the matrix unit having no f32 [S].
        vector_flops=vector * TFLOP,  # 1/64 of the matrix unit, roughly [S]
        memory_bandwidth=bandwidth,
        memory_bytes=memory * GB,
        inside=Link(bandwidth=link * GB, latency=1.0 * US),  # hop 0.5-1 us [S]
        between=Link(bandwidth=25 * GB / 4, latency=10 * US),  # 25 GB/s a host of 4 chips [S]
        host_bandwidth=host * GB,
        launch=1.0 * US,
        collective_launch=1.0 * US,
        platform="tpu",
        topology="torus",
        torus=torus,
        wrap_multiple=wrap,
        matrix_tile=(8, tile, tile),  # rows pad to 8, columns and depth to the systolic array [S]
        compute_efficiency=efficiency,
        memory_efficiency=0.9,
    )


@lru_cache
def cpu(num_devices: int = 8) -> Machine:
    """Forced host devices of one CPU: ranks take turns on the cores, so every rate is a share of the whole.

    Measured on 2 cores with 8 devices [M]: a collective costs about 35 us a rank to dispatch, 16 MB move at 2.1 GB/s,
    f32 products run at 370 GFLOP/s in all.  Good for ranking; absolute times scatter by a factor of two.

    >>> cpu(8).flops("f32") * 8
    370000000000.0
    """
    ways = _devices("cpu", num_devices)
    return Machine(
        name=f"cpu({num_devices})",
        num_devices=num_devices,
        devices_per_node=num_devices,
        peak_flops=(("f32", 370e9 / ways), ("f64", 185e9 / ways), ("bf16", 90e9 / ways)),  # [M]; bf16 is emulated
        vector_flops=40e9 / ways,
        memory_bandwidth=20 * GB / ways,
        memory_bytes=24 * GB / ways,
        inside=Link(bandwidth=2.1 * GB, latency=1.0 * US),  # permute of 16 MB on 8 devices: 7.8 ms [M]
        between=Link(bandwidth=1.0 * GB, latency=50 * US),
        host_bandwidth=10 * GB / ways,  # the same memory: a copy reads and writes it
        launch=1.0 * US,
        collective_launch=35.0 * US * ways,  # [M]
        compute_efficiency=1.0,
        memory_efficiency=1.0,
        platform="cpu",
    )


def _devices(name: str, num_devices: int) -> int:
    if not is_count(num_devices):
        raise CostError(f"machine {name!r} with {num_devices} devices", remedy="give at least one device")
    return num_devices
