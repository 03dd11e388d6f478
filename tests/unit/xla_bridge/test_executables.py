"""What JAX's compilation cache keeps is found under the name that we say, and runs as what was compiled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from hlosharding import xla_bridge
from hlosharding.xla_bridge import FlatProgram, StoredExecutable, compilation_key, read_executable, stored_executable


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    names = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"
    old = {name: getattr(jax.config, name) for name in names}
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    compilation_cache.reset_cache()
    yield tmp_path
    for name, value in old.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def lowered() -> tuple[Any, FlatProgram]:
    devices = tuple(jax.devices()[:8])
    split = NamedSharding(Mesh(np.array(devices), ("x",)), P("x"))
    given = jax.ShapeDtypeStruct((8, 4), np.float32, sharding=split)
    jitted = jax.jit(lambda x, unused, y: (x + 1, y * 2), in_shardings=split, out_shardings=split)
    return jitted.lower(given, given, given), FlatProgram("f", devices, [given] * 3, [given] * 2, (), {})


def test_an_executable_is_found_and_runs(cache: Path) -> None:
    made, program = lowered()
    compiled = made.compile()
    stored = stored_executable(made, program.devices, {})
    assert stored is not None
    assert (cache / f"{stored.name}-cache").exists()
    found = read_executable(stored, program)
    x = jax.device_put(np.arange(32, dtype=np.float32).reshape(8, 4), program.inputs[0].sharding)
    for one, other in zip(compiled(x, x, 2 * x), found(x, x, 2 * x), strict=True):
        assert np.array_equal(one, other)
        assert (one.aval, one.sharding, one.committed) == (other.aval, other.sharding, other.committed)
    assert found.cost_analysis() == compiled.cost_analysis()
    with pytest.raises(TypeError):
        found(x, x, x[:4])


def test_what_was_not_kept_has_no_name(cache: Path) -> None:
    made, program = lowered()
    assert stored_executable(made, program.devices, {}) is None
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1000.0)
    made.compile()
    assert stored_executable(made, program.devices, {}) is None
    assert read_executable(StoredExecutable(f"jit_f-{'0' * 64}", (0, 2)), program) is None


def test_no_name_leads_out_of_the_folder(cache: Path) -> None:
    made, program = lowered()
    made.compile()
    stored = stored_executable(made, program.devices, {})
    assert stored is not None
    (cache / "inner").mkdir()
    jax.config.update("jax_compilation_cache_dir", str(cache / "inner"))
    compilation_cache.reset_cache()
    for name in (f"../{stored.name}", str(cache / stored.name)):
        assert read_executable(replace(stored, name=name), program) is None


def test_options_and_devices_tell_compilations_apart() -> None:
    devices = jax.devices()
    keys = [
        compilation_key(devices[:8], {}),
        compilation_key(devices[:4], {}),
        compilation_key(devices[:8], {"xla_cpu_enable_fast_math": True}),
    ]
    assert None not in keys
    assert len(set(keys)) == 3
    assert keys[0] == compilation_key(devices[:8], {})


def test_options_that_xla_does_not_know_are_told_from_those_it_does() -> None:
    device = jax.devices()[0]
    assert xla_bridge.has_compiler_option("xla_cpu_enable_fast_math", device)
    assert not xla_bridge.has_compiler_option("xla_no_such_option", device)
