"""The table of writers with all families in it.

Floor: onnx.
"""

from hlosharding.onnx.writing import collectives, elementwise, indexing, products, reductions, structure
from hlosharding.onnx.writing.graph_writer import WRITERS

__all__ = ["WRITERS", "collectives", "elementwise", "indexing", "products", "reductions", "structure"]
