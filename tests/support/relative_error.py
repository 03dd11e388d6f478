"""How far numbers are from others, relative to the largest of these."""

from __future__ import annotations

from typing import Any

import numpy as np


def relative_error(found: Any, wanted: Any, *, of: Any = None) -> float:
    """The largest difference over the largest number of what is wanted, or of the array that it is a part of.

    >>> relative_error([1.0, 2.5], [1.0, 2.0]), relative_error([1.0], [0.0], of=[0.0, 4.0])
    (0.25, 0.25)
    """
    made, right = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    if made.shape != right.shape or not np.isfinite(made).all():
        return float("inf")
    difference = np.abs(made - right).max(initial=0.0)
    scale = np.abs(np.asarray(right if of is None else of, np.float64)).max(initial=0.0)
    return float(difference / scale) if scale else float(difference)
