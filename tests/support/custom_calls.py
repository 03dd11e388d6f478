"""A custom call alone in a program."""

from __future__ import annotations

from collections.abc import Sequence

from hlosharding.ir import Builder, Instruction, Shape


def call(target: str, operands: Sequence[str], result: str) -> Instruction:
    """Of parameters of these shapes."""
    main = Builder("m").computation("main")
    parameters = [main.parameter(n, Shape.parse(text)) for n, text in enumerate(operands)]
    return main.add("custom-call", Shape.parse(result), parameters, custom_call_target=target)
