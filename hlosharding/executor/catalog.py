"""The families of emitters, all loaded: importing this fills the table.

Floor: executor.
"""

from hlosharding.executor import (
    lax_collectives,
    lax_contractions,
    lax_control,
    lax_elementwise,
    lax_indexing,
    lax_structure,
    lax_windows,
)

FAMILIES = (
    lax_elementwise,
    lax_structure,
    lax_contractions,
    lax_windows,
    lax_indexing,
    lax_control,
    lax_collectives,
)
