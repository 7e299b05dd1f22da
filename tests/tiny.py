"""Tiny models with random weights, and a tokenizer of bytes."""

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
from tests.families import FAMILIES

Masks = NDArray[np.bool_]
MakeModel = Callable[..., Model]

torch.set_num_threads(1)

END = "<end>"

# Those on which everything is tested that all families share; tests/test_families.py has them all.
CONFIGS = ("llama", "qwen2", "qwen3", "gemma3", "mistral", "mixtral", "gpt2")


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
    config = FAMILIES[family].make_config(
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


def main_attention(family: str) -> str:
    """The implementation of attention that transformers takes by itself."""
    return "sdpa" if "sdpa" in FAMILIES[family].attentions else "eager"


def count_hooks(hf: torch.nn.Module) -> int:
    """Count the hooks on all modules of a model."""
    return sum(
        len(module._forward_hooks) + len(module._forward_pre_hooks) for module in hf.modules()
    )
