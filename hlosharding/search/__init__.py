"""Finding better annotations by trying them."""

from hlosharding.search.suggest import Suggestion, suggest

__all__ = ["Suggestion", "suggest"]
