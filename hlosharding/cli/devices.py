"""The devices that a command runs on: forced CPU devices, or GPUs.

Floor: cli.
"""

from __future__ import annotations

import os
import re
import sys

from hlosharding.errors import ExecutionError

_FORCED = re.compile(r"--xla_force_host_platform_device_count=\d+")


def choose_devices(platform: str, count: int) -> None:
    """Ask JAX for `count` CPU devices, or for its GPUs; too late, and without effect, once JAX runs."""
    if "jax" in sys.modules:
        return
    # The CPU stays visible beside GPUs: the one device of --check.
    os.environ["JAX_PLATFORMS"] = "cpu" if platform == "cpu" else f"{platform},cpu"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if platform == "cpu":
        flags = _FORCED.sub("", os.environ.get("XLA_FLAGS", ""))
        os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={count}".strip()


def require(platform: str) -> None:
    """Raise ExecutionError where JAX has no devices of the platform."""
    import jax

    if platform == "cuda" and jax.default_backend() == "cpu":
        remedy = "leave --platform out to run on CPU devices; for GPUs install hlosharding[cuda12]"
        raise ExecutionError("--platform cuda: JAX sees no GPU", remedy=remedy)


def use(platform: str, count: int | None) -> int:
    """Take devices for a command that measures them, and say how many: on the CPU 8 where nobody says."""
    choose_devices(platform, count or _CPU_DEVICES)
    require(platform)
    import jax

    there = len(jax.devices())
    if count is not None and count > there:
        raise ExecutionError(f"-n {count}: JAX has {there} devices", remedy=f"take {there} at most")
    return count or there


_CPU_DEVICES = 8
