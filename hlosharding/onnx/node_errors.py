"""What a library says of a node is our error, with the node's place; the one place where it becomes that.

Floor: onnx.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hlosharding.errors import HloShardingError, LoadError
from hlosharding.onnx.protos import first_line
from hlosharding.onnx.values import NeedsInput

_OF_LIBRARIES = (
    TypeError, ValueError, IndexError, KeyError, AttributeError, AssertionError, NotImplementedError, ArithmeticError,
)  # fmt: skip
"""What JAX, numpy and onnx raise of values that do not go together."""
DOUBT = "if onnx.checker takes the model, this is a fault of hlosharding"


@contextmanager
def errors_at(where: str) -> Iterator[None]:
    """What is raised inside is a LoadError, at `where` if it does not say a nearer place.

    Its cause is kept, and its type said, so that a fault of ours in a node's function is seen as one.

    >>> with errors_at("node Add -> y"):
    ...     _ = {}["k"]
    Traceback (most recent call last):
    ...
    hlosharding.errors.LoadError: cannot be read (KeyError: 'k'); at node Add -> y; if onnx.checker takes the model, \
this is a fault of hlosharding
    """
    try:
        yield
    # It stays what it is: who loads the model catches it, binds the input by value and traces again.
    except NeedsInput as error:
        raise NeedsInput(error.name, error.where or where) from None
    except HloShardingError as error:
        raise LoadError(error.what, where=error.where or where, remedy=error.remedy) from error
    except _OF_LIBRARIES as error:
        said = f"cannot be read ({type(error).__name__}: {first_line(error)})"
        raise LoadError(said, where=where, remedy=DOUBT) from error
