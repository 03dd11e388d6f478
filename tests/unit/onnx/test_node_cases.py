"""Every node test that the onnx package brings: met on one device, or refused for a reason; one a module, partitioned.

`python -m benchmarks.onnx_nodes` runs all of them partitioned.
"""

from __future__ import annotations

import re
from random import Random
from zlib import crc32

import pytest

import hlosharding as hs
from tests.support.onnx_cases import (
    Case,
    check_on_one_device,
    check_partitioned,
    has_values,
    node_cases,
    node_modules,
)
from tests.support.program_check import WrongResult

REFUSED = {
    r"string|regex_full_match|strnorm|label_encoder_(string|tensor_mapping|tensor_value_only)": "STRING|strings",
    r"image_decoder": "decodes an image file",
    r"tfidfvectorizer": "counts runs of words",
    r"scan_sum$": "Scan of opset 8",
}
"""Names of cases and what the refusal speaks of."""


def refusal(name: str) -> str | None:
    """What the refusal of a case must name; None for one that must be met."""
    return next((said for pattern, said in REFUSED.items() if re.search(pattern, name)), None)


def test_modules_of_cases_are_found() -> None:
    assert len(node_modules()) > 150


@pytest.mark.parametrize("module", node_modules())
def test_node_cases(module: str) -> None:
    wrong = {name: said for name, case in node_cases(module).items() if (said := what_is_wrong(case)) is not None}
    assert not wrong


def what_is_wrong(case: Case) -> str | None:
    """None where one device gives the numbers of the case, or where it is refused for its reason."""
    expected = refusal(case.name)
    try:
        check_on_one_device(case, case.load(), has_values=has_values(case.name))
    except hs.LoadError as error:
        return None if expected and re.search(expected, str(error)) else str(error)
    except WrongResult as error:
        return str(error)
    return f"it runs, and should be refused: {expected}" if expected else None


@pytest.mark.parametrize("module", node_modules())
def test_one_case_of_each_module_partitioned(module: str) -> None:
    """The one that a hash picks, on two devices or on four."""
    met = [name for name in node_cases(module) if refusal(name) is None]
    if met:
        chosen = min(met, key=lambda name: crc32(name.encode()))
        devices = 2 + 2 * (crc32(module.encode()) % 2)
        case = node_cases(module)[chosen]
        check_partitioned(case, case.load(), devices, Random(f"{chosen} {devices}"))
