"""What must hold of knockouts in a model, checked on the model itself.

Each check compares what headsieve computes with what plain transformers computes: for a few texts
of its own and a few sets of heads. The model is left as it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from headsieve.errors import HeadsieveError
from headsieve.measure.generation import Generator, encode_prompt
from headsieve.measure.items import ItemSet, tokenize
from headsieve.measure.journal import Journal
from headsieve.measure.measurer import Measurer
from headsieve.measure.texts import Responses
from headsieve.models.knockout import knockout, require_unmodified
from headsieve.models.loading import quiet
from headsieve.progress import Progress
from headsieve.report.words import ranges
from headsieve.tasks import Item

if TYPE_CHECKING:
    from headsieve.models.loading import Model

Masks = NDArray[np.bool_]

_TEXT = "The capital of France is Paris, 12 times 12 is 144, and early is not late."
_TOKENS = 40
# Short ones share prefixes in one row; long ones are longer than the windows of tiny models.
_SHORT = [Item("A cat", (" is", " are")), Item("A dog", (" is", " are", " am"), 1)]
_LONG = [
    Item("hot is to cold as big is to small; up is to", (" down",)),
    Item("hot is to cold as big is to small; early is to", (" late",)),
]
_PROMPTS = ("hot is to cold as big is to", "hot is to cold as", "12 times 12")
_NEW_TOKENS = 8
# Rows in one forward pass.
_ROWS = 8
# Next tokens whose log-probabilities are compared.
_LIKELY = 10

# By how much numbers may differ that should be the same: logits, relative to the largest, and
# log-probabilities in nats. Sums in another order round differently.
_LOGITS = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 1e-1}
_NATS = {"float32": 1e-4, "float16": 0.1, "bfloat16": 0.5}


@dataclass(frozen=True)
class Check:
    """What was checked and how it came out.

    Attributes
    ----------
    name : str
    what : str
        What should hold, in words.
    holds : bool or None
        None where it cannot be told, for the reason in `note`.
    difference : float or None
        The largest difference between numbers that should be the same.
    note : str
    """

    name: str
    what: str
    holds: bool | None
    difference: float | None = None
    note: str = ""


@dataclass(frozen=True)
class _Outcome:
    """A difference and how large it may be, or a reason why it cannot be told."""

    difference: float | None = None
    allowed: float = 0.0
    note: str = ""
    holds: bool | None = True


def check_model(
    model: Model, names: Iterable[str] | None = None, *, progress: Progress | None = None
) -> list[Check]:
    """Check a model against what must hold of knockouts (see docs/families.md).

    Parameters
    ----------
    model : Model
        Its weights are changed in between, and put back.
    names : iterable of str, optional
        Of `CHECKS`, where not all are wanted.
    progress : Progress, optional

    Returns
    -------
    list of Check

    Raises
    ------
    HeadsieveError
        If heads of the model are knocked out already.
    """
    require_unmodified(model.hf, model.geometry)
    model = model.with_units("heads")
    progress = progress or Progress()
    wanted = list(CHECKS if names is None else names)
    progress.stage("Checking", len(wanted))
    model.hf.eval()
    checks: list[Check] = []
    for name in wanted:
        what, run = CHECKS[name]
        try:
            with quiet():
                outcome = run(model)
        # What an architecture refuses does not hold, and the others should be tried all the same.
        except (
            *(HeadsieveError, RuntimeError, TypeError, ValueError),
            *(LookupError, AttributeError, NotImplementedError),
        ) as error:
            text = " ".join(str(error).split())[:300]
            outcome = _Outcome(note=f"{type(error).__name__}: {text}", holds=False)
        holds = outcome.holds
        if holds and outcome.difference is not None:
            holds = bool(outcome.difference <= outcome.allowed)  # false for NaN
        checks.append(Check(name, what, holds, outcome.difference, outcome.note))
        progress.advance(1)
    return checks


def _unmodified(model: Model) -> _Outcome:
    before = _logits(model, _tokens(model))
    with knockout(model.hf, model.geometry, _nothing(model)):
        inside = _logits(model, _tokens(model))
    with knockout(model.hf, model.geometry, _masks(model)[:1], allow_mute=True):
        _logits(model, _tokens(model))
    after = _logits(model, _tokens(model))
    return _Outcome(_worse(_difference(inside, before), _difference(after, before)))


def _zeroed_weights(model: Model) -> _Outcome:
    if reason := _not_editable(model):
        return _Outcome(note=reason, holds=None)
    masks, tokens = _masks(model), _tokens(model)
    with knockout(model.hf, model.geometry, masks, allow_mute=True):
        together = _logits(model, tokens.expand(len(masks), -1))
    worst = scale = 0.0
    for row, mask in zip(together, masks, strict=True):
        with _zeroed(model, mask):
            expected = _logits(model, tokens)[0]
        worst = _worse(worst, _difference(row, expected))
        scale = max(scale, float(expected.abs().max()))
    return _Outcome(worst, _LOGITS[_numbers(model)] * max(1.0, scale))


def _reaches_every_layer(model: Model) -> _Outcome:
    tokens = _tokens(model)
    numbers = [layer.layer for layer in model.geometry.layers]
    owners = np.array([head.layer for head in model.geometry.heads])
    masks = owners == np.array(numbers)[:, None]
    unchanged = []
    before = _logits(model, tokens)[0]
    for first in range(0, len(masks), _ROWS):
        part = masks[first : first + _ROWS]
        with knockout(model.hf, model.geometry, part, allow_mute=True):
            rows = _logits(model, tokens.expand(len(part), -1))
        unchanged += [
            number
            for number, row in zip(numbers[first:], rows, strict=False)
            if not _difference(row, before) > 0
        ]
    note = ""
    if model.geometry.uncovered:
        note = f"not covered: {ranges(model.geometry.uncovered)}"
    if unchanged:
        note = f"no effect in {ranges(unchanged)}"
    return _Outcome(note=note, holds=not unchanged)


def _rows_alone(model: Model) -> _Outcome:
    masks = np.concatenate([_nothing(model), _masks(model)[1:2]])
    worst = 0.0
    packed = []
    short = tokenize(_SHORT, "", "choice", model.tokenizer)
    long = tokenize(_LONG, "", "answer", model.tokenizer)
    for what, item_set in (("short", short), ("long", long)):
        expected = _plain_scores(model, masks, item_set)
        for size in ("auto", 1):
            measurer = Measurer(model, {what: item_set}, Journal(), batch_size=size)
            found = [score.log_prob for score in measurer.measure(masks, what)]
            worst = _worse(worst, float(np.abs(np.array(found) - expected).max()))
        packed.append(measurer.packed)
    worst = _worse(worst, _padding(model, masks))
    note = "rows share prefixes" if packed[0] else "each item alone: shared rows are not exact"
    return _Outcome(worst, _NATS[_numbers(model)], note)


def _nothing_left(model: Model) -> _Outcome:
    mask = np.ones((1, len(model.geometry)), dtype=bool)
    before = _count_hooks(model.hf)

    def stop(error: BaseException) -> None:
        def interrupt(*_: object) -> None:
            raise error

        last = model.geometry.layers[-1].projection
        handle = model.hf.get_submodule(last).register_forward_hook(interrupt)
        try:
            with knockout(model.hf, model.geometry, mask, allow_mute=True):
                _logits(model, _tokens(model))
        except type(error):
            pass
        finally:
            handle.remove()

    with knockout(model.hf, model.geometry, mask, allow_mute=True):
        _logits(model, _tokens(model))
    left = _count_hooks(model.hf) - before
    for error in (ValueError(), KeyboardInterrupt(), torch.OutOfMemoryError()):
        stop(error)
        left += _count_hooks(model.hf) - before
    return _Outcome(note=f"{left} left" if left else "", holds=not left)


def _generation(model: Model) -> _Outcome:
    if reason := _not_editable(model):
        return _Outcome(note=reason, holds=None)
    masks = np.concatenate([_nothing(model), _masks(model)[1:2]])
    prompts = [encode_prompt(model.tokenizer, prompt) for prompt in _PROMPTS]
    found = Generator(model, prompts, max_new_tokens=_NEW_TOKENS).generate(masks)
    worst = scale = 0.0
    for mask, continuations in zip(masks, found, strict=True):
        with _zeroed(model, mask):
            for prompt, said in zip(prompts, continuations, strict=True):
                if not said.tokens:
                    continue
                # Without a cache, all at once: the token said must have been the likeliest.
                text = torch.tensor([[*prompt, *said.tokens]], device=model.device)
                logits = _logits(model, text)[0, len(prompt) - 1 : -1]
                chosen = logits.gather(1, text[0, len(prompt) :, None].to(logits.device))[:, 0]
                worst = _worse(worst, _difference(chosen, logits.amax(dim=-1)))
                scale = max(scale, float(logits.abs().max()))
    return _Outcome(worst, 10 * _LOGITS[_numbers(model)] * max(1.0, scale))


# In the order of DESIGN's invariants; each takes a model.
CHECKS: dict[str, tuple[str, Callable[[Model], _Outcome]]] = {
    "unmodified": ("without a knockout the model computes, bit for bit, what it did", _unmodified),
    "zeroed weights": ("a knockout equals zeroed weights, in every row its own", _zeroed_weights),
    "every layer": ("a knockout in any layer changes what the model says", _reaches_every_layer),
    "rows": ("a score depends on neither batch, padding nor shared prefixes", _rows_alone),
    "nothing left": ("no hook is left by return, error, Ctrl-C or lack of memory", _nothing_left),
    "generation": ("a knockout holds for every new token, cached or not", _generation),
}


def _worse(one: float, other: float) -> float:
    """The larger difference; NaN, which is no number that agrees, stays."""
    return math.nan if math.isnan(one + other) else max(one, other)


def _padding(model: Model, masks: Masks) -> float:
    """How much padding on either side changes next tokens' log-probabilities, in nats."""
    texts = [torch.tensor(encode_prompt(model.tokenizer, prompt)) for prompt in _PROMPTS]
    mask = masks[-1:]
    longest = max(map(len, texts))
    worst = 0.0
    with knockout(model.hf, model.geometry, mask, allow_mute=True):
        alone = [_logits(model, text[None])[0].log_softmax(-1) for text in texts]
        for left in (True, False):
            tokens = torch.zeros((len(texts), longest), dtype=torch.long)
            seen = torch.zeros_like(tokens)
            places = [
                slice(longest - len(text), longest) if left else slice(0, len(text))
                for text in texts
            ]
            for number, (text, place) in enumerate(zip(texts, places, strict=True)):
                tokens[number, place], seen[number, place] = text, 1
            positions = (seen.cumsum(dim=1) - 1).clamp(min=0)
            rows = _logits(model, tokens, attention_mask=seen, position_ids=positions)
            for row, place, expected in zip(rows, places, alone, strict=True):
                # What is next to impossible is rounded most, and scores depend on it least.
                likely = expected[-1].topk(_LIKELY).indices
                found = row[place].log_softmax(-1)[-1]
                worst = _worse(worst, _difference(found[likely], expected[-1][likely]))
    return worst


def _plain_scores(model: Model, masks: Masks, items: ItemSet) -> NDArray[np.float64]:
    """Log-probability of the right answers by transformers alone, one sequence at a time."""
    scores = []
    for mask in masks:
        totals = []
        with knockout(model.hf, model.geometry, mask[None], allow_mute=True):
            for sequence in items.sequences:
                logits = _logits(model, torch.tensor([sequence.tokens]))[0]
                predicted = logits[sequence.start - 1 : -1].double().log_softmax(-1)
                targets = torch.tensor(sequence.tokens[sequence.start :], device=logits.device)
                totals.append(float(predicted.gather(1, targets[:, None]).sum()))
        known = np.array(totals)
        nothing = np.zeros(len(known))
        responses = Responses(known, nothing.astype(bool), nothing)
        scores.append(items.score(responses).log_prob)
    return np.array(scores)


@contextmanager
def _zeroed(model: Model, mask: NDArray[np.bool_]) -> Iterator[None]:
    """Zero heads in the weights themselves, and put the weights back."""
    kept: list[tuple[Any, torch.Tensor]] = []
    try:
        for layer in model.geometry.layers:
            own = [
                head.index
                for column in np.flatnonzero(mask)
                if (head := model.geometry.heads[column]).layer == layer.layer
            ]
            if not own:
                continue
            projection: Any = model.hf.get_submodule(layer.projection)
            weight = projection.weight.data
            kept.append((weight, weight.clone()))
            # transformers' Conv1D (GPT-2) keeps its weight as (inputs, outputs).
            inputs_last = weight.T if hasattr(projection, "nf") else weight
            for index in own:
                inputs_last[:, index * layer.head_dim : (index + 1) * layer.head_dim] = 0
        yield
    finally:
        for weight, before in kept:
            weight.copy_(before)


def _not_editable(model: Model) -> str:
    """Why weights cannot be zeroed for comparison; empty where they can."""
    for layer in model.geometry.layers:
        weight: Any = model.hf.get_submodule(layer.projection).weight
        if not weight.dtype.is_floating_point or weight.device.type == "meta":
            return "its weights are quantized or offloaded, so they cannot be zeroed to compare"
    return ""


def _masks(model: Model) -> Masks:
    """One head; some heads of all layers; all heads of the last layer."""
    owners = np.array([head.layer for head in model.geometry.heads])
    masks = np.zeros((3, len(owners)), dtype=bool)
    masks[0, len(owners) // 2] = True
    masks[1, np.random.default_rng(0).random(len(owners)) < 0.3] = True
    masks[1, 0] = True
    masks[2] = owners == owners[-1]
    return masks


def _nothing(model: Model) -> Masks:
    return np.zeros((1, len(model.geometry)), dtype=bool)


def _tokens(model: Model) -> torch.Tensor:
    return torch.tensor([encode_prompt(model.tokenizer, _TEXT)[:_TOKENS]])


@torch.inference_mode()
def _logits(model: Model, tokens: torch.Tensor, **options: torch.Tensor) -> torch.Tensor:
    there = {name: value.to(model.device) for name, value in options.items()}
    output = model.hf(input_ids=tokens.to(model.device), use_cache=False, **there)
    return torch.as_tensor(output.logits).float()


def _difference(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).abs().max())


def _numbers(model: Model) -> str:
    return model.dtype if model.dtype in _LOGITS else "bfloat16"


def _count_hooks(hf: torch.nn.Module) -> int:
    return sum(
        len(module._forward_hooks) + len(module._forward_pre_hooks) for module in hf.modules()
    )
