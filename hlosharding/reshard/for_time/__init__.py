"""What only `objective="time"` needs: plans that move more bytes in fewer or faster steps, priced as programs."""

from hlosharding.reshard.for_time.plans import fastest, plans_for_time
from hlosharding.reshard.for_time.search import axis_searches_for_time, piecewise_search_for_time

__all__ = [
    "axis_searches_for_time",
    "fastest",
    "piecewise_search_for_time",
    "plans_for_time",
]
