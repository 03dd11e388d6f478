"""Modules lowered for Shardy, given the form that GSPMD reads."""

from hlosharding.frontends.shardy.to_gspmd import without_shardy_marks

__all__ = [
    "without_shardy_marks",
]
