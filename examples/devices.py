"""The mesh an example runs on: all GPUs of the machine, or eight CPU devices where there are none."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh

CPU_DEVICES = 8


def choose_platform() -> None:
    """Ask JAX for its GPUs or for eight CPU devices; call it before anything touches JAX's devices."""
    if has_gpu():
        return
    jax.config.update("jax_platforms", "cpu")
    if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        jax.config.update("jax_num_cpu_devices", CPU_DEVICES)


def has_gpu() -> bool:
    """Is there an NVIDIA device, and a plugin with which JAX can use it?"""
    if os.environ.get("JAX_PLATFORMS", "cuda").split(",")[0] not in ("cuda", "gpu"):
        return False
    plugins = ("jax_cuda12_plugin", "jax_cuda13_plugin")
    return Path("/dev/nvidiactl").exists() and any(importlib.util.find_spec(name) for name in plugins)


def data_by_model(rows: int = 2) -> Mesh:
    """All devices as `rows` x the rest, axes `data` and `model`; one row where the devices do not divide."""
    devices = jax.devices()
    rows = rows if len(devices) % rows == 0 else 1
    return Mesh(np.array(devices).reshape(rows, -1), ("data", "model"))


def one_device() -> Mesh:
    """The same axes on the first device alone: what every answer is compared with."""
    return Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("data", "model"))
