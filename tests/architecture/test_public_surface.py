"""What a user gets from `import hlosharding`: little imported, every name there, every name documented."""

from __future__ import annotations

import subprocess
import sys

import pytest

import hlosharding as hs

HEAVY = {"jax", "jaxlib", "onnx", "networkx", "scipy", "rich", "jinja2", "google.protobuf", "ml_dtypes"}
LIGHT = {"numpy"}


def modules_after(code: str) -> set[str]:
    """The modules that a fresh interpreter holds after `code`."""
    program = f"{code}\nimport sys; print('\\n'.join(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(answer.stdout.split())


def test_importing_hlosharding_pulls_in_nothing_heavy() -> None:
    assert not HEAVY & modules_after("import hlosharding")


def test_importing_hlosharding_adds_little_to_numpy() -> None:
    """In modules, since seconds depend on the machine: the 0.05 s of benchmarks/import_time.py allow some 60."""
    added = modules_after("import numpy, hlosharding") - modules_after("import numpy")
    assert len(added) <= 60, sorted(added)


PLUG_INS = {"hlosharding.mesh_propagation", "hlosharding.notations", "hlosharding.onnx", "hlosharding.onnx_ranks"}


def test_the_core_imports_no_plug_in() -> None:
    assert not PLUG_INS & modules_after("import hlosharding as hs; hs.report, hs.search, hs.jit, hs.load, hs.convert")


def test_a_plug_in_is_there_when_its_table_is_asked() -> None:
    assert "hlosharding.notations" in modules_after("import hlosharding as hs; hs.convert('{replicated}', to='v2')")


HELP = """
import contextlib, io, hlosharding.cli
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    hlosharding.cli.main(["--help"])
"""


def test_help_needs_no_heavy_library() -> None:
    assert not {"jax", "onnx", "scipy", "networkx"} & modules_after(HELP)


def test_every_public_name_is_there_and_documented() -> None:
    assert not [name for name in hs.__all__ if not (getattr(hs, name).__doc__ or "").strip()]


def test_dir_lists_the_surface() -> None:
    assert set(hs.__all__) <= set(dir(hs))


def test_a_room_never_hides_the_function_of_its_name() -> None:
    code = "import hlosharding as hs, hlosharding.cost\nassert callable(hs.cost) and hs.cost is hlosharding.cost"
    assert modules_after(code)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'shard'"):
        _ = hs.shard  # pyright: ignore[reportAttributeAccessIssue]
