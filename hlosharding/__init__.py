"""hlosharding: a sharding compiler frontend.  `import hlosharding as hs`; every public name is an attribute of it.

Roof.  Knows only in which room each name lives, from `__init__.pyi`, where type checkers read it, too: rooms, and
the libraries they need, are imported when a name is first used, so that importing this package pulls in neither JAX
nor ONNX.
"""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path
from types import ModuleType

__version__ = "0.1.0"


def _names_by_module() -> dict[str, list[str]]:
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {str(node.module): [alias.name for alias in node.names] for node in imports}


_NAMES = _names_by_module()
_HOME = {name: module for module, names in _NAMES.items() for name in names}
__all__ = list(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


class _Roof(ModuleType):
    """The package as users see it: `hs.cost` stays the function, also once the room `hlosharding.cost` is imported.

    Python binds an imported submodule on its package; for the few rooms that share their name with a public function
    that binding is dropped.  `from hlosharding.cost import ...` is not affected.
    """

    def __getattr__(self, name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'hlosharding' has no attribute {name!r}")
        value = getattr(importlib.import_module(_HOME[name]), name)
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: object) -> None:
        is_own_room = isinstance(value, ModuleType) and value.__name__ == f"hlosharding.{name}"
        if not (is_own_room and name in _HOME):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *__all__})


sys.modules[__name__].__class__ = _Roof
