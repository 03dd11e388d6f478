"""Products as loops of permutes: as right and with the same bytes as a gather or a scatter, and with less memory."""

from __future__ import annotations

import numpy as np
import pytest

import hlosharding as hs
from hlosharding.errors import PartitionError
from hlosharding.partitioner import PartitionOptions
from tests.support.program_check import is_close, is_no_worse, one_device
from tests.support.split_programs import kinds, mark, module_of, values
from tests.support.yardsticks import wide, widened

LINE, BACK = "[8]<=[8]", "7,6,5,4,3,2,1,0"


def product(m: int, k: int, n: int, a: str, b: str, d: str, *, kind: str = "f32") -> str:
    return f"""
        a = {kind}[{m},{k}] parameter(0){mark(a)}
        b = {kind}[{k},{n}] parameter(1){mark(b)}
        ROOT d = {kind}[{m},{n}] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{mark(d)}"""


PRODUCTS = {
    # Tiles of columns of the right side are passed on, and their products are written in their places.
    "free": ("[8,1]<=[8]", "[1,8]<=[8]", "[8,1]<=[8]"),
    "free, other order": ("[8,1]<=[8]", f"[1,8]{BACK}", "[8,1]<=[8]"),
    "rows are passed on": (f"[8,1]{BACK}", "[1,8]<=[8]", "[1,8]<=[8]"),
    # Tiles of rows of the right side are passed on, and their products are added up.
    "contracted": ("[8,1]<=[8]", "[8,1]<=[8]", "[8,1]<=[8]"),
    # Partial sums are passed on.
    "sums of columns": ("[1,8]<=[8]", "[8,1]<=[8]", "[1,8]<=[8]"),
    "sums of rows": (f"[1,8]{BACK}", f"[8,1]{BACK}", "[8,1]<=[8]"),
    "sums, two groups": ("[2,4]<=[8]", "[4,1,2]<=[2,4]T(1,0) copies", "[2,4]<=[8]"),
}


def partitioned(body: str, overlap: str) -> hs.Partitioned:
    options = PartitionOptions(objective="bytes", overlap=overlap)
    return hs.partition(module_of(body), options=options)


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize(("m", "k", "n"), [(16, 16, 24), (13, 11, 19), (8, 3, 5)])
def test_a_loop_is_right(name: str, m: int, k: int, n: int) -> None:
    body = product(m, k, n, *PRODUCTS[name])
    module, loop = module_of(body), partitioned(body, "always")
    arguments = [values(p.shape, seed) for seed, p in enumerate(module.entry.parameters)]
    [expected] = one_device(module, arguments)
    assert is_close(np.asarray(loop.run(*arguments)), expected)


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_loop_permutes_in_every_step_but_one_with_the_same_bytes(name: str) -> None:
    body = product(64, 64, 64, *PRODUCTS[name])
    loop, plain = partitioned(body, "always"), partitioned(body, "off")
    assert kinds(loop) == ["collective-permute"]
    assert loop.collectives[0].executions == (3 if "two groups" in name else 7)
    assert loop.comm_bytes_per_device == plain.comm_bytes_per_device


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_loop_never_holds_the_gathered_operand(name: str) -> None:
    body = product(256, 256, 256, *PRODUCTS[name])
    assert partitioned(body, "always").peak_memory_bytes < partitioned(body, "off").peak_memory_bytes


def test_narrow_floats_are_added_up_wide() -> None:
    body = product(64, 16, 16, *PRODUCTS["contracted"], kind="bf16")
    module = module_of(body)
    arguments = [values(p.shape, seed) for seed, p in enumerate(module.entry.parameters)]
    loop = partitioned(body, "always")
    assert kinds(loop) == ["collective-permute"]
    [expected], [exact] = one_device(module, arguments), one_device(widened(module), [wide(a) for a in arguments])
    assert is_no_worse(np.asarray(loop.run(*arguments)), expected, exact)


def test_an_operand_that_others_need_gathered_is_gathered() -> None:
    body = f"""
        a = f32[64,8] parameter(0){mark("[8,1]<=[8]")}
        b = f32[8,8] parameter(1){mark("[1,8]<=[8]")}
        d = f32[64,8] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{mark("[8,1]<=[8]")}
        c = f32[8,8] tanh(b){mark("")}
        ROOT t = (f32[64,8], f32[8,8]) tuple(d, c), sharding={{{{devices=[8,1]<=[8]}}, {{replicated}}}}"""
    assert kinds(partitioned(body, "always")) == ["all-gather"]


def layer(rows: int, width: int) -> str:
    """Rows split, made here; weights' columns split: rows are gathered."""
    return f"""
        x = bf16[{rows},{width}] parameter(0){mark("[8,1]<=[8]")}
        y = bf16[{rows},{width}] tanh(x){mark("[8,1]<=[8]")}
        w = bf16[{width},{4 * width}] parameter(1){mark("[1,8]<=[8]")}
        ROOT h = bf16[{rows},{4 * width}] dot(y, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}},
          sharding={{devices=[1,8]<=[8]}}"""


def test_a_loop_is_chosen_where_its_simulated_time_is_shorter() -> None:
    machine = hs.machines.h100(8)
    for rows, width, expected in ((512, 256, False), (16384, 8192, True)):
        off, auto = (partitioned(layer(rows, width), mode) for mode in ("off", "auto"))
        assert ("collective-permute" in kinds(auto)) == expected
        faster = hs.simulate(auto, machine).time_s < hs.simulate(off, machine).time_s
        assert faster == expected


def test_what_is_given_to_the_program_can_be_gathered_beforehand() -> None:
    body = layer(16384, 8192).replace("dot(y, w)", "dot(x, w)")
    assert kinds(partitioned(body, "auto")) == ["all-gather"]


def test_tiles_with_padding_are_not_passed_on_unasked() -> None:
    # A gather of uneven rows may send the rows there are; in a loop all tiles are alike.
    body = layer(16380, 8192)
    assert "while" in partitioned(body, "always").to_hlo_text()
    assert "while" not in partitioned(body, "auto").to_hlo_text()


def test_other_words_are_refused() -> None:
    with pytest.raises(PartitionError, match=r"overlap is 'sometimes'.*off, auto, always"):
        partitioned(layer(64, 64), "sometimes")
