"""Sharding texts that mirror XLA's tests of printing and parsing; live XLA says how it prints them."""

from __future__ import annotations

ONE = ' metadata={op_name="load"}'
TWO = ' metadata={{op_name="dot"}, {op_name="sum"}}'

TEXTS: dict[str, tuple[str, str]] = {
    # our name: the text, and a shape that it fits
    "whole": ("{replicated}", "f32[6]"),
    "whole_one_origin": (f"{{replicated{ONE}}}", "f32[6]"),
    "whole_two_origins": (f"{{replicated{TWO}}}", "f32[6]"),
    "one_device": ("{maximal device=4}", "f32[6]"),
    "one_device_one_origin": (f"{{maximal device=4{ONE}}}", "f32[6]"),
    "one_device_two_origins": (f"{{maximal device=4{TWO}}}", "f32[6]"),
    "tiled": ("{devices=[1,3,2]1,9,4,6,0,7}", "f32[2,6,4]"),
    "tiled_one_origin": (f"{{devices=[1,3,2]1,9,4,6,0,7{ONE}}}", "f32[2,6,4]"),
    "tiled_two_origins": (f"{{devices=[1,3,2]1,9,4,6,0,7{TWO}}}", "f32[2,6,4]"),
    "tiled_by_iota": ("{devices=[5,6]<=[3,5,2]T(1,2,0)}", "f32[10,12]"),
    "listed_in_order": ("{devices=[1,2,3]0,1,2,3,4,5}", "f32[2,6,6]"),
    "tuple": ("{{replicated}, {devices=[2,1]4,2}, {maximal device=1}}", "(f32[3], f32[4,5], f32[])"),
    "tuple_with_origins": (
        '{{replicated metadata={op_name="p"}}, {devices=[2,1]4,2}, {maximal device=1 metadata={op_name="q"}}}',
        "(f32[3], f32[4,5], f32[])",
    ),
    "nested_tuple": (
        f"{{{{devices=[1,1,2]1,0}}, {{replicated{ONE}}}, {{maximal device=1{TWO}}}}}",
        "(f32[3,2,4], (f32[5], f32[7,2]))",
    ),
    "trivial_subgroup": ("{devices=[1,3,1]0,1,2 last_tile_dims={manual, replicated}}", "f32[6]"),
    "empty_tuple": ("{}", "()"),
}
