"""Hugging Face's Flax models, which its library has up to version 4."""

from __future__ import annotations

from typing import Any

import jax
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from transformers import BertConfig, FlaxBertForSequenceClassification, FlaxGPT2LMHeadModel, GPT2Config

from benchmarks.foreign_programs.parts import Step, integers, put

COLUMNS, ROWS = {"c_attn", "c_fc"}, {"c_proj"}


def classifier(mesh: Mesh) -> Step:
    """BERT, fine-tuned, data parallel."""
    shape = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 512}
    config = BertConfig(**shape, vocab_size=1024, max_position_embeddings=64, num_labels=4)
    model = FlaxBertForSequenceClassification(config, input_shape=(1, 32))

    def loss(params: Any, tokens: jax.Array, labels: jax.Array) -> jax.Array:
        logits = model(tokens, params=params).logits
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    batch = put(mesh, (integers(0, 1024, 32, 32), integers(1, 4, 32)), "data")
    return Step(jax.value_and_grad(loss), (put(mesh, model.params), *batch))


def _gpt2(mesh: Mesh) -> tuple[FlaxGPT2LMHeadModel, Any]:
    """With its weights, tensor parallel: their kernels are (out, in)."""
    shape = {"n_embd": 128, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 1024}
    model = FlaxGPT2LMHeadModel(GPT2Config(**shape, bos_token_id=0, eos_token_id=1, pad_token_id=1), input_shape=(1, 8))

    def placed(path: Any, leaf: Any) -> Any:
        names = {key.key for key in path} if "kernel" in str(path[-1]) else set()
        spec = P("model") if names & COLUMNS else P(None, "model") if names & ROWS else P()
        return jax.device_put(leaf, NamedSharding(mesh, spec))

    return model, jax.tree_util.tree_map_with_path(placed, model.params)


def beam_search(mesh: Mesh) -> Step:
    """GPT-2 writes eight tokens, four beams each: a `while` in which beams change places."""
    model, params = _gpt2(mesh)

    def written(params: Any, prompts: jax.Array) -> Any:
        return model.generate(prompts, params=params, num_beams=4, max_length=16, do_sample=False).sequences

    return Step(written, (params, put(mesh, integers(2, 1024, 8, 8), "data")))
