"""One ONNX node with inputs, as a case to ask ONNX Runtime about."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MICROSOFT = "com.microsoft"
OPSET = 22


@dataclass(frozen=True)
class RuntimeCase:
    """One node: its inputs (None: left out), attributes and outputs ("": not wanted)."""

    name: str
    operator: str
    inputs: tuple[Any, ...]
    outputs: tuple[str, ...]
    domain: str
    opset: int
    attributes: dict[str, Any]

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        """The inputs by name."""
        return {f"x{n}": value for n, value in enumerate(self.inputs) if value is not None}

    @property
    def model(self) -> Any:
        """As an `onnx.ModelProto`; inputs that decide shapes are graph inputs, too."""
        from onnx import helper

        names = ["" if value is None else f"x{n}" for n, value in enumerate(self.inputs)]
        node = helper.make_node(self.operator, names, self.outputs, domain=self.domain, **self.attributes)
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in self.feeds.items()
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in self.outputs if name]
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(
            helper.make_graph([node], self.name, inputs, outputs), opset_imports=opsets, ir_version=10
        )


class Draw:
    """Random tensors of one case; the legacy generator gives the same numbers in every numpy."""

    def __init__(self, name: str) -> None:
        self._random = np.random.RandomState(zlib.crc32(name.encode()))

    def f(self, *shape: int) -> np.ndarray:
        """Numbers around zero."""
        return self._random.standard_normal(shape).astype(np.float32)

    def positive(self, *shape: int) -> np.ndarray:
        """Numbers from 0 to 0.02: scales."""
        return (self._random.random_sample(shape) * 0.02).astype(np.float32)

    def u8(self, *shape: int) -> np.ndarray:
        """All of uint8."""
        return self._random.randint(0, 256, shape).astype(np.uint8)

    def i8(self, *shape: int) -> np.ndarray:
        """The middle half of int8."""
        return self._random.randint(-63, 64, shape).astype(np.int8)

    def i32(self, low: int, high: int, *shape: int) -> np.ndarray:
        """Whole numbers from `low` to below `high`."""
        return self._random.randint(low, high, shape).astype(np.int32)


Inputs = Callable[[Draw], Sequence[Any]]


def case(
    name: str, operator: str, inputs: Inputs, outputs: str = "y", domain: str = "", opset: int = OPSET, **attrs: Any
) -> RuntimeCase:
    """A node in opset `opset`; `outputs` separated by commas."""
    values = tuple(None if value is None else np.asarray(value) for value in inputs(Draw(name)))
    return RuntimeCase(name, operator, values, tuple(outputs.split(",")), domain, opset, attrs)


def microsoft(name: str, operator: str, inputs: Inputs, outputs: str = "y", **attrs: Any) -> RuntimeCase:
    """One of ONNX Runtime's own operators."""
    return case(name, operator, inputs, outputs, MICROSOFT, **attrs)


F, U8, I8 = np.float32, np.uint8, np.int8
