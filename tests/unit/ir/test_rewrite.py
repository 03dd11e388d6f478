"""Rewrites keep operands and users in step."""

from __future__ import annotations

from typing import Any

import pytest

from hlosharding import load
from hlosharding.errors import ModuleError
from hlosharding.ir import Builder, Edit, Module, Shape, rewrite, verify

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


def test_an_inserted_op_takes_the_shape_that_follows() -> None:
    module = load(TWICE).clone()
    x = module.by_name("x")
    made = rewrite.insert(module.entry, 1, "concatenate", None, (x, x), name="both", dimensions=(0,))
    assert str(made.shape) == "f32[8]"


TWICE = """HloModule m
f { p = f32[4] parameter(0)  ROOT r = f32[4] negate(p) }
ENTRY e { x = f32[4] parameter(0)  a = f32[4] call(x), to_apply=f  b = f32[4] negate(x)  c = f32[4] abs(x)
  ROOT t = (f32[4], f32[4], f32[4]) tuple(a, b, c) }"""


def test_a_user_that_goes_leaves_the_others_in_order_or_as_xla_does() -> None:
    for leave, left in ((rewrite.others_keep_order, ["b", "c"]), (rewrite.last_user_takes_place, ["c", "b"])):
        module = load(TWICE).clone()
        x, a = module.by_name("x"), module.by_name("a")
        rewrite.release_operands(a, leave=leave)
        assert [user.name for user in x.users] == left
        assert a.operands == (x,)


def test_attributes_of_a_clone_are_its_own() -> None:
    module = load(TWICE)
    clone = module.clone()
    rewrite.set_attributes(clone.by_name("a"), frontend_attributes={"kept": "1", "gone": "2"})
    rewrite.keep_frontend_attributes(clone.by_name("a"), lambda name: name == "kept")
    rewrite.set_metadata(clone.by_name("a"), op_name="path")
    rewrite.take_metadata(clone.by_name("b"), clone.by_name("a"))
    assert clone.by_name("a").frontend_attributes == {"kept": "1"}
    assert clone.by_name("b").op_name == "path"
    rewrite.drop_metadata(clone.by_name("b"))
    assert (clone.by_name("b").op_name, module.by_name("a").frontend_attributes) == ("", {})


def test_a_computation_moves_to_its_place_under_free_names() -> None:
    module = load(TWICE).clone()
    f = module.by_name("r").computation
    builder = Builder("other")
    mine = builder.computation("g")
    mine.parameter(0, Shape.array("f32"), name="x")
    rewrite.place_computation(module, mine.computation, 0)
    assert [c.name for c in module.computations] == ["g", f.name, "e"]
    assert mine.computation.instructions[0].name == "x.1"


def test_an_edit_finishes_in_xlas_order() -> None:
    edit = Edit(load(TWICE))
    b = edit.module.by_name("b")
    made = edit.create(b.computation, "tanh", b.operands, metadata_of=b)
    edit.replace(b, made)
    out = edit.finish()
    verify(out)
    assert [i.name for i in out.entry.instructions] == ["x", "a", "tanh", "c", "t"]
    # It was the last user when b went, and so has b's place.
    assert [user.name for user in out.by_name("x").users] == ["a", "tanh", "c"]


def test_dead_code_where_an_operand_stands_behind_its_reader(module: Module) -> None:
    """A rewrite may leave an order that is mended later: what is needed stays, wherever it stands."""
    order = module.entry.instructions
    order.insert(2, order.pop(1))
    assert [i.name for i in order] == ["x", "z", "y", "out"]
    rewrite.insert(module.entry, 0, "sine", VECTOR, (module.by_name("x"),), name="idle")
    assert rewrite.dead_code(module)
    assert [i.name for i in module.entry.instructions] == ["x", "z", "y", "out"]


def test_opcodes_are_found_after_every_change(module: Module) -> None:
    assert [i.name for i in module.of_opcodes("multiply", "negate", "sine")] == ["y", "out"]
    rewrite.change_opcode(module.by_name("y"), "sine", module.by_name("y").operands)
    assert [i.name for i in module.of_opcodes("multiply", "negate", "sine")] == ["y", "out"]
    assert not module.of_opcodes("negate")
    rewrite.insert(module.entry, 1, "negate", VECTOR, (module.by_name("x"),), name="n")
    module.renumber()
    assert [i.name for i in module.of_opcodes("negate")] == ["n"]
    assert not module.of_opcodes()


@pytest.mark.parametrize(
    ("opcode", "made", "lawful", "wrong", "said"),
    [
        ("broadcast", "f32[4,4]", {"dimensions": (0,)}, {"dimensions": (2,)}, "do not broadcast"),
        ("transpose", "f32[4]", {"dimensions": (0,)}, {"dimensions": (1,)}, "dim"),
        ("reshape", "f32[2,2]", {}, None, "the operand has 4 elements"),
    ],
)
def test_each_of_many_alike_is_verified(
    opcode: str, made: str, lawful: dict[str, Any], wrong: dict[str, Any] | None, said: str
) -> None:
    """Equal ops are verified once; the one that is not equal is seen."""
    builder = Builder("m")
    main = builder.computation("main")
    x = main.parameter(0, VECTOR)
    shape = Shape.parse(made)
    for _ in range(3):
        main.add(opcode, shape, (x,), **lawful)
    verify(builder.finish(main))
    main.add(opcode, shape if wrong is not None else Shape.parse("f32[3]"), (x,), name="odd", **(wrong or lawful))
    with pytest.raises(ModuleError, match=said) as raised:
        verify(builder.finish(main))
    assert "%odd" in str(raised.value)


def returned_twice(count: int) -> tuple[Module, list[str]]:
    """Values that a tuple returns, and an add reads, behind copies: two of each, and a copy of a copy."""
    builder = Builder("m")
    main = builder.computation("main")
    x = main.parameter(0, VECTOR, name="x")
    copies = [main.add("copy", VECTOR, (x,), name=f"copy{n}") for n in range(count)]
    copies.append(main.add("copy", VECTOR, (copies[0],), name="again"))
    main.add("add", VECTOR, (copies[0], copies[1]), name="sum")
    main.root(main.add("tuple", Shape.tuple((VECTOR,) * (count + 2)), (*copies, x), name="out"))
    return builder.finish(main), [copy.name for copy in copies]


def wiring(module: Module, gone: list[str]) -> dict[str, tuple[list[str], list[str]]]:
    """Of what is left, operands and users in order."""
    left = (i for i in module.instructions if i.name not in gone)
    return {i.name: ([o.name for o in i.operands], [u.name for u in i.users]) for i in left}


@pytest.mark.parametrize("leave", [rewrite.others_keep_order, rewrite.last_user_takes_place])
def test_bypassing_many_is_bypassing_one_by_one(leave: rewrite.LeaveUsers) -> None:
    (one_by_one, names), (at_once, _) = returned_twice(4), returned_twice(4)
    for copy in map(one_by_one.by_name, names):
        rewrite.replace_uses(copy, copy.operands[0])
        rewrite.release_operands(copy, leave=leave)
    rewrite.bypass([at_once.by_name(name) for name in names], leave=leave)
    assert wiring(at_once, names)["out"] == (["x"] * 6, [])
    if leave is rewrite.others_keep_order:  # `replace_uses` itself knows no other
        assert wiring(at_once, names) == wiring(one_by_one, names)


def test_replacing_each_is_replacing_uses_one_by_one() -> None:
    (one_by_one, names), (at_once, _) = returned_twice(3), returned_twice(3)
    for module in (one_by_one, at_once):
        values = [module.by_name(name) for name in names]
        end = len(module.entry.instructions)
        made = {v: rewrite.insert(module.entry, end, "abs", VECTOR, (v,), name=f"{v.name}.abs") for v in values}
        if module is at_once:
            rewrite.replace_each(made)
        else:
            for value, stands_in in made.items():
                rewrite.replace_uses(value, stands_in, where=lambda user, own=stands_in: user is not own)
        rewrite.place_behind(module.entry, {value: [stands_in] for value, stands_in in made.items()})
        module.renumber()
    assert wiring(at_once, []) == wiring(one_by_one, [])
    assert [o.name for o in at_once.by_name("sum").operands] == ["copy0.abs", "copy1.abs"]
    assert [i.name for i in at_once.entry.instructions][:4] == ["x", "copy0", "copy0.abs", "copy1"]
    verify(at_once)
