"""The networks that are exported: small ones with random weights, of many architectures."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn


class Network(NamedTuple):
    """A module in evaluation mode, and what it is called with."""

    module: nn.Module
    inputs: dict[str, torch.Tensor]
    batched: tuple[str, ...]
    """Inputs whose first dim is the batch."""
    arguments: str = ""
    """What `forward` calls all of them together, if it does."""


NETWORKS: dict[str, Callable[[], Network]] = {}


def network(make: Callable[[], Network]) -> Callable[[], Network]:
    """Enters a function under its name; weights are the same each time."""

    def seeded() -> Network:
        torch.manual_seed(0)
        found = make()
        return found._replace(module=found.module.eval())

    NETWORKS[make.__name__] = seeded
    return make


def _tokens(batch: int = 4, length: int = 16, vocabulary: int = 96) -> torch.Tensor:
    return torch.randint(0, vocabulary, (batch, length))


class _First(nn.Module):
    """A transformers model whose result is one tensor, without a cache."""

    def __init__(self, model: nn.Module, *names: str, result: str = "logits", **fixed: Any) -> None:
        super().__init__()
        self.model, self.names, self.result, self.fixed = model, names, result, fixed

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        out = self.model(**dict(zip(self.names, args, strict=True)), **self.fixed)
        return getattr(out, self.result)


def _language_model(model: nn.Module, **more: Any) -> Network:
    tokens = _tokens()
    return Network(_First(model, "input_ids", use_cache=False, **more), {"input_ids": tokens}, ("input_ids",), "args")


@network
def mlp() -> Network:
    layers = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 16), nn.Softmax(-1))
    return Network(layers, {"x": torch.randn(8, 32)}, ("x",))


class _Block(nn.Module):
    def __init__(self, width: int, out: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(width, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out))
        self.short = nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(self.first(x)) + self.short(x))


@network
def resnet() -> Network:
    stem = nn.Sequential(nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    blocks = nn.Sequential(_Block(16, 16, 1), _Block(16, 32, 2), _Block(32, 64, 2))
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    return Network(nn.Sequential(stem, blocks, head), {"image": torch.randn(4, 3, 32, 32)}, ("image",))


@network
def mobilenet() -> Network:
    def layer(width: int, out: int) -> nn.Module:
        depth = nn.Conv2d(width, width, 3, 2, 1, groups=width)
        return nn.Sequential(depth, nn.BatchNorm2d(width), nn.Hardswish(), nn.Conv2d(width, out, 1), nn.ReLU6())

    body = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1), layer(8, 16), layer(16, 32), nn.AvgPool2d(2))
    head = nn.Sequential(nn.Flatten(), nn.Linear(128, 10), nn.LogSoftmax(-1))
    return Network(nn.Sequential(body, head), {"image": torch.randn(4, 3, 16, 16)}, ("image",))


class _UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, 2, 1)
        self.deep = nn.Sequential(nn.Conv2d(8, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.SiLU())
        self.up = nn.ConvTranspose2d(16, 8, 4, 2, 1)
        self.out = nn.Conv2d(16, 3, 3, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        small = torch.tanh(self.down(x))
        wide = torch.cat([self.up(self.deep(small)), small], 1)
        return self.out(nn.functional.interpolate(wide, scale_factor=2.0, mode="bilinear"))


@network
def unet() -> Network:
    return Network(_UNet(), {"image": torch.randn(4, 3, 16, 16)}, ("image",))


class _Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.cell = kind(16, 32, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(64, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(x)[0])


@network
def lstm() -> Network:
    return Network(_Recurrent(nn.LSTM), {"x": torch.randn(4, 12, 16)}, ("x",))


@network
def gru() -> Network:
    return Network(_Recurrent(nn.GRU), {"x": torch.randn(4, 12, 16)}, ("x",))


class _Experts(nn.Module):
    """Each token goes to the two best of four experts."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(32, 4)
        self.up = nn.Parameter(torch.randn(4, 32, 64) / 6)
        self.down = nn.Parameter(torch.randn(4, 64, 32) / 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores, chosen = torch.topk(torch.softmax(self.gate(x), -1), 2)
        weights = torch.zeros_like(self.gate(x)).scatter(-1, chosen, scores)
        hidden = torch.relu(torch.einsum("bd,edf->ebf", x, self.up))
        return torch.einsum("ebf,efd,be->bd", hidden, self.down, weights)


@network
def experts() -> Network:
    return Network(_Experts(), {"x": torch.randn(16, 32)}, ("x",))


@network
def gpt2() -> Network:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=96, n_positions=32, n_embd=32, n_layer=2, n_head=4, attn_implementation="eager")
    return _language_model(GPT2LMHeadModel(config))


@network
def llama() -> Network:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32, attn_implementation="eager",
    )  # fmt: skip
    return _language_model(LlamaForCausalLM(config))


@network
def mixtral() -> Network:
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, num_local_experts=4, max_position_embeddings=32, attn_implementation="eager",
        experts_implementation="batched_mm",
    )  # fmt: skip
    return _language_model(MixtralForCausalLM(config))


@network
def opt() -> Network:
    from transformers import OPTConfig, OPTForCausalLM

    config = OPTConfig(
        vocab_size=96, hidden_size=32, ffn_dim=64, num_hidden_layers=2, num_attention_heads=4, word_embed_proj_dim=32,
        max_position_embeddings=32, attn_implementation="eager",
    )  # fmt: skip
    return _language_model(OPTForCausalLM(config))


@network
def bert() -> Network:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=32, attn_implementation="eager",
    )  # fmt: skip
    tokens = _tokens()
    mask = torch.ones_like(tokens)
    mask[1, 10:] = 0
    model = _First(BertModel(config), "input_ids", "attention_mask", result="last_hidden_state")
    return Network(model, {"input_ids": tokens, "attention_mask": mask}, ("input_ids", "attention_mask"))


@network
def t5() -> Network:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=96, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0,
    )  # fmt: skip
    names = ("input_ids", "decoder_input_ids")
    model = _First(T5ForConditionalGeneration(config), *names, use_cache=False)
    return Network(model, {"input_ids": _tokens(), "decoder_input_ids": _tokens(4, 8)}, names)


@network
def whisper() -> Network:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=96, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, num_mel_bins=16, max_source_positions=16,
        max_target_positions=16, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        attn_implementation="eager",
    )  # fmt: skip
    names = ("input_features", "decoder_input_ids")
    model = _First(WhisperForConditionalGeneration(config), *names, use_cache=False)
    return Network(model, {"input_features": torch.randn(4, 16, 32), "decoder_input_ids": _tokens(4, 8)}, names)


@network
def vit() -> Network:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32, patch_size=8,
        attn_implementation="eager",
    )  # fmt: skip
    model = _First(ViTForImageClassification(config), "pixel_values")
    return Network(model, {"pixel_values": torch.randn(4, 3, 32, 32)}, ("pixel_values",))


class _Decides(nn.Module):
    """A loop and a branch that depend on values of the run."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        for _ in range(int(steps)):
            x = torch.tanh(self.layer(x))
        if bool(x.sum() > 0):
            x = x * 2
        else:
            x = x - 1
        return x


@network
def decides() -> Network:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated, and the only way to a Loop
        scripted = torch.jit.script(_Decides())
    return Network(scripted, {"x": torch.randn(8, 16), "steps": torch.tensor(3)}, ("x",))
