"""A network as the bytes of an ONNX model, by either exporter of PyTorch, and quantised by ONNX Runtime."""

from __future__ import annotations

import io
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

from tests.onnx_models.networks import NETWORKS, Network

_SEVEN_BITS = True
"""Of eight: ONNX Runtime's products of bytes overflow on processors without VNNI, and then are wrong."""


def arrays(network: Network) -> dict[str, np.ndarray]:
    """What the network is called with, as numpy arrays."""
    return {name: tensor.numpy() for name, tensor in network.inputs.items()}


def exported(network: Network, *, dynamo: bool, dynamic: bool = False) -> bytes:
    """By the exporter that traces graphs (`dynamo`) or TorchScript; `dynamic`: the batch's size is open."""
    options: dict[str, Any] = {"input_names": list(network.inputs), "output_names": ["result"], "dynamo": dynamo}
    args = tuple(network.inputs.values())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            if dynamic:
                dim = torch.export.Dim("batch")
                shapes = tuple({0: dim} if n in network.batched else None for n in network.inputs)
                options["dynamic_shapes"] = {network.arguments: shapes} if network.arguments else shapes
            program = torch.onnx.export(network.module, args, verbose=False, **options)
            return program.model_proto.SerializeToString()
        if dynamic:
            options["dynamic_axes"] = {name: {0: "batch"} for name in (*network.batched, "result")}
        file = io.BytesIO()
        torch.onnx.export(network.module, args, file, **options)
        return file.getvalue()


def quantised(model: bytes, kind: str, inputs: dict[str, np.ndarray]) -> bytes:
    """By ONNX Runtime: `dynamic` products of integers, static `qdq` pairs, or static `qoperator` kernels."""
    from onnxruntime import quantization as q

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "model.onnx"), Path(folder, "quantised.onnx")
        source.write_bytes(model)
        q.shape_inference.quant_pre_process(str(source), str(source))
        if kind == "dynamic":
            q.quantize_dynamic(source, target, reduce_range=_SEVEN_BITS)
        else:
            form = q.QuantFormat.QDQ if kind == "qdq" else q.QuantFormat.QOperator
            q.quantize_static(
                str(source), str(target), _Calibration(inputs), quant_format=form, reduce_range=_SEVEN_BITS
            )
        return target.read_bytes()


class _Calibration:
    def __init__(self, inputs: dict[str, np.ndarray]) -> None:
        self._waiting = [inputs]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return self._waiting.pop() if self._waiting else None


def by_onnx_runtime(model: bytes, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What ONNX Runtime computes on the CPU, node by node: its fused kernels of bytes give results of their own."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"{name}_dynamo": (name, {"dynamo": True}) for name in NETWORKS if name not in ("decides", "t5")},
    **{
        f"{name}_legacy": (name, {"dynamo": False})
        for name in NETWORKS
        if name not in ("gpt2", "llama", "mixtral", "whisper")
    },
    "gpt2_dynamic": ("gpt2", {"dynamo": True, "dynamic": True}),
    "resnet_dynamic": ("resnet", {"dynamo": False, "dynamic": True}),
    "bert_int8": ("bert", {"dynamo": False, "quantise": "dynamic"}),
    "mlp_int8": ("mlp", {"dynamo": True, "quantise": "dynamic"}),
    "resnet_qdq": ("resnet", {"dynamo": False, "quantise": "qdq"}),
    "resnet_qoperator": ("resnet", {"dynamo": False, "quantise": "qoperator"}),
    "vit_qdq": ("vit", {"dynamo": True, "quantise": "qdq"}),
}
"""By name the network and how it is exported; the pairs that are missing are beyond PyTorch's exporters."""


def model(name: str) -> tuple[bytes, dict[str, np.ndarray]]:
    """A model and inputs for it."""
    made, options = MODELS[name]
    options = dict(options)
    kind = options.pop("quantise", None)
    found = NETWORKS[made]()
    inputs, content = arrays(found), exported(found, **options)
    used = {port.name for port in onnx.load_from_string(content).graph.input}
    inputs = {name: array for name, array in inputs.items() if name in used}
    return (quantised(content, kind, inputs) if kind else content), inputs
