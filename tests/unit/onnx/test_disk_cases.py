"""The suites that the onnx package keeps in files: opsets 6 to 12, and nine networks of opset 9."""

from __future__ import annotations

import re
from random import Random

import pytest

import hlosharding as hs
from tests.support.onnx_cases import check_on_one_device, check_partitioned, disk_cases

REFUSED = {
    r"strnorm": "STRING|strings",
    r"gradient": r"operator ai\.onnx\.preview\.training\.Gradient is not handled",
}
NETWORKS = [name for name in disk_cases() if name.startswith("light_")]


@pytest.mark.parametrize("name", disk_cases())
def test_disk_case(name: str) -> None:
    case = disk_cases()[name]
    said = next((said for pattern, said in REFUSED.items() if re.search(pattern, name)), None)
    if said is not None:
        with pytest.raises(hs.LoadError, match=said):
            case.load()
        return
    module = case.load()
    check_on_one_device(case, module)
    if name not in NETWORKS:
        check_partitioned(case, module, 4, Random(name))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_keeps_its_weights_as_parameters(name: str) -> None:
    module = disk_cases()[name].load()
    assert len(module.weights) > 10
    assert len(module.entry.parameters) == 1 + len(module.weights)
