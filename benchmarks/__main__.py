"""Run every benchmark, each in a process of its own, and write what they print to docs/benchmarks.md.

`python -m benchmarks [NAME ...]`: with names only those run; what others printed before stays in the document.
"""

from __future__ import annotations

import ast
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from hlosharding.whole_files import write_whole

HERE = Path(__file__).parent
DOCUMENT = HERE.parent / "docs" / "benchmarks.md"
QUESTIONS = (
    "import_time",
    "propagation_time",
    "pass_time",
    "first_calls",
    "step_time",
    "call_time",
    "foreign",
    "scale",
    "doors",
    "growth",
    "propagation_equality",
    "mirror_against_xla",
    "cost_against_xla",
    "zoo_against_xla",
    "objectives",
    "collectives",
    "memory_against_xla",
    "op_choice 300",
    "stencils",
    "chains 100",
    "reshards",
    "random_programs 2000",
)
"""What is timed comes first: from `propagation_equality` on, the machine may do other work beside."""
_HEAD = """# Benchmarks

What the benchmarks printed, whole and as it came, each at the commit that it names; `make bench` writes this page.
Ratios are against the XLA of the installed jaxlib, taken in the same run.  What each table asks, and its limits:
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
        ran = f"`python -m benchmarks.{self.command}` at {_commit()}: {verdict}"
        return f"## {self.title}\n\n{ran}\n\n```\n{self.text.strip()}\n```\n"


def main(names: list[str]) -> None:
    """Status 1 where one missed its limit."""
    answers = []
    for command in QUESTIONS:
        if not names or command.split()[0] in names:
            answers.append(ask(command))
            print(answers[-1].text, flush=True)
            write(answers[-1])  # an hour's figures outlast whatever ends the next benchmark
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


def write(answer: Answer) -> None:
    """The document, whole or not at all, with one more answer in the place of an older one."""
    sections = _written()
    sections[_module(answer.command)] = answer.section()
    modules = {_module(question): question for question in QUESTIONS}
    left_out = [f"* Not run: `{question}`" for module, question in modules.items() if module not in sections]
    kept = [sections[module] for module in dict.fromkeys((*modules, *sections)) if module in sections]
    write_whole(DOCUMENT, "\n".join([_HEAD, *_machine(), *left_out, "", *kept]))


def _written() -> dict[str, str]:
    """By benchmark, what stands in the document."""
    found: dict[str, str] = {}
    for section in DOCUMENT.read_text().split("\n## ")[1:] if DOCUMENT.exists() else ():
        if command := re.search(r"`python -m benchmarks\.(\w+)", section):
            found[command[1]] = f"## {section.strip()}\n"
    return found


def _module(command: str) -> str:
    return command.split()[0]


def _commit() -> str:
    asked = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(asked, cwd=HERE, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def _machine() -> Iterator[str]:
    yield f"* Machine: {platform.machine()}, {os.cpu_count()} cores, {platform.system()}; the mesh is eight CPU devices"
    packages = ", ".join(f"{name} {version(name)}" for name in ("jax", "jaxlib", "numpy", "protobuf", "scipy"))
    yield f"* Python {platform.python_version()}, {packages}"


if __name__ == "__main__":
    main(sys.argv[1:])
