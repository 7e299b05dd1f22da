"""Every decoder family: what DESIGN section 5 says is always true (1 to 6), by `check_model`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from headsieve.check import CHECKS, check_model
from tests.families import FAMILIES
from tests.family_table import DOCUMENT, described
from tests.tiny import count_hooks, main_attention, tiny_model

# Families that DESIGN or its users name: none of them may go missing.
NAMED = {
    *("llama", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen3_next", "mistral", "mixtral"),
    *("gemma2", "gemma3", "phi3", "olmo2", "granite", "gpt2", "gpt_neox", "gpt_oss", "falcon"),
    *("bloom", "stablelm", "cohere", "deepseek_v2", "deepseek_v3", "smollm3"),
}
OTHER_KERNELS = [
    (name, attention)
    for name, family in FAMILIES.items()
    for attention in family.attentions
    if attention != main_attention(name)
]


@pytest.fixture
def flex_attention_uncompiled() -> Iterator[None]:
    """Run flex attention as plain operations: compiling it takes minutes on a CPU."""
    torch.compiler.set_stance("force_eager")
    yield
    torch.compiler.set_stance("default")


def test_no_family_is_left_out() -> None:
    assert set(FAMILIES) >= NAMED
    lacking = [
        name for name, family in FAMILIES.items() if not hasattr(transformers, family.config)
    ]
    assert not lacking, f"transformers {transformers.__version__} lacks {lacking}"


@pytest.mark.parametrize("name", FAMILIES)
def test_all_heads_are_found(name: str) -> None:
    family = FAMILIES[name]
    geometry = tiny_model(name, main_attention(name)).geometry
    assert geometry.uncovered == family.uncovered
    assert tuple(layer.heads for layer in geometry.layers) == family.heads
    assert tuple(layer.kv_heads for layer in geometry.layers) == family.kv_heads
    assert tuple(layer.head_dim for layer in geometry.layers) == family.head_dims


@pytest.mark.parametrize("name", FAMILIES)
def test_everything_holds(name: str) -> None:
    model = tiny_model(name, main_attention(name))
    before = {key: value.clone() for key, value in model.hf.state_dict().items()}
    checks = check_model(model)
    assert [one.name for one in checks] == list(CHECKS)
    assert [one for one in checks if one.holds is not True] == []
    shared = {one.name: one.note for one in checks}["rows"] == "rows share prefixes"
    assert shared == FAMILIES[name].packs
    assert all(torch.equal(value, before[key]) for key, value in model.hf.state_dict().items())
    assert count_hooks(model.hf) == 0


@pytest.mark.parametrize(("name", "attention"), OTHER_KERNELS)
@pytest.mark.usefixtures("flex_attention_uncompiled")
def test_a_knockout_is_zeroed_weights_in_other_kernels(name: str, attention: str) -> None:
    model = tiny_model(name, attention)
    assert model.hf.config._attn_implementation == attention
    checks = check_model(model, ["unmodified", "zeroed weights"])
    assert [one for one in checks if one.holds is not True] == []


def test_the_documented_table_has_all_families() -> None:
    rows = [line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if "| `" in line]
    for row, (name, family) in zip(rows, FAMILIES.items(), strict=True):
        assert row.startswith(described(family)), f"run python -m tests.family_table ({name})"


def test_every_family_is_one_that_transformers_loads_as_a_language_model() -> None:
    for family in FAMILIES.values():
        kind = getattr(transformers, family.config).model_type
        assert kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
