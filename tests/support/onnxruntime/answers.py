"""The single ONNX nodes that ONNX Runtime was asked about, and the answers it gave.

`python -m tests.support.onnxruntime.answers` asks anew, where onnxruntime is installed (no dependency of ours);
the answers stand in `answers.npz` beside this file, with the version that gave them.
Weights of eight bits are small, since ONNX Runtime's products of uint8 and int8 saturate on older x86 processors.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from tests.support.onnxruntime import images, layers, quantized, windows
from tests.support.onnxruntime.cases import RuntimeCase

_FILE = Path(__file__).with_name("answers.npz")


@cache
def runtime_cases() -> dict[str, RuntimeCase]:
    """By name."""
    families = (
        quantized.quantized, quantized.quantized_products, layers.fused, layers.attention, layers.recurrent,
        windows.windows, images.images, images.signals_and_losses,
    )  # fmt: skip
    cases = [case for family in families for case in family()]
    assert len({case.name for case in cases}) == len(cases)
    return {case.name: case for case in cases}


@cache
def answers() -> dict[str, list[np.ndarray]]:
    """The outputs that ONNX Runtime gave, by case."""
    with np.load(_FILE) as found:
        return {
            name: [found[f"{name}/{n}"] for n in range(sum(map(bool, case.outputs)))]
            for name, case in runtime_cases().items()
        }


def _record() -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    found: dict[str, np.ndarray] = {"onnxruntime": np.array(onnxruntime.__version__)}
    for name, case in runtime_cases().items():
        session = onnxruntime.InferenceSession(case.model.SerializeToString(), options, ["CPUExecutionProvider"])
        found |= {f"{name}/{n}": np.asarray(array) for n, array in enumerate(session.run(None, case.feeds))}
    np.savez_compressed(_FILE, **found)


if __name__ == "__main__":
    _record()
