"""Finding better annotations by trying them: the whole pipeline in a loop."""

from hlosharding.search.suggest import Suggestion, suggest
from hlosharding.search.trials import Hit, smallest_sets

__all__ = [
    "Hit",
    "Suggestion",
    "smallest_sets",
    "suggest",
]
