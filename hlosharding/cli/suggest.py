"""`hlosharding suggest`: which annotations would split a value that is left whole.

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace

from hlosharding.cli.explain import meant
from hlosharding.cli.files import working, write
from hlosharding.cli.programs import annotated_program, machine, partitions
from hlosharding.errors import AnnotationError
from hlosharding.search import suggest


def execute(arguments: Namespace) -> None:
    """Print the best suggestions.  Raises AnnotationError where none was found."""
    module = annotated_program(arguments)
    name = meant(module, arguments.name)[0].name
    with working("trying annotations"):
        found = suggest(module, name, most=arguments.most, machine=machine(arguments, partitions(arguments, module)))
    if not found:
        raise AnnotationError(f"no annotation near %{name} splits it", remedy="give it a sharding of its own")
    write("\n".join(map(str, found)), None)
