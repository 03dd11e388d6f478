"""The report of a whole program, section by section."""

from hlosharding.report.sections.picture import program_svg
from hlosharding.report.sections.report import Report, report

__all__ = ["Report", "program_svg", "report"]
