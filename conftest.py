"""What every test and doctest runs under: eight CPU devices, fixed seeds, golden files behind a flag.

JAX reads its environment once, so this stands at the root, where pytest reads it before any test module.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    import jax

CPU_DEVICES = 8
XLA_FLAGS = {
    "--xla_force_host_platform_device_count": CPU_DEVICES,
    # Most of what dear tests take is LLVM; what it would optimize runs once, on little data: 0.57 of the CPU time.
    "--xla_backend_optimization_level": 0,
}
PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")


def has_cuda_plugin() -> bool:
    """Can JAX have a GPU here?  Asked without starting JAX."""
    return Path("/dev/nvidiactl").exists() and any(importlib.util.find_spec(name) for name in PLUGINS)


def set_environment() -> None:
    """Eight CPU devices, CPU as the default platform, GPUs visible beside it where there are any."""
    said = os.environ.get("XLA_FLAGS", "")
    ours = [f"{flag}={value}" for flag, value in XLA_FLAGS.items() if flag not in said]
    os.environ["XLA_FLAGS"] = " ".join([said, *ours]).strip()
    os.environ.setdefault("JAX_PLATFORMS", "cpu,cuda" if has_cuda_plugin() else "cpu")
    # Several test processes share one GPU: none may take its memory in advance.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    # XLA says on every compile with GSPMD that GSPMD will go; tests/oracle pins the versions that have it.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


set_environment()

RELAXED: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": (HealthCheck.too_slow, HealthCheck.data_too_large),
}
settings.register_profile("ci", derandomize=True, database=None, max_examples=50, **RELAXED)
settings.register_profile("thorough", max_examples=1000, **RELAXED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files from what the code does now")
    parser.addoption("--quick", action="store_true", help="all cheap tests, and a share of the dear ones (tests/tiers)")
    parser.addoption("--share", help="which share, from 0 to 9, or none (default: number of commits modulo 10)")
    parser.addoption("--record-cpu-seconds", action="store_true", help="write down what each test function takes")


def pytest_configure(config: pytest.Config) -> None:
    from tests.tiers import RECORD, QuickSet, Recorder, chosen_share

    if config.getoption("--record-cpu-seconds"):
        is_whole = not config.getoption("--quick") and config.args_source is not pytest.Config.ArgsSource.ARGS
        config.pluginmanager.register(Recorder(RECORD, is_whole))
    if config.getoption("--quick"):
        config.pluginmanager.register(QuickSet(RECORD, chosen_share(config.getoption("--share"), config.rootpath)))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for marker, why_not in WHY_NOT.items():
        marked = [item for item in items if item.get_closest_marker(marker)]
        reason = why_not() if marked else None
        if reason:
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_runtest_teardown() -> None:
    """Executables go where there are many: LLVM maps four pieces of memory for each, and XLA aborts a process that has
    65,530, what Linux allows by default; one of two that shared all tests came there."""
    mappings = Path("/proc/self/maps")
    if next(_tests) % 16 == 0 and mappings.exists() and mappings.read_bytes().count(b"\n") > MANY_MAPPINGS:
        import jax

        jax.clear_caches()


_tests = count()
MANY_MAPPINGS = 30_000
"""Half of what a process may have; a test adds up to 900 (steps of published plans), and each sixteenth asks."""


def why_no_gpu() -> str | None:
    """The reason why JAX sees no GPU here, or None where it sees one."""
    if not has_cuda_plugin():
        return "no NVIDIA device, or no CUDA plugin of JAX, on this machine"
    import jax

    try:
        jax.devices("cuda")
    except RuntimeError as error:
        return f"JAX sees no GPU: {error}"
    return None


def why_no_gpu_compiler() -> str | None:
    """The reason why XLA cannot compile for GPUs here, seen or not, or None where it can."""
    if any(importlib.util.find_spec(name) for name in PLUGINS):
        return None
    return "no CUDA plugin of JAX: pip install 'hlosharding[cuda12]'; it needs no GPU"


def why_no_oracle() -> str | None:
    """The reason why the XLA in jaxlib cannot be asked, or None where it can be."""
    from hlosharding import xla_bridge

    return None if xla_bridge.has_gspmd_lowering() else "this JAX and its jaxlib have no GSPMD"


WHY_NOT = {"gpu": why_no_gpu, "gpu_compiler": why_no_gpu_compiler, "oracle": why_no_oracle}
"""What a test may need, by its mark, and the reason why that is not here."""


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Is this run to write the golden files rather than to compare with them?"""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def no_rules_stay() -> Iterator[None]:
    """Rules that a test registers go with it: others register some of the same names."""
    import hlosharding as hs
    from hlosharding.rules.custom_calls import users_calls

    before = set(users_calls)
    yield
    for target in set(users_calls) - before:
        hs.unregister_rule(target)


@pytest.fixture(scope="session")
def cpu_devices() -> list[Any]:
    """The eight CPU devices."""
    import jax

    return jax.devices("cpu")


@pytest.fixture(scope="session")
def gpu_devices() -> list[Any]:
    """All GPUs; only for tests marked `gpu`."""
    import jax

    return jax.devices("cuda")


@pytest.fixture(scope="session")
def mesh_2x4(cpu_devices: list[Any]) -> jax.sharding.Mesh:
    """Two by four CPU devices, axes `data` and `model`."""
    import jax
    import numpy as np

    return jax.sharding.Mesh(np.array(cpu_devices).reshape(2, 4), ("data", "model"))
