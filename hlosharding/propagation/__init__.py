"""From a few annotations to a sharding of every value, and the reason: GSPMD's way, and the mesh dialect's."""

from hlosharding.propagation.explain import ChainLink, Explanation, LostOffer, origin
from hlosharding.propagation.handlers import BACKWARD, FORWARD
from hlosharding.propagation.propagate import Propagation, propagate
from hlosharding.propagation.provenance import Change

__all__ = [
    "BACKWARD",
    "FORWARD",
    "ChainLink",
    "Change",
    "Explanation",
    "LostOffer",
    "Propagation",
    "origin",
    "propagate",
]
