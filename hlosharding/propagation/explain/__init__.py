"""Why a value is sharded as it is: the chain of causes, what blocked a split, which offers lost."""

from hlosharding.propagation.explain.explanation import ChainLink, Explanation, LostOffer, origin
from hlosharding.propagation.explain.why import conflicts, explain

__all__ = [
    "ChainLink",
    "Explanation",
    "LostOffer",
    "conflicts",
    "explain",
    "origin",
]
