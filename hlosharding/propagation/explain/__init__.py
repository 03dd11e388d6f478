"""Why a value is sharded as it is: the chain of causes, what blocked a split, which offers lost."""

from hlosharding.propagation.explain.explanation import Explanation, Link, LostOffer
from hlosharding.propagation.explain.why import conflicts, explain

__all__ = [
    "Explanation",
    "Link",
    "LostOffer",
    "conflicts",
    "explain",
]
