"""GSPMD's sharding propagation: from a few annotations to a sharding of every value, with the reason for each."""

from hlosharding.propagation.propagate import Propagation, propagate
from hlosharding.propagation.provenance import Explanation, Link, Step, Trail

__all__ = ["Explanation", "Link", "Propagation", "Step", "Trail", "propagate"]
