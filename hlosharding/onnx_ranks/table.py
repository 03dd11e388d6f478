"""The table of writers with all families in it.

Floor: onnx_ranks.
"""

from hlosharding.onnx_ranks import collectives, elementwise, indexing, products, reductions, structure
from hlosharding.onnx_ranks.graph_writer import WRITERS

__all__ = ["WRITERS", "collectives", "elementwise", "indexing", "products", "reductions", "structure"]
