"""Shardy's modules: in, given the form that GSPMD reads; and out, with every sharding as Shardy says it."""

from hlosharding.frontends.shardy.to_gspmd import has_shardy_marks, without_shardy_marks
from hlosharding.frontends.shardy.to_sdy import to_sdy_text

__all__ = [
    "has_shardy_marks",
    "to_sdy_text",
    "without_shardy_marks",
]
