"""Every node test that the onnx package brings: met on one device, or refused for a reason; a share, partitioned.

`python -m benchmarks.onnx_nodes` runs all of them partitioned.
"""

from __future__ import annotations

import re
from random import Random
from zlib import crc32

import pytest

import hlosharding as hs
from tests.support.onnx_cases import check_on_one_device, check_partitioned, has_values, node_cases

REFUSED = {
    r"string|regex_full_match|strnorm|label_encoder_(string|tensor_mapping|tensor_value_only)": "STRING|strings",
    r"image_decoder": "decodes an image file",
    r"tfidfvectorizer": "counts runs of words",
    r"scan_sum$": "Scan of opset 8",
}
"""Names of cases and what the refusal speaks of."""
_SHARE = 12
"""One in so many is partitioned here."""


def refusal(name: str) -> str | None:
    """What the refusal of a case must name; None for one that must be met."""
    return next((said for pattern, said in REFUSED.items() if re.search(pattern, name)), None)


@pytest.mark.parametrize("name", node_cases())
def test_node_case(name: str) -> None:
    case, said = node_cases()[name], refusal(name)
    if said is not None:
        with pytest.raises(hs.LoadError, match=said):
            case.load()
        return
    check_on_one_device(case, case.load(), has_values=has_values(name))


@pytest.mark.parametrize("name", [n for n in node_cases() if crc32(n.encode()) % _SHARE == 0 and refusal(n) is None])
@pytest.mark.parametrize("devices", [2, 4])
def test_partitioned(name: str, devices: int) -> None:
    case = node_cases()[name]
    check_partitioned(case, case.load(), devices, Random(f"{name} {devices}"))
