"""Modules lowered for Shardy, given the form that GSPMD reads."""

from hlosharding.frontends.shardy.to_gspmd import has_shardy_marks, without_shardy_marks

__all__ = [
    "has_shardy_marks",
    "without_shardy_marks",
]
