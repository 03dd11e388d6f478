"""Penzai: models made of named axes and layers that one can look into."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from penzai import pz
from penzai.models.transformer.variants import llamalike_common as llama
from penzai.toolshed.sharding_util import name_to_name_device_put

from benchmarks.foreign_programs.parts import Step, integers, put


def transformer(mesh: Mesh) -> Step:
    """Penzai's Llama, small; the batch over `data`, hidden units and heads over `model`."""
    sizes = {"num_kv_heads": 4, "query_head_multiplier": 2, "embedding_dim": 128, "projection_dim": 32}
    depths = {"mlp_hidden_dim": 512, "num_decoder_blocks": 2, "vocab_size": 512}
    kinds = {"mlp_variant": "swiglu", "tie_embedder_and_logits": False}
    config = llama.LlamalikeTransformerConfig(**sizes, **depths, **kinds)
    model = llama.build_llamalike_transformer(config, init_base_rng=jax.random.key(0), name="model")
    model, params = pz.unbind_params(model)
    axes = {"neurons": "model", "head_groups": "model"}
    params = [name_to_name_device_put(p.freeze(), mesh, axis_name_to_mesh_name=axes) for p in params]
    tokens = put(mesh, integers(0, 512, 16, 32), "data")

    def loss(params: Any, tokens: jax.Array) -> jax.Array:
        named = pz.nx.wrap(tokens).tag("batch", "seq")
        places = pz.nx.wrap(jnp.arange(32)).tag("seq")
        logits = pz.bind_variables(model, params)(named, token_positions=places)
        chosen = pz.nx.nmap(lambda row, token: jax.nn.log_softmax(row)[token])(logits.untag("vocabulary"), named)
        return -chosen.unwrap("batch", "seq").mean()

    return Step(jax.value_and_grad(loss), (params, tokens))
