"""Annotations written into the source: the copy, traced by a stock JAX, has them, and computes the same."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import jax
import numpy as np
import pytest

import hlosharding as hs
from hlosharding.errors import PlanError
from hlosharding.sharding import MeshInfo

MESH = jax.sharding.AbstractMesh((2, 4), ("data", "model"))
AXES = MeshInfo(MESH.axis_names, MESH.axis_sizes)
SOURCE = '''"""A model."""
import jax.numpy as jnp
from jax import lax
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

SPLIT = NamedSharding(AbstractMesh((2, 4), ("data", "model")), PartitionSpec("data"))


def mlp(x, w1, w2):
    """Two products."""
    h = lax.with_sharding_constraint(jnp.tanh(x @ w1), SPLIT)
    return jnp.einsum("ij,jk->ki", h,
                      w2)


def deep(x, w1, w2):
    for _ in range(2):
        x = jnp.sin(x @ w1)
    return x + w2
'''
ARRAYS = [np.random.default_rng(n).normal(size=(16, 16)).astype(np.float32) for n in range(3)]


@pytest.fixture
def model(tmp_path: Path) -> ModuleType:
    file = tmp_path / "model.py"
    file.write_text(SOURCE)
    return imported(file)


def imported(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def traced(model: ModuleType, name: str = "mlp") -> hs.Module:
    return hs.trace(getattr(model, name), mesh=MESH, in_shardings=(jax.P("data"), None, None))(*ARRAYS)


def split(*spec: str | None) -> hs.HloSharding:
    return hs.HloSharding.unnamed(AXES, [(a,) if a else () for a in spec], 2)


def named(module: hs.Module, opcode: str) -> str:
    return next(inst.name for inst in module.instructions if inst.opcode == opcode)


def test_the_copy_has_every_annotation_and_computes_the_same(model: ModuleType, tmp_path: Path) -> None:
    module = traced(model)
    *_, root = module.entry.instructions
    wanted = {
        "w2.1": split("model", None),  # an argument
        named(module, "dot"): split(None, "model"),  # within another expression
        named(module, "custom-call"): split("data", "model"),  # a constraint is changed, not doubled
        root.name: split(None, "data"),  # a call over two lines
    }
    change = hs.change_source(module, wanted)
    assert change.unsaid == ()
    first, second, third = change.lines  # with numbers of the source
    assert first == "model.py:11: w2 = jax.lax.with_sharding_constraint(w2, sharding_at('model'))"
    assert second.startswith("model.py:11: h = lax.with_sharding_constraint(jnp.tanh(jax.lax.with_sharding_constraint(")
    assert third.startswith('model.py:12: return jax.lax.with_sharding_constraint(jnp.einsum("ij,jk->ki", h, w2), sha')
    change.write(tmp_path / "copy.py")
    after = imported(tmp_path / "copy.py")
    constrained = traced(after)
    said = [constrained.sharding(i) for i in constrained.instructions if i.opcode == "custom-call"]
    assert sorted(map(str, said)) == sorted(map(str, wanted.values()))
    np.testing.assert_allclose(jax.jit(after.mlp)(*ARRAYS), jax.jit(model.mlp)(*ARRAYS), rtol=1e-6)
    on_devices = [jax.device_put(a, jax.NamedSharding(jax.make_mesh((2, 4), MESH.axis_names), jax.P())) for a in ARRAYS]
    np.testing.assert_allclose(jax.jit(after.mlp)(*on_devices), jax.jit(model.mlp)(*ARRAYS), rtol=1e-4)


def test_the_text_is_a_patch(model: ModuleType, tmp_path: Path) -> None:
    module = traced(model)
    change = hs.change_source(module, {named(module, "dot"): split(None, "model"), "x.1": split("model", None)})
    assert change.unsaid == ("in_shardings of x: sharding_at('model')",)  # it has one, of its caller
    subprocess.run(["patch", "-p1", "model.py"], input=str(change), text=True, check=True, cwd=tmp_path)
    assert (tmp_path / "model.py").read_text() == change.after != SOURCE


@pytest.mark.parametrize(
    ("old", "new"),
    [("return x + w2\n", "return x + w2"), ("\n\ndef mlp", "\x0c\ndef mlp"), ("Two products", "Two\u2028products")],
    ids=["no newline at the end", "form feed", "line separator"],
)
@pytest.mark.parametrize("name", ["mlp", "deep"])
def test_so_it_is_of_unusual_lines(name: str, old: str, new: str, tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(SOURCE.replace(old, new))
    module = traced(imported(file), name)
    *_, root = module.entry.instructions
    change = hs.change_source(module, {root.name: split("data", None), "w2.1": split("model", None)}, source=file)
    subprocess.run(["patch", "-p1", "model.py"], input=str(change), text=True, check=True, cwd=tmp_path)
    assert file.read_text() == change.after != change.before
    again = traced(imported(file), name)
    assert len(again.of_opcodes("custom-call")) == len(module.of_opcodes("custom-call")) + 2


def test_what_is_imported_stands_ahead_of_the_function_that_needs_it(model: ModuleType) -> None:
    after = hs.change_source(traced(model), {"w2.1": split("model", None)}).after
    assert after.index("PartitionSpec\nimport jax\n\n\ndef sharding_at") < after.index("SPLIT = ")


def test_of_a_dump_the_file_is_named(model: ModuleType, tmp_path: Path) -> None:
    module = traced(model)
    wanted = {named(module, "dot"): split(None, "model")}
    dump = hs.load(module.to_hlo_text(metadata=True))
    with pytest.raises(PlanError, match="the function's source is not known; name its file"):
        hs.change_source(dump, wanted)
    made = hs.change_source(dump, wanted, source=tmp_path / "model.py", mesh=module.mesh)
    assert made.after == hs.change_source(module, wanted).after


def test_what_no_line_says_is_said(model: ModuleType) -> None:
    module = traced(model, "deep")
    first = named(module, "dot")
    one = hs.change_source(module, {first: split("data", None)})
    assert one.unsaid == ("model.py:18 makes 2 values: all of them get that sharding, and were not priced so",)
    assert one.after.count("with_sharding_constraint(x @ w1, ") == 1
    reversed_rows = hs.HloSharding.parse("{devices=[8,1]7,6,5,4,3,2,1,0}")
    [why] = hs.change_source(module, {first: reversed_rows}).unsaid[:1]
    assert "no PartitionSpec says it" in why
    other = hs.change_source(module, {first: split("data", None)}, source=__file__)
    assert (other.diff, other.before) == ("", other.after)
    assert "no expression of test_source_change.py makes it" in other.unsaid[0]


def test_the_source_itself_is_never_written(model: ModuleType, tmp_path: Path) -> None:
    change = hs.change_source(traced(model), {"w2.1": split("model", None)})
    with pytest.raises(PlanError, match="is the source itself; write a copy"):
        change.write(tmp_path / "model.py")
    assert (tmp_path / "model.py").read_text() == SOURCE


def test_what_is_no_python_is_refused(model: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not ( python")
    with pytest.raises(PlanError, match="is no Python"):
        hs.change_source(traced(model), {"w2.1": split("model", None)}, source=tmp_path / "notes.txt")
