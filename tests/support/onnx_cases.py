"""The backend tests that the onnx package brings, as our importer takes them: models, inputs, expected outputs."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from math import prod
from pathlib import Path
from pkgutil import iter_modules
from random import Random
from typing import Any

import numpy as np

import hlosharding as hs
from hlosharding.ir import Module
from tests.support.program_check import RUNNERS, WrongResult, is_close, one_device, wide
from tests.support.random_programs.shardings import random_sharding
from tests.support.yardsticks import kept_apart

_COARSE = {"bfloat16": 2.0**-6, "float16": 2.0**-9}
"""Two units in the last place: the cases' numpy rounds after every op, XLA less often, and a sum over devices once per
device; all end as far from the result in float32."""

_TWO_BITS = "2-bit integers, on which XLA's CPU compiler corrupts memory"


@dataclass(frozen=True)
class Case:
    """One model with one set of inputs."""

    name: str
    model: Any
    inputs: dict[str, Any]
    outputs: tuple[Any, ...]
    rtol: float
    atol: float

    @property
    def expected(self) -> list[np.ndarray]:
        """The arrays of all outputs, those of sequences too."""
        return list(_leaves(self.outputs))

    def load(self) -> Module:
        """As a user would."""
        return hs.load(self.model, inputs=self.inputs)

    def arguments(self, module: Module) -> list[np.ndarray]:
        """The arrays of the inputs that are parameters, without weights."""
        given: dict[str, np.ndarray] = {}
        for name, value in self.inputs.items():
            given |= {f"{name}[{n}]": a for n, a in enumerate(value)} if isinstance(value, list) else {name: value}
        return [given[p.op_name] for p in module.entry.parameters if p.name not in module.weights]


@cache
def node_modules() -> tuple[str, ...]:
    """ONNX's modules of node tests, about one an operator.  None is imported: that is when it computes its cases."""
    origin = getattr(find_spec("onnx"), "origin", "")
    folder = Path(origin).parent / "backend" / "test" / "case" / "node"
    return tuple(module.name for module in iter_modules([str(folder)]) if not module.name.startswith("_"))


@cache
def node_cases(module: str) -> dict[str, Case]:
    """The cases of one of these modules, by name.  They are computed in 0.02 s a module: 4 s for all of them."""
    from onnx.backend.test.case import node

    before = len(node._NodeTestCases)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import_module(f"{node.__name__}.{module}")
    return {case.name: case for test in node._NodeTestCases[before:] for case in _cases(test)}


@cache
def disk_cases() -> dict[str, Case]:
    """Every case that ONNX keeps in files: models that PyTorch made, simple ones, and nine whole networks."""
    import onnx.backend.test.loader as loader

    folders = [Path(loader.DATA_DIR, kind) for kind in ("simple", "pytorch-converted", "pytorch-operator")]
    cases = [_from_folder(path.parent) for folder in folders for path in sorted(folder.glob("*/model.onnx"))]
    networks = sorted(Path(loader.DATA_DIR, "light").glob("*.onnx"))
    return {case.name: case for case in (*cases, *map(_network, networks))}


def _from_folder(folder: Path) -> Case:
    import onnx

    model = onnx.load(folder / "model.onnx")
    inputs, outputs = (
        [_read(folder / "test_data_set_0" / f"{role}_{n}.pb", port) for n, port in enumerate(ports)]
        for role, ports in (("input", _inputs(model.graph)), ("output", model.graph.output))
    )
    names = [port.name for port in _inputs(model.graph)]
    return Case(folder.name, model, dict(zip(names, inputs, strict=True)), tuple(outputs), 1e-3, 1e-7)


def _network(path: Path) -> Case:
    """Its weights are constants, and so is the input with which its output was made."""
    import onnx
    from onnx.backend.test.runner import Runner

    model = onnx.load(path)
    [port] = _inputs(model.graph)
    given = Runner.generate_dummy_data(port, seed=0, name="", random=False)
    output = _read(path.with_name(f"{path.stem}_output_0.pb"), model.graph.output[0])
    return Case(path.stem, model, {port.name: given}, (output,), 1e-3, 1e-7)


def _inputs(graph: Any) -> list[Any]:
    weights = {tensor.name for tensor in graph.initializer}
    return [port for port in graph.input if port.name not in weights]


def _read(path: Path, port: Any) -> Any:
    from onnx import SequenceProto, TensorProto, numpy_helper

    if port.type.WhichOneof("value") == "sequence_type":
        return [np.asarray(a) for a in numpy_helper.to_list(SequenceProto.FromString(path.read_bytes()))]
    return numpy_helper.to_array(TensorProto.FromString(path.read_bytes()))


def _cases(test: Any) -> Iterator[Case]:
    for number, (inputs, outputs) in enumerate(test.data_sets):
        names = [port.name for port in _inputs(test.model.graph)]
        given = dict(zip(names, map(array, inputs), strict=False))
        name = test.name if number == 0 else f"{test.name}.{number}"
        yield Case(name, test.model, given, tuple(map(array, outputs)), test.rtol, test.atol)


def array(value: Any) -> Any:
    """A tensor, or a sequence of them, as the tests give it, as numpy arrays."""
    from onnx import TensorProto, numpy_helper

    if value is None:
        return None
    if isinstance(value, list | tuple):
        return [array(each) for each in value]
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


def _leaves(value: Any) -> Iterator[np.ndarray]:
    if isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(each)
    elif value is not None:
        yield np.asarray(value)


def check_on_one_device(case: Case, module: Module, *, has_values: bool = True) -> None:
    """Raises WrongResult where XLA computes other outputs on one device; `has_values`: else only their types count."""
    arguments = [*case.arguments(module), *(np.asarray(w) for w in module.weights.values())]
    found = one_device(module, arguments)
    if len(found) != len(case.expected):
        raise WrongResult(f"{case.name}: {len(found)} outputs for {len(case.expected)}")
    for number, (got, want) in enumerate(zip(found, case.expected, strict=True)):
        if (got.shape, got.dtype) != (want.shape, want.dtype):
            raise WrongResult(f"{case.name}: {got.dtype}{got.shape} for {want.dtype}{want.shape}")
        if has_values and not _agrees(case, got, want):
            # Computed twice, in fusions that add in other orders, numbers of 1e10 differ by more than exp can take.
            apart = one_device(kept_apart(module), arguments)[number]
            if not _agrees(case, apart, want):
                raise WrongResult(f"{case.name}: {got} for {want}")


def _agrees(case: Case, got: np.ndarray, want: np.ndarray) -> bool:
    """As the case's own tolerances say, or as a partitioned program must agree with one device."""
    rtol = max(case.rtol, _COARSE.get(want.dtype.name, 0))
    return is_close(got, want) or np.allclose(wide(got), wide(want), rtol, case.atol, equal_nan=True)


def partitioned(module: Module, devices: int, random: Random) -> hs.Partitioned | None:
    """With a random sharding of each parameter; None where no parameter has a dim."""
    shapes = {p.name: p.shape for p in module.entry.parameters if prod(p.shape.dims) > 1}
    if not shapes:
        return None
    wanted = {name: random_sharding(random, shape, devices) for name, shape in shapes.items()}
    return hs.partition(hs.propagate(hs.annotate(module, wanted)), num_partitions=devices)


def check_partitioned(case: Case, module: Module, devices: int, random: Random, how: str = "run") -> bool:
    """Raises WrongResult where the partitioned program gives other numbers than one device.

    False: there is nothing to split, or it is a collective of two-bit integers, which XLA's CPU compiler gets wrong.
    """
    program = partitioned(module, devices, random)
    if program is None:
        return False
    arguments = case.arguments(module)
    try:
        found = list(_leaves(program.run(*arguments) if how == "run" else RUNNERS[how](program, arguments)))
    except hs.ExecutionError as error:
        if _TWO_BITS not in str(error):
            raise
        return False
    expected = one_device(module, [*arguments, *(np.asarray(w) for w in module.weights.values())])
    for got, want in zip(found, expected, strict=True):
        if not _agrees(case, got, want):
            raise WrongResult(f"{case.name} on {devices} devices: {got} for {want}")
    return True


_DRAWN = re.compile(r"bernoulli|training_dropout(_default)?(_mask)?$|random")


def has_values(name: str) -> bool:
    """Are the numbers of a case's outputs right or wrong?  Chance makes those of some."""
    return _DRAWN.search(name) is None
