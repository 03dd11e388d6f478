"""A second process reads the program that a first one partitioned, and finds all of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from threading import Thread
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.compiler import warm_start
from hlosharding.compiler.program_cache import FOLDER, ProgramCache, program_key
from hlosharding.compiler.warm_start import forget
from hlosharding.cost import machines
from hlosharding.executor import Executable
from hlosharding.ir import Module, digest
from hlosharding.partitioner import PartitionOptions

SCRIPT = """
import json, os, re, sys

import jax, numpy as np
from jax.sharding import Mesh, PartitionSpec as P

import hlosharding as hs
from hlosharding.compiler import alternatives, partitioned, warm_start
from hlosharding.propagation import propagate

passes = []
def counted(function):
    def call(*arguments, **keywords):
        passes.append(function.__name__)
        return function(*arguments, **keywords)
    return call
partitioned.propagate = warm_start.propagate = counted(propagate)
alternatives.partition_module = counted(alternatives.partition_module)

mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
def layers(x, w, v):
    h = jax.numpy.tanh(x @ w)
    return {"y": h @ v, "mean": h.mean(0)}
step = hs.jit(layers, mesh=mesh, in_shardings=(P("data"), P(None, "model"), P("model")))
x, w, v = (np.arange(n * m, dtype=np.float32).reshape(n, m) / (n * m) for n, m in ((8, 16), (16, 32), (32, 16)))
result = step(x, w, v)
ran = list(passes)
stage = step.lower(x, w, v)
program = stage.partitioned
names = [i.name for i in stage.traced.module.entry.instructions]
print(json.dumps({
    "passes": ran,
    "result": {k: np.asarray(a).tolist() for k, a in result.items()},
    "shardings": {k: str(a.sharding) for k, a in result.items()},
    # But for the line of this script that had it lowered: a warm start puts that off.
    "text": re.sub("(?m)^1 .file_name_id=1 function_name_id=1 .*$", "", program.to_hlo_text(metadata=True)),
    "source": program.as_python(),
    "overrides": list(map(str, program.sharding_overrides)),
    "warnings": list(program.warnings),
    "cost": str(program.cost),
    "collectives": list(map(str, program.collectives)),
    "explanations": [str(program.propagation.explain(name)) for name in names],
}))
"""


def run(script: Path, cache: Path, **settings: str) -> dict[str, Any]:
    """What one process finds."""
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        **settings,
    }
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "layers.py"
    path.write_text(SCRIPT)
    return path


def files(cache: Path) -> list[Path]:
    return sorted((cache / FOLDER).iterdir())


def test_a_second_process_repeats_no_pass_and_finds_the_same(script: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first, second = run(script, cache), run(script, cache)
    assert {"propagate", "partition_module"} <= set(first.pop("passes"))
    assert second.pop("passes") == []
    assert second == first
    assert len(files(cache)) == 1


def test_source_lines_are_those_of_the_process_that_asks(script: Path, tmp_path: Path) -> None:
    cache, moved = tmp_path / "cache", tmp_path / "moved.py"
    moved.write_text("\n# A comment.\n" + script.read_text())
    run(script, cache)
    found, wanted = run(moved, cache), run(moved, tmp_path / "empty")
    assert found.pop("passes") == []
    assert wanted.pop("passes")
    assert found == wanted
    assert "moved.py" in found["text"]
    assert len(files(cache)) == 1


def test_two_processes_at_once_leave_one_whole_file(script: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda _: run(script, cache)["result"], range(2)))
    assert results[0] == results[1]
    assert len(files(cache)) == 1
    assert run(script, cache)["passes"] == []


def test_a_program_that_was_made_quickly_is_not_kept(script: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    run(script, cache, JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="1000")
    assert not (cache / FOLDER).exists()


# In one process


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    """JAX's compilation cache in a folder of its own, for one test."""
    names = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs", "jax_compilation_cache_max_size"
    old = {name: getattr(jax.config, name) for name in names}
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    compilation_cache.reset_cache()
    forget()
    yield tmp_path
    for name, value in old.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture
def partitions(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Grows by one with each walk of the partitioner."""
    from hlosharding.compiler import alternatives

    seen: list[Any] = []
    walk = alternatives.partition_module

    def counted(*arguments: Any, **keywords: Any) -> Any:
        seen.append(arguments)
        return walk(*arguments, **keywords)

    monkeypatch.setattr(alternatives, "partition_module", counted)
    return seen


def mesh() -> Mesh:
    return Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))


def traced(scale: float = 1.0) -> Any:
    step = hs.jit(lambda x, w: scale * (x @ w), mesh=mesh(), in_shardings=(P("data", "model"), P("model")))
    return step.trace(jnp.ones((8, 16)), jnp.ones((16, 4)))


def test_a_damaged_file_is_ignored_and_written_anew(cache: Path, partitions: list[Any]) -> None:
    traced().lower().compile()
    (path,) = files(cache)
    whole = path.read_bytes()
    for damaged in (b"", b"other", whole[:-1], whole[: len(whole) // 2], whole[:-10] + b"0123456789"):
        path.write_bytes(damaged)
        forget()
        before = len(partitions)
        assert float(traced().lower().compile()(jnp.ones((8, 16)), jnp.ones((16, 4)))[0, 0]) == 16.0
        made = len(partitions)
        assert made > before
        forget()
        traced().lower()
        assert len(partitions) == made
    assert files(cache) == [path]


def test_a_file_of_another_program_under_this_name_is_ignored(cache: Path, partitions: list[Any]) -> None:
    traced().lower().compile()
    (one,) = files(cache)
    traced(2.0).lower().compile()
    (other,) = set(files(cache)) - {one}
    other.write_bytes(one.read_bytes())
    forget()
    before = len(partitions)
    assert float(traced(2.0).lower().compile()(jnp.ones((8, 16)), jnp.ones((16, 4)))[0, 0]) == 32.0
    assert len(partitions) > before


MAGIC = b"hlosharding program 2\n"


def signed(record: dict[str, Any] | bytes, program: bytes = b"") -> bytes:
    """A file with a right checksum."""
    head = record if isinstance(record, bytes) else json.dumps(record).encode()
    body = len(head).to_bytes(8, "big") + head + program
    return MAGIC + sha256(body).digest() + body


def crafted(whole: bytes) -> Iterator[bytes]:
    """What somebody made of a file, and signed."""
    body = whole[len(MAGIC) + 32 :]
    end = 8 + int.from_bytes(body[:8], "big")
    record, program = json.loads(body[8:end]), body[end:]
    yield MAGIC + sha256(b"").digest()
    yield signed(b"[" * 200_000)
    yield signed(b"[]", program)
    yield signed(b"9" * 5000, program)
    for count in (float("inf"), 2, 0, -8, 10**9, "8", None, [8]):
        yield signed(record | {"num_partitions": count}, program)
    yield signed(record | {"overrides": [["no such name", "{replicated}", "{replicated}", ""]]}, program)
    yield signed(record | {"warnings": 3}, program)
    yield signed(record, program[: len(program) // 2])
    for text in OTHERS:
        yield signed(record, hs.load(text).to_hlo_proto())


def crafted_executables(whole: bytes) -> Iterator[bytes]:
    """What somebody made of what a file says of JAX's executable."""
    body = whole[len(MAGIC) + 32 :]
    end = 8 + int.from_bytes(body[:8], "big")
    record, program = json.loads(body[8:end]), body[end:]
    good = record["executable"]
    assert good is not None
    rows = good["inputs"]
    for other in (
        None,
        [],
        "x",
        {},
        *(good | {"name": name} for name in ("", "x", "../" + good["name"], "/" + good["name"], "nothing-" + "0" * 64)),
        good | {"axes": [["a"], [2], [0, 1]]},
        good | {"axes": [["a"], [8], [0] * 8]},
        good | {"axes": 3},
        good | {"taken": [0]},
        good | {"taken": [0, 1, 2]},
        good | {"taken": [1, 0]},
        good | {"taken": 3},
        good | {"inputs": rows[:1]},
        good | {"inputs": [["f32[9,16]", *rows[0][1:]], rows[1]]},
        good | {"inputs": [["s32[8,16]", *rows[0][1:]], rows[1]]},
        good | {"inputs": [[rows[0][0], "{devices=[", *rows[0][2:]], rows[1]]},
        good | {"outputs": [[*good["outputs"][0][:5], {"devices": [99]}]]},
        good | {"user_mesh": [1]},
    ):
        yield signed(record | {"executable": other}, program)


OTHERS = (
    "HloModule m, num_partitions=8\nENTRY e {\n  ROOT x = f32[8] parameter(0), sharding={replicated}\n}\n",
    # As many arrays, of other sizes.
    "HloModule m, num_partitions=8\nENTRY e {\n  x = f32[8] parameter(0), sharding={replicated}\n"
    "  y = f32[8] parameter(1), sharding={replicated}\n  ROOT z = f32[8] add(x, y), sharding={replicated}\n}\n",
    # As many, of the sizes of all.
    "HloModule m, num_partitions=8\nENTRY e {\n  x = s32[8,16] parameter(0), sharding={replicated}\n"
    "  y = f32[16,4] parameter(1), sharding={replicated}\n"
    "  ROOT z = f32[8,4] broadcast(f32[] constant(0)), dimensions={}, sharding={replicated}\n}\n",
)


def test_a_file_that_somebody_made_and_signed_is_ignored(cache: Path) -> None:
    stage = traced().lower()
    stage.compile()
    (path,) = files(cache)
    source, signature = stage.traced.module, stage.traced.call.signature
    whole = path.read_bytes()

    def program() -> Any:
        entry = ProgramCache(path.parent).read(path.name)
        return entry and entry.program(source)

    assert program() is not None
    for number, data in enumerate(crafted(whole)):
        path.write_bytes(data)
        assert program() is None, number
    for number, data in enumerate(crafted_executables(whole)):
        path.write_bytes(data)
        entry = ProgramCache(path.parent).read(path.name)
        assert entry is not None
        kept = entry.executable(signature)
        found = Executable(kept.boundary, signature.devices or (), signature=signature) if kept is not None else None
        assert found is None or kept is None or not found.load(kept.stored), number
    path.unlink()
    os.mkfifo(path)
    assert program() is None


def test_options_of_the_explicit_stage_are_told_apart(cache: Path, partitions: list[Any]) -> None:
    propagated = traced().propagate()
    propagated.partition().compile()
    propagated.partition(options=PartitionOptions(objective="bytes")).compile()
    propagated.partition(machine=machines.a100(8)).compile()
    assert len(files(cache)) == 3
    before = len(partitions)
    propagated.partition(options=PartitionOptions(objective="bytes"))
    assert len(partitions) == before


def test_without_jax_s_cache_nothing_is_kept(tmp_path: Path) -> None:
    assert jax.config.jax_compilation_cache_dir is None  # pyright: ignore[reportAttributeAccessIssue]
    assert ProgramCache.of_jax() is None
    traced().lower().compile()
    assert list(tmp_path.iterdir()) == []


def test_the_cache_is_off_where_jax_s_is(cache: Path) -> None:
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        assert ProgramCache.of_jax() is None
    finally:
        jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_compilation_cache_dir", "gs://bucket/cache")
    assert ProgramCache.of_jax() is None


def test_what_was_not_used_for_longest_makes_room(tmp_path: Path) -> None:
    partitioned = traced().propagate().partition().partitioned
    program = partitioned.local
    one = ProgramCache(tmp_path)
    for number, key in enumerate("ab"):
        one.write(key, program, 1.0)
        os.utime(tmp_path / key, (number, number))
    size = (tmp_path / "a").stat().st_size
    two = replace(one, max_bytes=2 * size + size // 2)
    assert two.read("a") is not None
    two.write("c", program, 1.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "c"]
    replace(one, max_bytes=size - 1).write("d", program, 1.0)
    replace(one, min_bytes=size + 1).write("e", program, 1.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "c"]


def test_files_that_another_process_deletes_meanwhile_are_no_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = traced().propagate().partition().partitioned.local
    kept = ProgramCache(tmp_path, max_bytes=1 << 30)
    kept.write("a", program, 1.0)
    usual = os.scandir

    def scan(folder: Path) -> list[Any]:
        found = list(usual(folder))
        (tmp_path / "a").unlink()
        return found

    monkeypatch.setattr(os, "scandir", scan)
    kept.write("b", program, 1.0)  # a warning would be an error here
    assert kept.read("b") is not None


@pytest.mark.parametrize("letter", ["a", "\xe9", "\u540d", "\U00020000", "\ud800"])
def test_functions_with_long_names_are_kept(letter: str, tmp_path: Path) -> None:
    module = hs.load(TEXT)
    module.name = "step_" + letter * 300
    key = program_key(module, machines.h100(2))
    assert key is not None
    kept = ProgramCache(tmp_path)
    kept.write(key, traced().propagate().partition().partitioned.local, 1.0)
    assert key.startswith("step_")
    assert kept.read(key) is not None


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    program = traced().propagate().partition().partitioned.local
    with pytest.warns(UserWarning, match="not kept"):
        ProgramCache(tmp_path / "file").write("a", program, 1.0)


TEXT = """HloModule m, num_partitions=2
ENTRY e {
  x = f32[8,4] parameter(0), sharding={devices=[2,1]<=[2]}
  ROOT y = f32[8,4] negate(x)
}"""
CHANGES = (
    ("f32[8,4]", "f32[8,6]"),
    ("negate", "abs"),
    ("{devices=[2,1]<=[2]}", "{devices=[1,2]<=[2]}"),
    ("num_partitions=2", "num_partitions=4"),
    ("x = ", "z = "),
)


def renamed(text: str, old: str, new: str) -> Module:
    changed = text.replace(old, new)
    return hs.load(changed.replace("negate(x)", "negate(z)") if old == "x = " else changed)


@pytest.mark.parametrize("change", CHANGES)
def test_modules_that_differ_have_other_digests(change: tuple[str, str]) -> None:
    assert digest(hs.load(TEXT)) == digest(hs.load(TEXT)) == digest(hs.load(TEXT).clone())
    assert digest(renamed(TEXT, *change)) != digest(hs.load(TEXT))


def test_a_sharding_put_on_by_hand_is_another_program() -> None:
    module = hs.load(TEXT)
    before = digest(module)
    module.shardings[module.by_name("y").id] = hs.HloSharding.replicate()
    assert digest(module) != before


def test_keys_tell_apart_what_a_program_depends_on() -> None:
    module, machine = hs.load(TEXT), machines.h100(2)
    options = [
        None, PartitionOptions(objective="bytes"), PartitionOptions(overlap="auto"), PartitionOptions(trips={"w": 3}),
    ]  # fmt: skip
    keys = {program_key(module, machine, o) for o in options}
    keys |= {program_key(module, m) for m in (machines.a100(2), replace(machine, launch=1.0))}
    keys |= {program_key(module, machine, annotated=frozenset(names)) for names in ((), ("x",))}
    assert len(keys) == 8
    assert None not in keys
    assert program_key(module, machine) == program_key(module, machine, PartitionOptions())


def test_what_no_file_can_hold_has_no_key(tmp_path: Path) -> None:
    machine = machines.h100(2)
    assert program_key(hs.load(TEXT), machine, PartitionOptions(dump_passes=tmp_path)) is None
    calls = hs.jit(lambda x: jax.pure_callback(np.sin, x, x), mesh=mesh(), in_shardings=P("data"))
    assert program_key(calls.trace(jnp.ones(8)).module, machine) is None
    own = TEXT.replace("negate(x)", 'custom-call(x), custom_call_target="warm_start_test"')
    assert program_key(hs.load(own), machine) is not None
    hs.register_rule("warm_start_test", "n m -> n m")
    assert program_key(hs.load(own), machine) is None


# What is found before it is lowered


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows with each function that is lowered, by us or for us."""
    from hlosharding.executor.device_program import DeviceProgram
    from hlosharding.frontends.jax.tracing import TracedCall

    seen: list[str] = []
    for owner, name in ((TracedCall, "_lowered"), (DeviceProgram, "jitted")):
        usual = owner.__dict__[name]

        def spied(self: Any, *arguments: Any, usual: Any = usual, name: str = name) -> Any:
            seen.append(name)
            return usual.func(self) if isinstance(usual, cached_property) else usual(self, *arguments)

        monkeypatch.setattr(owner, name, property(spied) if isinstance(usual, cached_property) else spied)
    return seen


def closure(scale: float) -> Any:
    offset = jnp.full(4, scale)
    return hs.jit(lambda x, w: {"y": x @ w + offset, "sum": x.sum()}, mesh=mesh(), in_shardings=(P("data"), P()))


def test_a_warm_start_lowers_nothing_and_gives_the_same(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = jnp.arange(128.0).reshape(8, 16), jnp.ones((16, 4))
    cold = closure(2.0)(x, w)
    lowered = counted(monkeypatch)
    forget()
    steps = [closure(2.0), closure(2.0)]
    for step in steps:  # from disk; then from memory
        warm = step(x, w)
        assert lowered == []
        for one, other in zip(jax.tree.leaves(cold), jax.tree.leaves(warm), strict=True):
            assert np.array_equal(one, other)
            assert (one.aval, one.sharding, one.committed) == (other.aval, other.sharding, other.committed)
    assert "dot" in steps[0].lower(x, w).compile().as_text()
    assert lowered == []
    assert "def " in steps[0].lower(x, w).as_python()
    assert lowered == ["_lowered"]


def test_another_thread_may_forget_what_is_looked_up(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgotten(OrderedDict[Any, Any]):
        """Another thread forgets all as soon as it is let, when an entry is about to be moved."""

        def move_to_end(self, key: Any, last: bool = True) -> None:
            other = Thread(target=forget)
            other.start()
            other.join(0.1)
            super().move_to_end(key, last)

    monkeypatch.setattr(warm_start, "_ready", Forgotten())
    x, w = jnp.ones((8, 16)), jnp.ones((16, 4))
    for _ in range(2):  # compiled; then looked up
        assert float(closure(2.0)(x, w)["y"][0, 0]) == 18.0


def test_a_closure_over_other_numbers_is_another_program(cache: Path) -> None:
    x, w = jnp.ones((8, 16)), jnp.ones((16, 4))
    assert float(closure(2.0)(x, w)["y"][0, 0]) == 18.0
    assert float(closure(3.0)(x, w)["y"][0, 0]) == 19.0


def test_an_executable_that_jax_lost_is_compiled_anew(cache: Path) -> None:
    x, w = jnp.ones((8, 16)), jnp.ones((16, 4))
    closure(2.0)(x, w)
    for path in cache.glob("*-cache"):
        path.unlink()
    forget()
    assert float(closure(2.0)(x, w)["y"][0, 0]) == 18.0


def test_a_module_that_somebody_changed_is_another_program(cache: Path) -> None:
    x, w = jnp.ones((8, 16)), jnp.ones((16, 4))
    closure(2.0)(x, w)
    stage = closure(2.0).trace(x, w)
    dot = next(i for i in stage.module.instructions if i.opcode == "dot")
    stage.module.shardings[dot.id] = hs.HloSharding.parse("{devices=[1,4,2]<=[8] last_tile_dim_replicate}")
    made = stage.lower().partitioned
    assert made.to_hlo_text() != closure(2.0).lower(x, w).partitioned.to_hlo_text()


def test_lapack_is_there_for_a_program_that_was_not_lowered(tmp_path: Path) -> None:
    path, cache = tmp_path / "cholesky.py", tmp_path / "cache"
    path.write_text(
        """
import json, jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
import hlosharding as hs
mesh = Mesh(np.array(jax.devices()), ("x",))
x = np.stack([np.eye(3, dtype=np.float32) * (n + 1) for n in range(8)])
found = hs.jit(lambda x: jnp.linalg.cholesky(x), mesh=mesh, in_shardings=P("x"))(x)
print(json.dumps({"result": np.asarray(found)[:, 0, 0].tolist()}))
"""
    )
    wanted = np.sqrt(np.arange(1, 9, dtype=np.float32))
    for _ in range(2):
        assert np.allclose(run(path, cache)["result"], wanted)
