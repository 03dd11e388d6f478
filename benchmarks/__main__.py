"""Run every benchmark, each in a process of its own, and write what they print to docs/benchmarks.md.

`python -m benchmarks [NAME ...]`: with names only those run, and the document stays as it is.
"""

from __future__ import annotations

import ast
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
DOCUMENT = HERE.parent / "docs" / "benchmarks.md"
QUESTIONS = (
    "import_time",
    "propagation_time",
    "pass_time",
    "compile_time",
    "step_time",
    "call_time",
    "scale",
    "propagation_equality",
    "mirror_against_xla",
    "cost_against_xla",
    "zoo_against_xla",
    "memory_against_xla",
    "op_choice 300",
    "stencils",
    "chains 100",
    "reshards",
    "random_programs 2000",
)
"""What is timed comes first: from `propagation_equality` on, the machine may do other work beside."""
_HEAD = """# Benchmarks

What the benchmarks printed, whole and as it came; `make bench` writes this page.  Ratios are against the XLA of the
installed jaxlib, taken in the same run.  What each table asks, and its limits:
[benchmarks/README.md](../benchmarks/README.md).

Two more need what few machines have: `python -m benchmarks.jax_own_tests FOLDER` JAX's tests, `make bench-gpu-compile`
JAX's CUDA packages (and no GPU).
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one benchmark printed."""

    command: str
    title: str
    text: str
    kept: bool

    def section(self) -> str:
        """Its part of the document."""
        verdict = "Every limit is kept." if self.kept else "**A limit is missed.**"
        return f"## {self.title}\n\n`python -m benchmarks.{self.command}`: {verdict}\n\n```\n{self.text.strip()}\n```\n"


def main(names: list[str]) -> None:
    """Status 1 where one missed its limit."""
    answers = []
    for command in QUESTIONS:
        if not names or command.split()[0] in names:
            answers.append(ask(command))
            print(answers[-1].text, flush=True)
            if not names:
                write(answers)  # an hour's figures outlast whatever ends the next benchmark
    sys.exit(not all(a.kept for a in answers))


def ask(command: str) -> Answer:
    """Run one; its progress stays on standard error, its tables are kept."""
    module, *arguments = command.split()
    ran = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "170"},
        check=False,
    )
    return Answer(command, _title(module), ran.stdout, ran.returncode == 0)


def _title(module: str) -> str:
    """The question: the first line of the benchmark's docstring."""
    documented = ast.get_docstring(ast.parse((HERE / f"{module}.py").read_text())) or module
    return documented.splitlines()[0].rstrip(".")


def write(answers: list[Answer]) -> None:
    """The document, whole or not at all, of what has been answered."""
    made = DOCUMENT.with_suffix(".tmp")
    asked = {a.command.split()[0] for a in answers}
    left_out = [f"* Not run: `{q}`" for q in QUESTIONS if q.split()[0] not in asked]
    made.write_text("\n".join([_HEAD, *_machine(), *left_out, "", *(a.section() for a in answers)]))
    made.replace(DOCUMENT)


def _machine() -> Iterator[str]:
    yield f"* Machine: {platform.machine()}, {os.cpu_count()} cores, {platform.system()}; the mesh is eight CPU devices"
    packages = ", ".join(f"{name} {version(name)}" for name in ("jax", "jaxlib", "numpy", "protobuf", "scipy"))
    yield f"* Python {platform.python_version()}, {packages}"


if __name__ == "__main__":
    main(sys.argv[1:])
