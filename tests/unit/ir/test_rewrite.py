"""Rewrites keep operands and users in step."""

from __future__ import annotations

import pytest

from hlosharding.errors import ModuleError
from hlosharding.ir import Builder, Module, Shape, rewrite, verify

VECTOR = Shape.parse("f32[4]")


@pytest.fixture
def module() -> Module:
    builder = Builder("m")
    main = builder.computation("main")
    x = main.parameter(0, VECTOR, name="x")
    y = main.add("negate", VECTOR, (x,), name="y")
    z = main.add("add", VECTOR, (y, y), name="z")
    main.root(main.add("multiply", VECTOR, (z, x), name="out"))
    return builder.finish(main)


def users(module: Module, name: str) -> list[str]:
    return [u.name for u in module.by_name(name).users]


def test_replacing_uses_moves_the_users(module: Module) -> None:
    rewrite.replace_uses(module.by_name("y"), module.by_name("x"))
    assert users(module, "y") == []
    assert users(module, "x") == ["y", "out", "z"]
    verify(module)


def test_one_operand_of_two_equal_ones(module: Module) -> None:
    rewrite.replace_operand(module.by_name("z"), 0, module.by_name("x"))
    assert [o.name for o in module.by_name("z").operands] == ["x", "y"]
    assert users(module, "y") == ["z"]


def test_a_replaced_root_hands_the_root_over(module: Module) -> None:
    rewrite.replace_uses(module.by_name("out"), module.by_name("z"))
    assert module.entry.root is module.by_name("z")


def test_what_is_used_cannot_be_removed(module: Module) -> None:
    with pytest.raises(ModuleError, match="%y is still used"):
        rewrite.remove(module.by_name("y"))


def test_insert_and_dead_code(module: Module) -> None:
    new = rewrite.insert(module.entry, 2, "abs", VECTOR, (module.by_name("y"),), name=rewrite.fresh_name(module, "y"))
    assert new.name == "y.1"
    module.renumber()
    verify(module)
    assert rewrite.dead_code(module)
    module.renumber()
    assert "y.1" not in {i.name for i in module.instructions}
    assert users(module, "y") == ["z"]
    assert not rewrite.dead_code(module)


def test_another_opcode_keeps_name_and_metadata(module: Module) -> None:
    y = module.by_name("y")
    rewrite.change_opcode(y, "copy")
    assert (y.opcode, y.name, y.shape) == ("copy", "y", VECTOR)
    verify(module)


def test_a_copy_is_the_same_op_on_other_operands(module: Module) -> None:
    x, y = module.by_name("x"), module.by_name("y")
    copy = rewrite.copy(y, 1, (y,), to=module.entry)
    assert (copy.opcode, copy.shape, copy.operands, module.entry.instructions[1]) == ("negate", VECTOR, (y,), copy)
    assert users(module, "y") == ["z", "y"]
    assert users(module, x.name) == ["y", "out"]
