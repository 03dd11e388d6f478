"""`hlosharding explain`: why a value has its sharding.

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace

from hlosharding import report
from hlosharding.cli.files import write
from hlosharding.cli.programs import as_json, propagated_program
from hlosharding.ir import Instruction, Module


def execute(arguments: Namespace) -> None:
    """Print the chain of causes of each value that NAME means."""
    propagated = propagated_program(arguments)
    found = [propagated.explain(inst.name) for inst in meant(propagated.module, arguments.name)]
    if arguments.emit == "json":
        write(as_json(report.explanations_record(found)), None)
    else:
        write("\n\n".join(map(str, found)), None)


def meant(module: Module, name: str) -> list[Instruction]:
    """The values a name means: a parameter's path, a source line's values, or an instruction; ModuleError if none."""
    parameters = [p for p in module.entry.parameters if p.op_name == name]
    if parameters:
        return parameters
    line = [i for i in module.instructions if i.location and (i.location == name or i.location.endswith("/" + name))]
    return line or [module.by_name(name)]
