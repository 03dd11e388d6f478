"""Every operator with each input a weight, known by value, or traced: ONNX's result, or ONNX Runtime's for its own.

Whether a value is known while a model is read hangs on what surrounds a node, not on the node.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import hlosharding as hs
from hlosharding.onnx.boundary import Ports
from tests.support.onnx_cases import Case, has_values, node_cases, node_modules
from tests.support.onnxruntime.answers import answers, runtime_cases
from tests.support.program_check import is_close, wide
from tests.unit.onnx.test_node_cases import refusal

_LARGEST = 20_000
"""Elements of all inputs; every operator has a smaller case."""
_COARSE = {"bfloat16": 2.0**-6, "float16": 2.0**-9}
"""Two units in the last place: the cases' numpy rounds after every op."""


def chosen_cases(module: str) -> list[Case]:
    """Per operator the smallest case, and the smallest of those with most inputs."""
    found: dict[tuple[str, int], Case] = {}
    for case in sorted(node_cases(module).values(), key=size):
        nodes = case.model.graph.node
        if len(nodes) == 1 and refusal(case.name) is None and size(case) <= _LARGEST:
            found.setdefault((nodes[0].op_type, len(case.inputs)), case)
    counts = {operator: [n for o, n in found if o == operator] for operator, _ in found}
    smallest = {operator: min(each, key=lambda n: size(found[operator, n])) for operator, each in counts.items()}
    wanted = {(o, n) for o, each in counts.items() for n in (smallest[o], max(each))}
    return [case for key, case in found.items() if key in wanted]


def size(case: Case) -> int:
    return sum(np.size(array) for array in case.inputs.values() if isinstance(array, np.ndarray))


def mixtures(names: list[str]) -> dict[str, set[frozenset[str]]]:
    """What is known: each input alone, and all others; weights are traced, and evaluated where they must be known."""
    alone = {frozenset({name}) for name in names}
    return {
        "weights": {frozenset(names)},
        "known": (alone | {frozenset(names) - one for one in alone}) - {frozenset()},
    }


def loaded(case: Case, chosen: frozenset[str], how: str) -> hs.Module:
    """With the chosen inputs as weights of the model, or as values that are known."""
    if how == "known":
        of = Ports.of
        with patch.object(Ports, "of", lambda *arguments: replace(of(*arguments), by_value=chosen)):
            return case.load()
    from onnx import ModelProto, numpy_helper

    model = ModelProto()
    model.CopyFrom(case.model)
    model.graph.initializer.extend(numpy_helper.from_array(case.inputs[name], name) for name in sorted(chosen))
    return replace(case, model=model, inputs={n: value for n, value in case.inputs.items() if n not in chosen}).load()


def what_is_wrong(case: Case, chosen: frozenset[str], how: str) -> str | None:
    try:
        module = loaded(case, chosen, how)
        found = hs.partition(module, num_partitions=1).run_reference(*case.arguments(module))
    except hs.HloShardingError as error:
        return str(error)
    for got, want in zip(_leaves(found), case.expected, strict=True):
        if (got.shape, got.dtype) != (want.shape, want.dtype):
            return f"{got.dtype}{got.shape} for {want.dtype}{want.shape}"
        if has_values(case.name) and not _agrees(case, got, want):
            return f"{got} for {want}"
    return None


def _agrees(case: Case, got: np.ndarray, want: np.ndarray) -> bool:
    rtol = max(case.rtol, _COARSE.get(want.dtype.name, 0))
    if want.dtype.kind in "iu" and case.name in runtime_cases():  # sums between two whole numbers, in another order
        return int(np.abs(got.astype(int) - want.astype(int)).max(initial=0)) <= 1
    return is_close(got, want) or np.allclose(wide(got), wide(want), rtol, case.atol, equal_nan=True)


def _leaves(found: Any) -> list[np.ndarray]:
    import jax

    return [np.asarray(each) for each in jax.tree.leaves(found)]


def all_that_is_wrong(case: Case) -> dict[Any, str]:
    names = [name for name, value in case.inputs.items() if isinstance(value, np.ndarray)]
    tried = {(how, *sorted(each)): (each, how) for how, chosen in mixtures(names).items() for each in chosen}
    found = {key: what_is_wrong(case, *each) for key, each in tried.items()}
    return {(case.name, *key): said for key, said in found.items() if said is not None}


@pytest.mark.parametrize("module", node_modules())
def test_operators_with_known_inputs(module: str) -> None:
    wrong: dict[Any, str] = {}
    for case in chosen_cases(module):
        wrong |= all_that_is_wrong(case)
    assert not wrong


def cases_of_onnx_runtime() -> dict[str, Case]:
    """Per operator of its own the smallest."""
    found: dict[str, Case] = {}
    for name, case in runtime_cases().items():
        proto = case.model
        if proto.graph.node[0].domain and len(proto.graph.node) == 1:
            made = Case(name, proto, dict(case.feeds), tuple(answers()[name]), 1e-4, 1e-5)
            found[proto.graph.node[0].op_type] = min(found.get(proto.graph.node[0].op_type, made), made, key=size)
    return found


@pytest.mark.parametrize("operator", cases_of_onnx_runtime())
def test_operators_of_onnx_runtime_with_known_inputs(operator: str) -> None:
    assert not all_that_is_wrong(cases_of_onnx_runtime()[operator])
