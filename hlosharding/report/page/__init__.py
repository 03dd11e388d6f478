"""A view as one page for a browser: no other file, no network, every text of a program data."""

from hlosharding.report.page.render import LARGEST_PAGE, render_page

__all__ = ["LARGEST_PAGE", "render_page"]
