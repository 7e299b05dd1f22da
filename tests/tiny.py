"""Tiny models with random weights, one of each family, and a tokenizer of bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import tokenizers
import torch
import transformers
from numpy.typing import NDArray
from tokenizers import decoders, pre_tokenizers

from headsieve.models.loading import Model

Masks = NDArray[np.bool_]
MakeModel = Callable[..., Model]

torch.set_num_threads(1)

END = "<end>"
LAYERS = 3
_SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
# Sliding windows are shorter than the longest sequences that are measured.
_WINDOW = 24

CONFIGS: dict[str, Callable[..., Any]] = {
    # Four heads of 12 columns make 48, which is not the hidden size.
    "llama": lambda **more: transformers.LlamaConfig(**_SIZES, head_dim=12, **more),
    "qwen2": lambda **more: transformers.Qwen2Config(**_SIZES, **more),
    "qwen3": lambda **more: transformers.Qwen3Config(**_SIZES, head_dim=16, **more),
    "gemma3": lambda **more: transformers.Gemma3TextConfig(
        **_SIZES | {"num_key_value_heads": 1},
        head_dim=16,
        sliding_window=_WINDOW,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        **more,
    ),
    "mistral": lambda **more: transformers.MistralConfig(**_SIZES, sliding_window=_WINDOW, **more),
    "mixtral": lambda **more: transformers.MixtralConfig(
        **_SIZES, num_local_experts=4, num_experts_per_tok=2, **more
    ),
    "gpt2": lambda **more: transformers.GPT2Config(
        n_embd=32, n_inner=48, n_layer=LAYERS, n_head=4, n_positions=512, **more
    ),
}


@cache
def byte_tokenizer() -> Any:
    """One token a byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*alphabet, END])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=END
    )


@cache
def tiny_model(family: str, attention: str = "sdpa") -> Model:
    """Build a model of a family; weights large enough for attention to matter."""
    tokenizer = byte_tokenizer()
    config = CONFIGS[family](
        vocab_size=len(tokenizer),
        initializer_range=0.25,
        bos_token_id=tokenizer.eos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        attn_implementation=attention,
        dtype=torch.float32,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        hf = transformers.AutoModelForCausalLM.from_config(config)
    hf.config.architectures = [type(hf).__name__]  # as in every checkpoint
    return Model(hf, tokenizer, f"tiny-{family}")


def count_hooks(hf: torch.nn.Module) -> int:
    """Count the hooks on all modules of a model."""
    return sum(
        len(module._forward_hooks) + len(module._forward_pre_hooks) for module in hf.modules()
    )
