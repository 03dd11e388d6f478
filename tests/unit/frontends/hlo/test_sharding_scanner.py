"""Every sharding of a text is found, checked, and its place told, before jaxlib sees the text."""

from __future__ import annotations

import pytest

from hlosharding.errors import LoadError
from hlosharding.frontends.hlo import sharding_scanner
from hlosharding.frontends.hlo.sharding_scanner import place, scan_hlo, scan_stablehlo

LINE = "  %x = f32[4,4] parameter(0), sharding={}\n"


def hlo(sharding: str) -> str:
    return "HloModule m\nENTRY %e (x: f32[4,4]) -> f32[4,4] {\n" + LINE.replace("{}", sharding) + "}\n"


def test_each_attribute_is_found() -> None:
    text = hlo("{devices=[2,2]<=[4]}") + hlo("{{replicated}, /*index=1*/{maximal device=3}}")
    assert list(map(str, scan_hlo(text))) == ["{devices=[2,2]<=[4]}", "{{replicated}, {maximal device=3}}"]


@pytest.mark.parametrize(
    "harmless",
    [
        '  %x = f32[4] parameter(0), metadata={op_name="sharding={oops}"}',
        '  %x = f32[4] parameter(0), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{}]>"}',
        "  // sharding={oops}",
        "  /* sharding={\n oops} */",
        '  %x = f32[4] custom-call(), custom_call_target="a\\"b", backend_config="sharding={oops"',
        "  %sharding = f32[4] parameter(0)",
        "  %x = f32[4] parameter(0), spmd_sharding={oops}",
        "  %x = f32[2] constant({1, /* ), sharding={oops} */ 2})",
        "  %x = f32[2] constant({1, // ), sharding={oops}\n 2})",
    ],
)
def test_what_only_looks_like_a_sharding_is_left_alone(harmless: str) -> None:
    assert scan_hlo(harmless) == []


def test_metadata_strings_inside_a_sharding_may_hold_braces() -> None:
    sharding = '{devices=[2,1]<=[2] metadata={op_name="a}{"}}'
    assert repr(scan_hlo(hlo(sharding))[0]) == f"HloSharding({sharding!r})"


def test_the_ends_of_a_domain_are_shardings_too() -> None:
    line = '  %d = f32[4] domain(%x), domain={kind="sharding", entry={maximal device=0}, exit={devices=[2]0,1}}'
    assert list(map(str, scan_hlo(line))) == ["{maximal device=0}", "{devices=[2]0,1}"]
    assert scan_hlo("HloModule m, entry={oops}") == []


@pytest.mark.parametrize(
    ("sharding", "message"),
    [
        ("{devices=[2,2]0,1,2}", "bad sharding"),
        ("{devices=[2,2]0,1,2,2}", "bad sharding"),
        ("{devices=[2,2]<=[5]}", "bad sharding"),
        ("{mesh['a'=2], [{'b'}]}", "bad sharding"),
        ("{replicatedd}", "bad sharding"),
        ("replicated", "not followed by"),
    ],
)
def test_a_bad_sharding_is_an_error_with_line_and_column(sharding: str, message: str) -> None:
    with pytest.raises(LoadError, match=rf"{message}.* at line 3, column \d+"):
        scan_hlo(hlo(sharding))


def test_a_sharding_without_its_brace_is_an_error() -> None:
    with pytest.raises(LoadError, match="not closed; at line 1, column 13"):
        scan_hlo("x, sharding={devices=[2,2]<=[4]")


def test_a_comment_may_stand_between_comma_and_attribute() -> None:
    assert len(scan_hlo("x, /* { */ sharding={replicated}")) == 1


@pytest.mark.parametrize(
    "piece", ['"', "/*", "//", ", ", ", /* */", "{", "sharding=", ", sharding", '"\\', "\n", '\\"']
)
def test_megabytes_of_garbage_come_to_an_end(piece: str) -> None:
    # In quadratic time they would not.
    text = piece * (2_000_000 // len(piece))
    assert scan_hlo(text) == scan_stablehlo(text) == []


def test_megabytes_of_open_braces_are_one_error() -> None:
    with pytest.raises(LoadError, match="not closed"):
        scan_hlo(", sharding={" + "{devices=[" * 1_000_000)


def test_stablehlo_strings_are_found_and_unescaped() -> None:
    text = (
        'func.func @main(%a: tensor<4xf32> {mhlo.sharding = "{devices=[2]<=[2]}"}) {\n'
        '  %0 = stablehlo.custom_call @Sharding(%a) {mhlo.sharding = "{replicated metadata={op_name=\\22x\\22}}"}\n'
        '  "sharding = \\"{oops}\\"" // mhlo.sharding = "{oops}"\n}'
    )
    assert list(map(str, scan_stablehlo(text))) == ["{devices=[2]<=[2]}", "{replicated}"]


def test_a_bad_stablehlo_sharding_is_an_error_with_its_line() -> None:
    with pytest.raises(LoadError, match="line 2, column 35"):
        scan_stablehlo('module {\n  x {mhlo.sharding = "{devices=[2]0}"}')


def test_places_count_from_one() -> None:
    assert place("ab\n\ncd", 5) == "line 3, column 2"
    assert place("ab", 0) == "line 1, column 1"


@pytest.mark.parametrize("numbers", ["{1, 2}", "{ { /*i0=0*/ 1, 2 } }", "{(1, 2), (3, 4)}", "nan", "1 / 2"])
def test_a_sharding_behind_a_constant_is_found(numbers: str) -> None:
    found = scan_hlo(f'  %x = f32[2] constant({numbers}), sharding={{replicated}}, metadata={{op_name="a"}}')
    assert list(map(str, found)) == ["{replicated}"]


def test_a_constant_is_passed_in_one_step() -> None:
    # The words that the scanner stops at, counted: not one for each of a constant's numbers.
    text = f"  %x = f32[9999] constant({{{', '.join(['1.5'] * 9999)}}})"
    assert sum(1 for _ in sharding_scanner._HLO_WORDS.finditer(text)) == 1
    dense = 'dense<"0x' + "AB" * 99999 + '"> : tensor<1xf32>, mhlo.sharding = "{replicated}"'
    assert sum(1 for _ in sharding_scanner._STABLEHLO_WORDS.finditer(dense)) == 2
