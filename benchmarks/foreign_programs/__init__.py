"""Programs of libraries that know nothing of us, one file a family.

None is imported before `jax.jit` is what it shall be.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import jax
import numpy as np
from jax.sharding import Mesh

from benchmarks.foreign_programs.parts import Step

TOLERANCE = 1e-4
"""Of the largest number of an array: float32 summed in another order, through some layers and their gradients."""
INT8_TOLERANCE = 0.3
"""A number between two steps of int8 is rounded to either: `jax.jit`'s own result differs so much from one device's."""
DATA, DATA_BY_MODEL = (("data", 8),), (("data", 2), ("model", 4))


@dataclass(frozen=True, slots=True)
class Program:
    """Where a program stands, and what it needs."""

    name: str
    package: str
    """As the registry names the library."""
    file: str
    function: str
    axes: tuple[tuple[str, int], ...]
    calls_jit: bool = False
    """Does the library itself call `jit`?"""
    tolerance: float = TOLERANCE

    @property
    def library(self) -> str:
        """With its version.  Raises PackageNotFoundError."""
        return f"{self.package} {version(self.package)}"

    def mesh(self, devices: int) -> Mesh:
        """Its axes over so many devices: eight, or one."""
        names, sizes = zip(*self.axes, strict=True)
        return Mesh(np.array(jax.devices()[:devices]).reshape(sizes if devices > 1 else [1] * len(sizes)), names)

    def build(self, mesh: Mesh) -> Step:
        """Import the library, and lay the arguments out."""
        module = importlib.import_module(f"benchmarks.foreign_programs.{self.file}")
        return getattr(module, self.function)(mesh)


PROGRAMS = (
    Program("Linen MLP-mixer, FSDP", "flax", "flax_linen", "mixer", DATA),
    Program("Linen transformer, logical axes", "flax", "flax_linen", "transformer", DATA_BY_MODEL),
    Program("qwix int8 perceptron", "qwix", "quantized", "perceptron", DATA_BY_MODEL, tolerance=INT8_TOLERANCE),
    Program("AQT int8 perceptron", "aqtp", "aqt_products", "perceptron", DATA_BY_MODEL, tolerance=INT8_TOLERANCE),
    Program("MaxText Llama-like", "maxtext", "maxtext_models", "llama", DATA_BY_MODEL),
    Program("MaxText Mixtral-like", "maxtext", "maxtext_models", "mixtral", DATA_BY_MODEL),
    Program("MaxText DeepSeek-like", "maxtext", "maxtext_models", "deepseek", DATA_BY_MODEL),
    Program("HF Flax BERT", "transformers", "hf_flax", "classifier", DATA),
    Program("HF Flax beam search", "transformers", "hf_flax", "beam_search", DATA_BY_MODEL),
    Program("remat, dots kept", "jax", "remat_offload", "saved_dots", DATA_BY_MODEL),
    Program("remat, one product offloaded", "jax", "remat_offload", "offloaded", DATA_BY_MODEL),
    Program("Pallas softmax, interpreted", "jax", "pallas_kernels", "attention", DATA_BY_MODEL),
    Program("NNX autoencoder", "flax", "flax_nnx", "autoencoder", DATA, calls_jit=True),
    Program("Haiku ResNet", "dm-haiku", "haiku_nets", "residual", DATA),
    Program("Equinox transformer", "equinox", "equinox_family", "transformer", DATA_BY_MODEL, calls_jit=True),
    Program("penzai Llama", "penzai", "penzai_models", "transformer", DATA_BY_MODEL),
    Program("numpyro SVI", "numpyro", "probability", "svi", DATA),
    Program("numpyro NUTS", "numpyro", "probability", "numpyro_nuts", DATA, calls_jit=True),
    Program("blackjax NUTS", "blackjax", "probability", "blackjax_nuts", DATA),
    Program("tinygp evidence", "tinygp", "probability", "gaussian_process", DATA, calls_jit=True),
    Program("jraph interaction network", "jraph", "graph_nets", "graph_network", DATA),
    Program("e3nn messages and forces", "e3nn-jax", "graph_nets", "equivariant", DATA, calls_jit=True),
    Program("diffrax neural ODE", "diffrax", "solvers", "neural_ode", DATA, calls_jit=True),
    Program("optimistix curve fit", "optimistix", "solvers", "curve_fit", DATA, calls_jit=True),
    Program("ott Sinkhorn", "ott-jax", "solvers", "transport", DATA_BY_MODEL),
    Program("evosax CMA-ES", "evosax", "solvers", "evolution", DATA, calls_jit=True),
    Program("optax Muon", "optax", "solvers", "muon", DATA),
    Program("jax-md particles", "jax-md", "simulators", "molecules", DATA),
    Program("brax cheetahs", "brax", "simulators", "robots", DATA),
    Program("mctx tree search", "mctx", "simulators", "tree_search", DATA),
    Program("rlax V-trace", "rlax", "simulators", "value_learning", DATA),
)


def programs_named(parts: Sequence[str]) -> Iterator[Program]:
    """Those with one of these parts in their names, or their libraries': all without any.  What is not installed is
    left out, which is printed."""
    for program in PROGRAMS:
        if parts and not any(part in f"{program.name} {program.package}" for part in parts):
            continue
        try:
            _ = program.library
        except PackageNotFoundError:
            print(f"{program.name}: {program.package} is not installed")
        else:
            yield program
