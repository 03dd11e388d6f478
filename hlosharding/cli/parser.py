"""What a command line may say.

Floor: cli.  Standard library only; every value is checked here as far as its spelling goes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hlosharding import __version__
from hlosharding.cli.words import (
    read_annotation,
    read_counts,
    read_input,
    read_machine,
    read_mesh,
    read_names,
    read_plans,
    read_positive,
    read_rank,
    read_seed,
    read_tolerance,
    read_trips,
    read_words,
)

_FORMATS = ("hlo", "hlo-proto", "stablehlo", "onnx")
_SHARDING_FORMATS = ("hlo", "v1", "v2", "v3", "sdy", "shard", "mesh", "dtensor", "onnx", "jax", "spec")
_DESCRIPTION = """Find the sharding of every value of a program, rewrite it to what each device runs, price it, run it.
FILE is HLO text or proto, StableHLO or ONNX; `-` is standard input."""


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands; `command` in its result names the module in `hlosharding.cli` that executes it."""
    parser = argparse.ArgumentParser(prog="hlosharding", description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"hlosharding {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add_command in (
        _add_propagate, _add_partition, _add_run, _add_compile, _add_explain, _add_report, _add_simulate, _add_search,
        _add_calibrate, _add_rank, _add_suggest, _add_diff, _add_check, _add_export, _add_convert, _add_reshard,
        _add_draw, _add_completion,
    ):  # fmt: skip
        add_command(commands)
    return parser


def _add_propagate(commands: Any) -> None:
    command = _command(commands, "propagate", "find a sharding for every value, as XLA's GSPMD does")
    _propagation_options(command)
    _emit_options(command, "hlo", "hlo-proto", "stablehlo", "sdy", "mesh", "json")
    threads = "visit only the computations of these threads; main is the program's own (default: all)"
    command.add_argument("--execution-threads", type=read_names, default=(), metavar="NAME,...", help=threads)
    _flag(command, "--table", "a table of the shardings instead of the program")
    _flag(command, "--trace", "each step of the propagation, in order")
    _flag(command, "--conflicts", "where neighbours disagree, so that data moves")
    compared = "compare with the program that has these annotations too: what changed, and what it costs"
    _several(command, "--diff", "NAME=SHARDING", compared, read_annotation)


def _add_partition(commands: Any) -> None:
    command = _command(commands, "partition", "rewrite the program to what each device runs, and price it")
    _propagation_options(command)
    _partition_options(command)
    _flag(command, "--collectives", "only the table of collectives")
    _flag(command, "--cost", "the cost, by source line and by opcode")
    _combine_option(command)
    _flag(command, "--sharding-overrides", "all values sharded otherwise than propagated")
    command.add_argument(
        "--dump-passes", metavar="DIR", type=Path, help="write the program before and after each pass into DIR, as HLO"
    )
    _emit_options(command, "hlo", "hlo-proto", "stablehlo", "onnx", "mesh", "python", "json")


def _add_run(commands: Any) -> None:
    command = _command(commands, "run", "partition the program and run it on this machine")
    _propagation_options(command)
    _partition_options(command)
    given = command.add_mutually_exclusive_group()
    given.add_argument("--inputs", metavar="NPZ", help="arrays by parameter name, path, or in order (arr_0, arr_1 ...)")
    given.add_argument("--random", type=read_seed, metavar="SEED", default=0, help="random inputs (default: seed 0)")
    command.add_argument("--platform", choices=("cpu", "cuda"), default="cpu", help="default: forced CPU devices")
    _flag(command, "--reference", "by the reference executor, which needs no devices")
    _flag(command, "--check", "compare with the unpartitioned program on one device")
    command.add_argument("--tolerance", type=read_tolerance, metavar="T", help="for --check, of the largest magnitude")
    command.add_argument("--save", metavar="NPZ", help="write the outputs: output_0, output_1 ...")
    command.add_argument("--emit", choices=("json",), help="the outputs' figures for programs")


def _add_compile(commands: Any) -> None:
    command = _command(commands, "compile", "compile the program for GPUs that need not be there, beside XLA's own")
    _propagation_options(command)
    targets = "for what, as h100:8: a100, h100, h200, b200 (default: as many as the program is for)"
    command.add_argument("--target", type=read_machine, required=True, metavar="NAME[:N]", help=targets)
    _partition_options(command, machine=False)
    command.add_argument("--emit", choices=("json",), help="for programs")
    command.add_argument("-o", "--output", metavar="OUT", help="where to write the HLO that XLA made of our program")


def _add_explain(commands: Any) -> None:
    command = _command(commands, "explain", "say why a value has its sharding, or why a collective is there")
    naming = (
        "a value, a parameter's path, a source line (model.py:31), a collective (#3), or one of XLA's own program"
        " (xla#3, xla:model.py:31)"
    )
    command.add_argument("name", metavar="NAME", help=naming)
    _propagation_options(command)
    _partition_options(command)
    _flag(command, "--splits", "how else the op could be split, and what that would cost")
    _flag(command, "--collectives", "the collectives of a source line, not its values")
    _flag(command, "--whole", "every step of a long chain")
    command.add_argument("--emit", choices=("json",), help="for programs")


def _add_report(commands: Any) -> None:
    command = _command(commands, "report", "tell all there is to say of a program, as tables or as one page")
    _propagation_options(command)
    _partition_options(command)
    command.add_argument(
        "--against", metavar="FILE|xla", help="compare with another program, or with what XLA's own partitioner makes"
    )
    tried = "try annotations that save time, for the dearest collectives; minutes where there are 10,000 ops"
    _flag(command, "--suggest", tried)
    command.add_argument("--plot", metavar="FILE.svg", help="draw the whole program, layers that repeat once")
    command.add_argument("--emit", choices=("json",), help="for programs")
    command.add_argument("-o", "--output", metavar="FILE.html", help="write one page for a browser")


def _add_simulate(commands: Any) -> None:
    command = _command(commands, "simulate", "predict time and memory of a step, or of a schedule, on a machine")
    _propagation_options(command)
    _partition_options(command)
    _combine_option(command)
    command.add_argument("--trace", metavar="JSON", help="write a trace for Perfetto or chrome://tracing")
    command.add_argument("--plot", metavar="FILE.svg", help="draw who works when in a schedule, and what each holds")
    links = "of a schedule: transfers beside computing (the default), step by step, or sharing links"
    semantics = ("overlap", "synchronous", "contention")
    command.add_argument("--semantics", choices=semantics, default=semantics[0], help=links)
    _runtime_option(command)
    command.add_argument(
        "--most", type=read_positive, default=10, metavar="N", help="steps of the critical path to print"
    )
    command.add_argument("--emit", choices=("json",), help="every event, for programs")


_PARTS_OF_DATA = {
    "--replicas": "are copies of what is split over data",
    "--context": "are parts of sequences",
    "--experts": "have other experts",
}


def _add_search(commands: Any) -> None:
    command = _command(commands, "search", "find the best data, tensor and pipeline parallelism for a machine")
    _load_options(command)
    _batch_option(command, "found")
    command.add_argument("--machine", type=read_machine, required=True, metavar="NAME:N", help="for what, as h100:16")
    _runtime_option(command)
    _plans_option(command, "all of the options below")
    command.add_argument("--microbatches", type=read_counts, metavar="K,K...", help="of pipelines (default: 2 to 128)")
    _words_option(command, "--schedules", "NAME,NAME...", "of pipelines, as 1f1b,1f1b-x2,zb-h1 (default: 1f1b)")
    links = "of stages, data and tensors on the links, the outermost first (default: PDT)"
    _words_option(command, "--orders", "PDT,PTD...|all", links)
    _words_option(command, "--strategy", "NAME,NAME...", "which arguments are split, as fsdp,zero2 (default: megatron)")
    for name, parts in _PARTS_OF_DATA.items():
        command.add_argument(
            name, type=read_counts, default=(1,), metavar="N,N...", help=f"of the data ways, how many {parts}"
        )
    _flag(command, "--sequence", "with sequence parallelism, too")
    _flag(command, "--recompute", "with layers computed again for the gradients, too")
    _several(command, "--donate", "PATH", "an argument that the update may overwrite")
    command.add_argument("--resume", metavar="FILE", help="keep prices there, and go on from those that are there")
    command.add_argument("--jobs", type=read_positive, default=1, metavar="N", help="processes that price (default: 1)")
    command.add_argument("--plot", metavar="FILE.svg", help="draw time against memory of all plans")
    command.add_argument("-o", "--output", metavar="OUT", help="write the best plan's schedule, for simulate")
    _save_plan_option(command, "the best plan")
    _flag(command, "--all", "price every plan, those of which it is certain, too")
    command.add_argument("--most", type=read_positive, default=10, metavar="N", help="how many to print (default: 10)")
    command.add_argument("--emit", choices=("json",), help="for programs")


def _batch_option(command: Any, otherwise: str = "") -> None:
    said = "an argument whose first dim is the batch" + f" (default: {otherwise})" * bool(otherwise)
    command.add_argument("--batch", metavar="PATH", action="append", required=not otherwise, help=said)


def _plans_option(command: Any, otherwise: str) -> None:
    said = f"which plans, as tables write them: '8/2/2/16 fsdp,4/4/1/1' (default: {otherwise})"
    command.add_argument("--plans", type=read_plans, metavar="D/T/P/K ...,...", help=said)


def _save_plan_option(command: Any, what: str) -> None:
    command.add_argument("--save-plan", metavar="FILE", help=f"write {what}, for --plan (TOML; JSON if named so)")


def _words_option(command: Any, name: str, metavar: str, said: str) -> None:
    command.add_argument(name, type=read_words, default=[""], metavar=metavar, help=said)


def _add_calibrate(commands: Any) -> None:
    command = _parser(commands, "calibrate", "measure the devices here, and write a machine file for --machine")
    measured = "a program whose products and convolutions are measured"
    command.add_argument("file", metavar="FILE", nargs="?", help=measured)
    _load_options(command)
    _device_options(command)
    command.add_argument("-o", "--output", metavar="TOML", required=True, help="where to write the machine")
    command.add_argument("--emit", choices=("json",), help="every measurement, for programs")


def _add_rank(commands: Any) -> None:
    command = _command(commands, "rank", "run plans here, and compare what they take with what they should")
    _load_options(command)
    _batch_option(command)
    _device_options(command)
    _plans_option(command, "some of all for the devices")
    command.add_argument("--count", type=read_positive, default=20, metavar="N", help="so many at random (default: 20)")
    command.add_argument("--seed", type=read_seed, default=0, help="of the plans that are drawn (default: 0)")
    _machine_option(command, "whose prices count, as cpu:8 (default: calibrated now)")
    command.add_argument("--most", type=read_positive, default=20, metavar="N", help="how many to print (default: 20)")
    command.add_argument("--emit", choices=("json",), help="for programs")


def _device_options(command: Any) -> None:
    command.add_argument(
        "-n", "--devices", type=read_positive, metavar="N", help="how many (default: all, or 8 CPU devices)"
    )
    command.add_argument("--platform", choices=("cpu", "cuda"), default="cpu", help="default: forced CPU devices")


def _add_suggest(commands: Any) -> None:
    command = _command(commands, "suggest", "find annotations that split a value, end a conflict, or make it faster")
    naming = (
        "a value, a parameter's path, a source line (model.py:31), or a collective (#3); without one the whole program"
    )
    command.add_argument("name", metavar="NAME", nargs="?", help=naming)
    _propagation_options(command)
    _partition_options(command)
    command.add_argument("--conflict", metavar="VALUE", help="end the conflict with this neighbour (default: with all)")
    command.add_argument(
        "--apply", metavar="SOURCE.py", help="print a patch that writes the best suggestion into the function's source"
    )
    command.add_argument("-o", "--output", metavar="OUT.py", help="with --apply: write the changed copy there instead")
    command.set_defaults(usage_error=command.error)
    _save_plan_option(command, "the best suggestion, on top of the annotations given")
    command.add_argument("--most", type=read_positive, default=5, metavar="N", help="how many to print (default: 5)")
    command.add_argument("--emit", choices=("json",), help="for programs")


def _add_diff(commands: Any) -> None:
    summary = "say what differs between two programs, or two plans of one: shardings, collectives, cost"
    command = _parser(commands, "diff", summary)
    command.add_argument("before", metavar="A", help="a program, or with --of a plan file")
    command.add_argument("after", metavar="B", help="likewise")
    command.add_argument("--of", metavar="PROGRAM", help="compare two plan files, applied to this program")
    _propagation_options(command)
    _partition_options(command)
    command.add_argument("--most", type=read_positive, default=40, metavar="N", help="rows of each table (default: 40)")
    _flag(command, "--exit-code", "exit with 1 where anything differs, else with 0")
    _output_options(command)


def _add_check(commands: Any) -> None:
    summary = "hold a program to the figures recorded beside a plan file, or name what is whole by accident, for CI"
    command = _parser(commands, "check", summary)
    # Of one word alone argparse makes PROGRAM: `?` takes what others leave.
    command.add_argument(
        "plan", metavar="PLAN", nargs="?", help="the plan file; the figures of plan.toml are in plan.golden.toml"
    )
    command.add_argument("file", metavar="PROGRAM", help="the program; - for standard input")
    _flag(command, "--update", "record the figures as they are now")
    growth = "by what fraction figures may grow: 0.01"
    command.add_argument("--tolerance", type=read_tolerance, default=0.0, metavar="T", help=growth)
    command.add_argument(
        "--replicated-over", type=read_positive, metavar="BYTES", help="of which size replicated values count (1 MiB)"
    )
    command.set_defaults(usage_error=command.error)
    _propagation_options(command, plan=False)
    _partition_options(command)


def _add_export(commands: Any) -> None:
    command = _command(commands, "export", "write what a stock jax.jit needs to lay the program out so, as Python")
    _propagation_options(command)
    _partition_options(command)
    _flag(command, "--compare", "compile it by XLA for CPU devices, and show its program beside ours")
    _output_options(command)


def _output_options(command: Any) -> None:
    command.add_argument("--emit", choices=("json",), help="for programs")
    command.add_argument("-o", "--output", metavar="OUT", help="where to write it (default: standard output)")


def _add_reshard(commands: Any) -> None:
    command = _parser(commands, "reshard", "plan the way of an array from one sharding to another")
    command.add_argument("source", metavar="SRC", help="a sharding, as {devices=[4,2]<=[8]}")
    command.add_argument("target", metavar="DST", help="the sharding wanted")
    command.add_argument("--shape", required=True, metavar="SHAPE", help="of the whole array, as f32[16,16]")
    command.add_argument("--memory-limit", type=read_positive, metavar="BYTES", help="that may be alive on a device")
    _flag(command, "--no-drawing", "only the plan")
    command.add_argument("--emit", choices=("json",), help="for programs")
    _planning_options(command)
    command.set_defaults(objective="time")


def _add_draw(commands: Any) -> None:
    command = _parser(commands, "draw", "draw which devices hold which part of an array")
    command.add_argument("sharding", metavar="SHARDING", help="as {devices=[4,2]<=[8]}")
    command.add_argument("--shape", required=True, metavar="SHAPE", help="of the whole array, as f32[16,16]")
    command.add_argument("--emit", choices=("text", "svg", "json"), default="text", help="what to write")
    command.add_argument("-o", "--output", metavar="OUT", help="where to write it (default: standard output)")


def _add_completion(commands: Any) -> None:
    command = _parser(commands, "completion", "write what makes a shell complete our command lines")
    command.add_argument("shell", choices=("bash", "zsh", "fish"), help="which shell")


def _add_convert(commands: Any) -> None:
    command = _command(commands, "convert", "write the program, or a sharding, in another format", one_of=True)
    _load_options(command)
    _emit_options(command, "hlo", "hlo-proto", "stablehlo", "sdy", "json")
    command.add_argument("--to", choices=_SHARDING_FORMATS, help="how to write the sharding")
    command.add_argument(
        "--from", dest="source", choices=_SHARDING_FORMATS, help="of the sharding, where its text does not tell"
    )
    command.add_argument("--mesh", metavar="AXIS=N,...", help="of the sharding: x=2,y=4, or as a program declares it")
    command.add_argument(
        "--ndim", type=read_rank, metavar="N", help="rank of the array (default: the dims that are shown)"
    )
    command.set_defaults(usage_error=command.error)


def _parser(commands: Any, name: str, summary: str) -> argparse.ArgumentParser:
    """A command, which `--help` lists with its summary."""
    return commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")


def _command(commands: Any, name: str, summary: str, *, one_of: bool = False) -> argparse.ArgumentParser:
    """A command on a program; `one_of`: or on a sharding."""
    command = _parser(commands, name, summary)
    help_file = "the program; - for standard input"
    if not one_of:
        command.add_argument("file", metavar="FILE", help=help_file)
        return command
    given = command.add_mutually_exclusive_group(required=True)
    given.add_argument("file", metavar="FILE", nargs="?", help=help_file)
    given.add_argument("--sharding", metavar="TEXT", help="a sharding, as {devices=[4,2]<=[8]}; - for standard input")
    return command


def _load_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--format", choices=_FORMATS, help="of FILE, where name and content do not tell")
    prepared = "inline calls and drop dead code as XLA does before propagation (default: for what JAX lowered)"
    command.add_argument("--prepare", action=argparse.BooleanOptionalAction, help=prepared)
    sizes = "of an ONNX model: the size of an input (x=f32[8,16]), or its value (n=3, dims=[2,4]); may be repeated"
    _several(command, "--input", "NAME=SHAPE|VALUE", sizes, read_input)
    native = "of a program that you trust: native code that may run, beside LAPACK; may be repeated"
    _several(command, "--custom-call", "TARGET", native)
    command.add_argument(
        "--configuration", metavar="NAME", help="which of an ONNX model's own device annotations count"
    )


def _propagation_options(command: argparse.ArgumentParser, *, plan: bool = True) -> None:
    _load_options(command)
    given = "give a value its sharding: 'x={devices=[8]<=[8]}', or 'x=P(data,None)' with --mesh; may be repeated"
    _several(command, "--annotate", "NAME=SHARDING", given, read_annotation)
    if plan:
        below = "annotations, mesh and machine of a TOML or JSON file; --annotate comes on top"
        command.add_argument("--plan", metavar="FILE", help=below)
    rules = "Python that you trust, executed first: its hs.register_rule say how custom calls split; may be repeated"
    _several(command, "--rule", "FILE.py", rules)
    command.add_argument(
        "--mesh", type=read_mesh, metavar="AXIS=N,...", help="axis names, major to minor: data=2,model=4"
    )
    for edge in ("outputs", "parameters"):
        opened = f"{edge} may be given shardings (default: what JAX or the first line of FILE leaves open)"
        command.add_argument(f"--to-{edge}", action=argparse.BooleanOptionalAction, help=opened)


def _runtime_option(command: Any) -> None:
    who = "who runs it: XLA, which fuses ops, or a framework that launches a kernel an op (default: the machine's)"
    command.add_argument("--runtime", choices=("compiled", "eager"), help=who)


def _combine_option(command: Any) -> None:
    alone = "price each collective alone, not as XLA's combiner joins those of one kind and group"
    command.add_argument("--no-combine", dest="combine", action="store_false", help=alone)


def _partition_options(command: argparse.ArgumentParser, *, machine: bool = True) -> None:
    _planning_options(command, machine=machine)
    often = "how often a loop runs where FILE does not tell, by name or source line: while.7=100; may be repeated"
    _several(command, "--trips", "LOOP=N", often, read_trips)
    loops = "matrix products as loops that permute tiles while they multiply others (default: off)"
    command.add_argument("--overlap", choices=("off", "auto", "always"), default="off", help=loops)


def _planning_options(command: argparse.ArgumentParser, *, machine: bool = True) -> None:
    command.add_argument(
        "-n", "--num-partitions", type=read_positive, metavar="N", help="devices (default: what FILE says)"
    )
    if machine:
        _machine_option(command, "whose prices decide, as h100:16 (default: this one's)")
    command.add_argument("--objective", choices=("time", "bytes"), help="what is minimised (default: time)")


def _emit_options(command: argparse.ArgumentParser, *forms: str) -> None:
    command.add_argument("--emit", choices=forms, help="what to write")
    command.add_argument("-o", "--output", metavar="OUT", help="where to write it (default: standard output)")
    _flag(command, "--metadata", "keep op names and source frames in HLO text")


def _machine_option(command: Any, said: str) -> None:
    command.add_argument("--machine", type=read_machine, metavar="NAME[:N]", help=said)


def _flag(command: Any, name: str, said: str) -> None:
    command.add_argument(name, action="store_true", help=said)


def _several(command: Any, name: str, metavar: str, said: str, read: Callable[[str], Any] | None = None) -> None:
    """May be given again and again."""
    # One list for all: argparse copies it before it appends.
    command.add_argument(name, action="append", default=[], type=read, metavar=metavar, help=said)
