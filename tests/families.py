"""Tiny configurations of every decoder family that is tested."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import transformers

LAYERS = 3
HEADS = 4
# Shorter than the longest sequences that are measured.
WINDOW = 24

_SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
_UNGROUPED = {"num_key_value_heads": HEADS}
_MULTI_QUERY = {"num_key_value_heads": 1}
_SLIDING = {
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}
_EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
}
_LATENT = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 12,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}


@dataclass(frozen=True)
class Family:
    """A family of decoders, and the tiny model of it that is tested.

    Attributes
    ----------
    title : str
        As people write it.
    config : str
        Name of the configuration's class in transformers.
    options : dict
        Of the configuration.
    about : str
        What is particular about its attention.
    attentions : tuple of str
        Implementations of attention that transformers has for it and that run on a CPU.
    uncovered : tuple of int
        Layers without attention heads.
    heads, kv_heads, head_dims : tuple of int
        Query heads, key-value heads and head size of each covered layer.
    packs : bool
        Whether packed rows give what plain rows give, for items shorter than any window.
    """

    title: str
    config: str
    options: dict[str, Any]
    about: str
    attentions: tuple[str, ...] = ("eager", "sdpa", "flex_attention")
    uncovered: tuple[int, ...] = ()
    heads: tuple[int, ...] = (HEADS,) * LAYERS
    kv_heads: tuple[int, ...] = (2,) * LAYERS
    head_dims: tuple[int, ...] = (8,) * LAYERS
    packs: bool = True

    def make_config(self, **more: Any) -> Any:
        """Make the configuration."""
        return getattr(transformers, self.config)(**self.options | more)


FAMILIES = {
    "llama": Family(
        "Llama",
        "LlamaConfig",
        # Four heads of 12 columns make 48, which is not the hidden size.
        {**_SIZES, "head_dim": 12},
        "grouped, head size ≠ hidden size / heads",
        head_dims=(12,) * LAYERS,
    ),
    "qwen2": Family("Qwen2", "Qwen2Config", _SIZES, "grouped, biases"),
    "qwen2_moe": Family(
        "Qwen2-MoE",
        "Qwen2MoeConfig",
        {**_SIZES, **_EXPERTS, **_UNGROUPED, "shared_expert_intermediate_size": 24},
        "ungrouped, biases; experts, one shared",
        kv_heads=(HEADS,) * LAYERS,
    ),
    "qwen3": Family(
        "Qwen3",
        "Qwen3Config",
        {**_SIZES, "head_dim": 16},
        "grouped, norms on heads",
        head_dims=(16,) * LAYERS,
    ),
    "qwen3_moe": Family(
        "Qwen3-MoE",
        "Qwen3MoeConfig",
        {**_SIZES, **_EXPERTS, "head_dim": 16},
        "grouped, norms on heads; experts",
        head_dims=(16,) * LAYERS,
    ),
    "qwen3_next": Family(
        "Qwen3-Next",
        "Qwen3NextConfig",
        {
            **_SIZES,
            **_EXPERTS,
            "shared_expert_intermediate_size": 24,
            "head_dim": 16,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "layer_types": ["full_attention", "linear_attention", "full_attention"],
        },
        "gated before the projection; linear attention in every other layer",
        uncovered=(1,),
        heads=(HEADS,) * 2,
        attentions=("eager", "sdpa"),
        packs=False,
        kv_heads=(2,) * 2,
        head_dims=(16,) * 2,
    ),
    "qwen3_5": Family(
        "Qwen3.5",
        "Qwen3_5TextConfig",
        {
            **_SIZES,
            "head_dim": 16,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "layer_types": ["linear_attention", "full_attention", "full_attention"],
        },
        "gated before the projection; linear attention in some layers",
        uncovered=(0,),
        heads=(HEADS,) * 2,
        attentions=("eager", "sdpa"),
        packs=False,
        kv_heads=(2,) * 2,
        head_dims=(16,) * 2,
    ),
    "mistral": Family(
        "Mistral", "MistralConfig", {**_SIZES, "sliding_window": WINDOW}, "grouped, sliding window"
    ),
    "mixtral": Family(
        "Mixtral",
        "MixtralConfig",
        {**_SIZES, "num_local_experts": 4, "num_experts_per_tok": 2},
        "grouped; experts",
    ),
    "gemma2": Family(
        "Gemma 2",
        "Gemma2Config",
        {**_SIZES, **_SLIDING, "head_dim": 16},
        "grouped, sliding windows, capped scores",
        attentions=("eager", "flex_attention"),
        head_dims=(16,) * LAYERS,
    ),
    "gemma3": Family(
        "Gemma 3",
        "Gemma3TextConfig",
        {**_SIZES, **_SLIDING, **_MULTI_QUERY, "head_dim": 16},
        "multi-query, sliding windows",
        kv_heads=(1,) * LAYERS,
        head_dims=(16,) * LAYERS,
    ),
    "gemma4": Family(
        "Gemma 4",
        "Gemma4TextConfig",
        {
            **_SIZES,
            **_SLIDING,
            **_MULTI_QUERY,
            "head_dim": 8,
            "global_head_dim": 16,
            "num_kv_shared_layers": 0,
            "hidden_size_per_layer_input": 0,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        },
        "multi-query, sliding windows, head size that differs between layers",
        kv_heads=(1,) * LAYERS,
        head_dims=(8, 8, 16),
    ),
    "phi": Family(
        "Phi",
        "PhiConfig",
        {**_SIZES, **_UNGROUPED},
        "ungrouped, biases, parallel",
        kv_heads=(HEADS,) * LAYERS,
    ),
    "phi3": Family("Phi-3", "Phi3Config", _SIZES, "grouped, one projection for all inputs"),
    "olmo2": Family(
        "OLMo 2",
        "Olmo2Config",
        {**_SIZES, **_UNGROUPED},
        "ungrouped, norms after the projection",
        kv_heads=(HEADS,) * LAYERS,
    ),
    "olmo3": Family("OLMo 3", "Olmo3Config", {**_SIZES, **_SLIDING}, "grouped, sliding windows"),
    "granite": Family(
        "Granite", "GraniteConfig", {**_SIZES, "attention_bias": True}, "grouped, biases"
    ),
    "gpt2": Family(
        "GPT-2",
        "GPT2Config",
        {"n_embd": 32, "n_inner": 48, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 512},
        "ungrouped, biases, transposed weights",
        attentions=("eager", "sdpa"),
        kv_heads=(HEADS,) * LAYERS,
    ),
    "gpt_bigcode": Family(
        "GPT-BigCode",
        "GPTBigCodeConfig",
        {"n_embd": 32, "n_inner": 48, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 512},
        "multi-query, biases",
        attentions=("eager", "sdpa"),
        kv_heads=(1,) * LAYERS,
    ),
    "gptj": Family(
        "GPT-J",
        "GPTJConfig",
        {
            "n_embd": 32,
            "n_inner": 48,
            "n_layer": LAYERS,
            "n_head": HEADS,
            "n_positions": 512,
            "rotary_dim": 4,
        },
        "ungrouped, parallel",
        kv_heads=(HEADS,) * LAYERS,
    ),
    "gpt_neox": Family(
        "GPT-NeoX",
        "GPTNeoXConfig",
        {**_SIZES, **_UNGROUPED},
        "ungrouped, biases, parallel",
        kv_heads=(HEADS,) * LAYERS,
    ),
    "gpt_oss": Family(
        "GPT-OSS",
        "GptOssConfig",
        {
            **_SIZES,
            **_SLIDING,
            "head_dim": 16,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
        },
        "grouped, sinks, sliding windows, biases; experts",
        attentions=("eager",),
        head_dims=(16,) * LAYERS,
    ),
    "falcon": Family(
        "Falcon",
        "FalconConfig",
        {
            "hidden_size": 32,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "max_position_embeddings": 512,
        },
        "multi-query, parallel",
        attentions=("eager", "sdpa"),
        kv_heads=(1,) * LAYERS,
    ),
    "falcon_new": Family(
        "Falcon (40B and later)",
        "FalconConfig",
        {
            "hidden_size": 32,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_kv_heads": 2,
            "new_decoder_architecture": True,
            "max_position_embeddings": 512,
        },
        "grouped, parallel",
        attentions=("eager", "sdpa"),
    ),
    "bloom": Family(
        "BLOOM",
        "BloomConfig",
        {"hidden_size": 32, "n_layer": LAYERS, "n_head": HEADS},
        "ungrouped, biases, linear biases by position",
        attentions=("eager",),
        packs=False,
        kv_heads=(HEADS,) * LAYERS,
    ),
    "opt": Family(
        "OPT",
        "OPTConfig",
        {
            "hidden_size": 32,
            "word_embed_proj_dim": 32,
            "ffn_dim": 48,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "max_position_embeddings": 512,
        },
        "ungrouped, biases",
        kv_heads=(HEADS,) * LAYERS,
    ),
    "stablelm": Family(
        "StableLM",
        "StableLmConfig",
        {**_SIZES, "use_qkv_bias": True},
        "grouped, biases",
        attentions=("eager", "sdpa"),
    ),
    "cohere": Family(
        "Cohere",
        "CohereConfig",
        {**_SIZES, "use_qk_norm": True},
        "grouped, norms on heads, parallel",
    ),
    "cohere2": Family(
        "Cohere 2", "Cohere2Config", {**_SIZES, **_SLIDING}, "grouped, sliding windows"
    ),
    "deepseek_v2": Family(
        "DeepSeek V2",
        "DeepseekV2Config",
        {**_SIZES, **_UNGROUPED, **_LATENT},
        "latent, value heads of another size; experts",
        kv_heads=(HEADS,) * LAYERS,
        head_dims=(12,) * LAYERS,
    ),
    "deepseek_v3": Family(
        "DeepSeek V3",
        "DeepseekV3Config",
        {**_SIZES, **_UNGROUPED, **_LATENT},
        "latent, value heads of another size; experts",
        kv_heads=(HEADS,) * LAYERS,
        head_dims=(12,) * LAYERS,
    ),
    "smollm3": Family(
        "SmolLM3",
        "SmolLM3Config",
        {**_SIZES, "no_rope_layers": [1, 0, 1]},
        "grouped, no positions in some layers",
    ),
    "starcoder2": Family(
        "StarCoder2", "Starcoder2Config", {**_SIZES, "use_bias": True}, "grouped, biases"
    ),
    "glm4": Family(
        "GLM-4", "Glm4Config", {**_SIZES, "head_dim": 12}, "grouped", head_dims=(12,) * LAYERS
    ),
    "jamba": Family(
        "Jamba",
        "JambaConfig",
        {
            **_SIZES,
            "attn_layer_period": 2,
            "attn_layer_offset": 0,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "num_experts": 2,
            "mamba_d_state": 8,
            "mamba_dt_rank": 4,
            "use_mamba_kernels": False,
        },
        "grouped; state space in every other layer",
        uncovered=(1,),
        heads=(HEADS,) * 2,
        attentions=("eager", "sdpa"),
        packs=False,
        kv_heads=(2,) * 2,
        head_dims=(8,) * 2,
    ),
    "laguna": Family(
        "Laguna",
        "LagunaConfig",
        {**_SIZES, "head_dim": 8, "num_attention_heads_per_layer": [4, 2, 6]},
        "gated before the projection, number of heads that differs between layers",
        heads=(4, 2, 6),
    ),
}
