"""Plans that only `objective="time"` tries: ways that move more bytes in fewer or faster steps, priced as programs."""

from hlosharding.reshard.for_time.gathers import gather_then_cut, reorder_then_gather
from hlosharding.reshard.for_time.program_time import emitted_seconds, guessed_seconds
from hlosharding.reshard.for_time.source_order import exchange_and_reorder

__all__ = [
    "emitted_seconds",
    "exchange_and_reorder",
    "gather_then_cut",
    "guessed_seconds",
    "reorder_then_gather",
]
