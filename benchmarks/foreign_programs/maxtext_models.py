"""MaxText: its own training step on its own state, its decoders made small."""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("DECOUPLE_GCLOUD", "TRUE")  # its way to be without Google's cloud

import jax
import maxtext
from flax import nnx
from flax.linen.partitioning import axis_rules
from jax.sharding import Mesh
from maxtext.configs import pyconfig
from maxtext.trainers.pre_train.train import train_step
from maxtext.utils import sharding
from maxtext.utils.train_utils import setup_train_loop

from benchmarks.foreign_programs.parts import Step

RUN = {
    "run_name": "small", "base_output_directory": tempfile.gettempdir(), "dataset_type": "synthetic", "steps": 10,
    "hardware": "cpu", "skip_jax_distributed_system": True, "enable_checkpointing": False, "log_config": False,
    "jax_cache_dir": "",
}  # fmt: skip
SMALL = {
    "vocab_size": 1024, "base_emb_dim": 128, "base_num_decoder_layers": 3, "base_num_query_heads": 8,
    "base_num_kv_heads": 4, "head_dim": 16, "base_mlp_dim": 256, "base_moe_mlp_dim": 256,
    "max_target_length": 32, "per_device_batch_size": 2.0, "attention": "dot_product", "dtype": "float32",
}  # fmt: skip
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "megablox": False, "sparse_matmul": False}
LATENT = {
    "attention_type": "mla", "base_num_kv_heads": 8, "q_lora_rank": 64, "kv_lora_rank": 32, "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16, "v_head_dim": 32, "rope_type": "yarn", "max_position_embeddings": 512,
    "original_max_position_embeddings": 128,
}  # fmt: skip


def llama(_: Mesh) -> Step:
    """Dense; fully sharded data by tensor parallel."""
    return _step(decoder_block="llama2", ici_fsdp_parallelism=2, ici_tensor_parallelism=4)


def mixtral(_: Mesh) -> Step:
    """Each token goes to two of eight experts; fully sharded data by expert parallel."""
    return _step(**EXPERTS, decoder_block="mixtral", ici_fsdp_parallelism=2, ici_expert_parallelism=4)


def deepseek(_: Mesh) -> Step:
    """Attention through a latent, the first layer dense, a shared expert beside the others."""
    routed = {"shared_experts": 1, "routed_score_func": "sigmoid", "routed_bias": True, "first_num_dense_layers": 1}
    return _step(
        **EXPERTS, **LATENT, **routed, decoder_block="deepseek", ici_fsdp_parallelism=2, ici_expert_parallelism=4
    )


def _step(**settings: Any) -> Step:
    """What MaxText's training loop jits, with what it calls it: on the mesh that it makes itself."""
    base = Path(maxtext.__file__).parent / "configs" / "base.yml"
    config = pyconfig.initialize(["", str(base)], **(RUN | SMALL | settings))
    _, _, shardings, _, mesh, _, batches, *_, state = setup_train_loop(config, None)
    model, state = nnx.split(state)
    params, shardings = sharding.maybe_update_params_sharding_with_opt(config, shardings)
    batch = jax.device_put(next(batches), sharding.get_input_data_sharding(config, mesh))
    jax.set_mesh(mesh)  # as MaxText's loop does, around each call; the process is for this program alone
    step = partial(train_step, model, config, shardings, params)

    def one(state: Any, batch: Any) -> Any:
        with mesh, axis_rules(config.logical_axis_rules):
            return step(state, batch)

    return Step(one, (state, batch))
