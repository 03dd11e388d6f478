"""Work that fails on a module: if the module breaks a law, that is what is wrong.

Floor: ir.  Laws are looked at only then: valid modules, which nearly all are, pay nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hlosharding.errors import HloShardingError, ModuleError
from hlosharding.ir.module import Module
from hlosharding.ir.verifier import verify


@contextmanager
def blaming(module: Module) -> Iterator[None]:
    """Turn an error into ModuleError with the law that the module breaks, where it breaks one; Python's own always.

    >>> import hlosharding as hs
    >>> with blaming(hs.load("HloModule m\\n\\nENTRY e {\\n  ROOT x = f32[2] parameter(0)\\n}\\n")):
    ...     raise KeyError("who knows")
    Traceback (most recent call last):
    hlosharding.errors.ModuleError: KeyError: 'who knows'; if XLA takes this module, the fault is ours: please report it
    """
    try:
        yield
    except (ModuleError, MemoryError, RecursionError):
        raise
    except HloShardingError as error:
        # What it says may be a consequence: shardings of a tuple that has other elements do not go together.
        _check(error, lambda: verify(module))
        raise
    except Exception as error:
        _check(error, lambda: verify(module))
        _check(error, module.to_hlo_text)
        raise ModuleError(
            f"{type(error).__name__}: {error}", remedy="if XLA takes this module, the fault is ours: please report it"
        ) from error


def _check(error: Exception, law: Callable[[], object]) -> None:
    try:
        law()
    except HloShardingError as fault:
        raise ModuleError(f"not a valid module: {fault.what}", where=fault.where, remedy=fault.remedy) from error
