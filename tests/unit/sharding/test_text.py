"""Text: what is printed and read, and where bad text fails."""

from __future__ import annotations

import pytest

from hlosharding.errors import ShardingError, ShardingParseError
from hlosharding.sharding import HloSharding
from hlosharding.sharding.scanner import Scanner
from hlosharding.sharding.text_parser import parse_next

parse = HloSharding.parse

ROUND_TRIPS = [
    "{replicated}",
    "{manual}",
    "{unknown}",
    "{unreduced}",
    "{maximal device=3}",
    "{devices=[2,2]0,1,2,3}",
    "{devices=[2,2]<=[4]}",
    "{devices=[1,1]<=[1]}",
    "{devices=[4,2]<=[2,4]T(1,0)}",
    "{devices=[2,2,2]<=[8] last_tile_dim_replicate}",
    "{devices=[2,2,2]<=[8] last_tile_dims={manual}}",
    "{devices=[1,2,2,2]<=[8] last_tile_dims={manual, unreduced, replicated}}",
    "{}",
    "{{replicated}}",
    "{{replicated}, {devices=[2]<=[2]}, {maximal device=1}}",
    "{replicated shard_as 1}",
    "{devices=[2]<=[2] shard_like 7}",
]


@pytest.mark.parametrize("text", ROUND_TRIPS)
def test_printed_as_read(text):
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        ("{ devices=[2,2] <= [4] }", "{devices=[2,2]<=[4]}"),
        ("{devices=[2,2]0, 1, 2, 3}", "{devices=[2,2]0,1,2,3}"),
        ("{last_tile_dim_replicate devices=[2,1,2]<=[4]}", "{devices=[2,1,2]<=[4] last_tile_dim_replicate}"),
        ("{device=3 maximal}", "{maximal device=3}"),
        ("{/*index=0*/{replicated}, /* five */ {manual}}", "{{replicated}, {manual}}"),
        ("{devices=[8]<=[2,2,2]T(2,0,1)}", "{devices=[8]<=[4,2]T(1,0)}"),
        ("\n{replicated}\t", "{replicated}"),
    ],
)
def test_what_may_be_written_otherwise(given, printed):
    assert str(parse(given)) == printed


def test_every_fifth_leaf_of_a_tuple_is_numbered():
    s = HloSharding.single_tuple(HloSharding.replicate(), 12)
    parts = ["{replicated}"] * 12
    parts[5], parts[10] = "/*index=5*/{replicated}", "/*index=10*/{replicated}"
    assert str(s) == "{" + ", ".join(parts) + "}"
    assert parse(str(s)) is s


@pytest.mark.parametrize(
    "text",
    [
        '{replicated metadata={op_name="a"}}',
        '{devices=[2,2]<=[4] shard_as 3 metadata={op_type="dot" op_name="f/dot" source_file="m.py" source_line=3}}',
        '{devices=[2]<=[2] metadata={{op_name="a"}, {op_name="b" stack_frame_id=7}}}',
        '{{replicated metadata={op_name="a"}}, {manual}}',
        '{replicated metadata={op_name="say \\"hi\\" \\\\ there"}}',
        "{mesh['a'=2], [{'a'}], metadata={{op_name=\"x\"}}}",
    ],
)
def test_metadata_round_trip(text):
    assert parse(text).to_string(metadata=True) == text
    assert "metadata" not in str(parse(text))


def test_metadata_and_group_are_read_in_either_order():
    assert parse('{replicated metadata={op_name="a"} shard_as 1}') is parse(
        '{replicated shard_as 1 metadata={op_name="a"}}'
    )


# text, position of the first thing that cannot stand, part of the message
BAD = [
    ("", 0, "expected '{'"),
    ("replicated", 0, "expected '{'"),
    ("{replicated", 11, "never ends"),
    ("{replicated}}", 12, "after the end"),
    ("{replicatd}", 1, "unknown word 'replicatd'"),
    ("{devices=[2,2]0,1,2}", 14, "device list too short"),
    ("{devices=[2,2]0,1,2,3,4}", 14, "device list too long"),
    ("{devices=[2,2]0,1,1,3}", 14, "device 1 is listed twice"),
    ("{devices=[2]-1,0}", 12, "negative"),
    ("{devices=[2,2]<=[8]}", 16, "has 4 tiles, the iota [8] 8 devices"),
    ("{devices=[2,2]<=[2,2]}", 21, "needs a transpose"),
    ("{devices=[2,2]<=[2,2]T(0,0)}", 22, "no permutation"),
    ("{devices=[2,2]<=[2,2]T(1,0,2)}", 22, "no permutation"),
    ("{devices=[0]<=[0]}", 9, "at least 1"),
    ("{devices=[-2]0,1}", 9, "at least 1"),
    ("{devices=[]0}", 10, "a number"),
    ("{devices=[1,1]0}", 1, "one device"),
    ("{devices [2]<=[2]}", 8, "expected '='"),
    ("{devices=[2]<=[2] last_tile_dims={sharded}}", 34, "no subgroup type"),
    ("{devices=[2]<=[2] last_tile_dims={unknown}}", 34, "no subgroup type"),
    ("{devices=[2]<=[2] last_tile_dims={manual,}}", 41, "no subgroup type"),
    ("{devices=[2]<=[2] last_tile_dims={manual, manual}}", 1, "2 last tile dims"),
    ("{replicated last_tile_dim_replicate}", 1, "without devices"),
    ("{devices=[2]<=[2] last_tile_dim_replicate last_tile_dims={manual}}", 42, "a second"),
    ("{devices=[2]<=[2] devices=[2]<=[2]}", 18, "a second 'devices'"),
    ("{replicated manual}", 12, "a second 'manual'"),
    ("{maximal}", 1, "go together"),
    ("{replicated device=3}", 1, "go together"),
    ("{shard_as 1}", 1, "needs one of"),
    ("{replicated, shard_as 1}", 11, "a comma"),
    ("{replicated shard_as}", 20, "a group number"),
    ("{{replicated}, {}}", 15, "a tuple where a leaf belongs"),
    ("{{{replicated}}}", 1, "a tuple where a leaf belongs"),
    ("{{replicated},}", 14, "expected '{'"),
    ("{{replicated} {manual}}", 14, "expected '}'"),
    ("{replicated /* no end", 12, "a comment that never ends"),
    ('{replicated metadata={op_name="a}', 30, "never ends"),
    ('{replicated metadata={op_nme="a"}}', 22, "unknown metadata field"),
    ("{replicated metadata={op_name=3}}", 22, "takes text"),
    ('{replicated metadata={source_line="a"}}', 22, "takes a number"),
    ('{replicated metadata={op_name="a" op_name="b"}}', 34, "a second 'op_name'"),
    ('{replicated metadata={{op_name="a"} {op_name="b"}}}', 36, "expected '}'"),
    ("{devices=[99999999999999999999]<=[2]}", 10, "too many digits"),
    ("{maximal device=99999999999999999999}", 16, "a number of 20 digits"),
]


@pytest.mark.parametrize(("text", "position", "message"), BAD)
def test_bad_text_fails_with_its_position(text, position, message):
    with pytest.raises(ShardingParseError) as caught:
        parse(text)
    assert message in str(caught.value)
    assert caught.value.position == position


def test_only_text_is_parsed():
    with pytest.raises(ShardingError, match="got int"):
        parse(3)  # type: ignore[arg-type]


def test_a_sharding_inside_a_longer_text():
    scan = Scanner("sharding={devices=[2]<=[2]}, metadata={}")
    scan.position = 9
    assert parse_next(HloSharding, scan) is HloSharding.iota_tile((2,))
    assert scan.position == 27


MEGABYTES = 10_000_000


@pytest.mark.parametrize(
    "garbage",
    [
        "{" * MEGABYTES,
        "{/*" + "*" * MEGABYTES,
        "{devices=[2]" + "9" * MEGABYTES,
        "{devices=[2]" + "1," * (MEGABYTES // 2),
        '{replicated metadata={op_name="' + '\\"' * (MEGABYTES // 2),
        "{" + "a" * MEGABYTES,
        "{mesh[" + "'a'=2," * (MEGABYTES // 6),
        "{mesh['a'=2], [{" + "'a'," * (MEGABYTES // 4),
        "".join(chr(33 + i * 7919 % 90) for i in range(1000)) * (MEGABYTES // 1000),
    ],
    ids=["braces", "comment", "digits", "list", "string", "word", "mesh", "axes", "noise"],
)
def test_ten_megabytes_of_garbage_come_to_an_end(garbage):
    # In quadratic time they would not.
    with pytest.raises(ShardingParseError) as caught:
        parse(garbage)
    assert len(str(caught.value)) < 300 or "a" * 300 in str(caught.value)


def test_a_million_devices_are_read():
    count = 1_000_000
    s = parse(f"{{devices=[{count}]{','.join(map(str, range(count)))}}}")
    assert s == HloSharding.iota_tile((count,))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{devices=[\u0662]<=[\u0662]}", "expected a number"),
        ("{devices=[2,\x1c1]<=[2]}", "expected"),
        ("{devices=[2\x1f]<=[2]}", "expected"),
        ("{mesh['\udcf6'=2], [{}]}", "half a letter"),
        ("{replicated metadata={op_name='\ud800'}}", "half a letter"),
        ("{replicated metadata={source_line=2147483648}}", "32 bits"),
    ],
)
def test_what_python_reads_and_xla_does_not(text: str, says: str) -> None:
    with pytest.raises(ShardingParseError, match=says):
        HloSharding.parse(text)
