"""GSPMD's sharding propagation: from a few annotations to a sharding of every value, with the reason for each."""

from hlosharding.propagation.propagate import Propagation, propagate
from hlosharding.propagation.provenance import Explanation

__all__ = ["Explanation", "Propagation", "propagate"]
