"""Sequences, heads and queries of cuDNN's flash attention are computed apart."""

from __future__ import annotations

import json

import pytest

import hlosharding as hs
from hlosharding.rules import Reduce, Signature, signature_of
from tests.support.fused_attention import Sizes, attention_step


def test_grouped_queries_share_a_head_of_keys() -> None:
    module = attention_step(Sizes())
    assert str(signature_of(module.by_name("there"))) == (
        "b (t z) (h g) _, b _ h _, b _ h _ -> b (h g) (t z) _, b (h g) (t z), _"
    )


def test_queries_are_computed_apart_and_gradients_of_keys_are_sums_over_them() -> None:
    signature = signature_of(attention_step(Sizes(shared=8), is_causal=False).by_name("back"))
    assert str(signature) == ("b t h _, b _ h _, b _ h _, b h t, b t h _, b t h _ -> b h t _, b h _ _, b h _ _, _")
    assert isinstance(signature, Signature)
    assert signature.factors[signature.index["t"]].owes == Reduce("add")


def test_of_an_odd_number_of_positions_under_a_causal_mask_none_is_split() -> None:
    signature = signature_of(attention_step(Sizes(length=255)).by_name("there"))
    assert "t" not in str(signature)


def test_as_many_heads_of_keys_have_no_groups() -> None:
    module = attention_step(Sizes(shared=8))
    text = str(signature_of(module.by_name("back")))
    assert "g" not in text


@pytest.mark.parametrize(("tiles", "batch", "heads"), [((8, 1, 1, 1), 1, 8), ((2, 1, 4, 1), 4, 2)])
def test_each_device_has_its_sequences_and_heads(tiles: tuple[int, ...], batch: int, heads: int) -> None:
    sharding = f"{{devices=[{','.join(map(str, tiles))}]<=[8]}}"
    local = hs.partition(attention_step(Sizes(), sharding=sharding), num_partitions=8).module
    calls = [i for i in local.entry.instructions if i.opcode == "custom-call"]
    for call in calls:
        config = json.loads(call.opaque)["cudnn_fmha_backend_config"]
        assert call.operands[0].shape.dims == (batch, 256, heads, 64)
        assert config["intermediate_tensor_shape"]["dimensions"] == [str(batch), str(heads), "256", "256"]
    assert len(calls) == 2


def test_a_call_that_says_nothing_is_computed_whole() -> None:
    text = """HloModule m
ENTRY e {
  q = bf16[2,8,4,64] parameter(0)
  ROOT out = (bf16[2,4,8,64], u8[0]) custom-call(q, q, q), custom_call_target="__cudnn$fmhaSoftmax"
}"""
    assert str(signature_of(hs.load(text).by_name("out"))) == "_ _ _ _, _ _ _ _, _ _ _ _ -> _ _ _ _, _"
