"""The families of emitters, all loaded: importing this fills the table.

Floor: executor.
"""

from importlib import import_module

FAMILIES = tuple(
    import_module(f"hlosharding.executor.lax_{family}")
    for family in "elementwise structure contractions windows indexing control collectives".split()
)
