"""The model card of an edited checkpoint: what was done to it, what is known of that, and how."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headsieve.models.heads import NOUNS, Units, kind_of
from headsieve.report.words import REPLACEMENTS, interval, number, p_value, verdict, warnings
from headsieve.results import CapabilityResult, Claim, ModelInfo, Result
from headsieve.scores import LOG_PROB

if TYPE_CHECKING:
    from headsieve.measure.ablation import Ablation
    from headsieve.models.export import Edit


_NAMES: dict[Units, str] = {
    "heads": "layer and head, both counted from 0; query heads",
    "kv-groups": "layer and key-value head, both counted from 0; all query heads that share it",
    "attention-layers": "counted from 0; the whole output of their attention",
    "mlp-layers": "counted from 0; the whole output of their feed-forward parts",
}


def model_card(
    edit: Edit,
    model: ModelInfo,
    *,
    base_model: str | None,
    from_gguf: bool,
    dtype: str,
    difference: float,
    commands: Sequence[str],
    study: tuple[str, Result] | None = None,
    ablation: Ablation = "zero",
    figures: Sequence[str] = (),
) -> str:
    """The text of ``README.md`` in an exported folder.

    Parameters
    ----------
    edit : Edit
    model : ModelInfo
        The model that was edited.
    base_model : str or None
        Its name on the hub, if it came from there.
    from_gguf : bool
        Whether its weights were read from a GGUF file.
    dtype : str
        Of the weights written.
    difference : float
        Largest difference of a logit between checkpoint and hooked model.
    commands : sequence of str
        Those that find the heads and export this, in their order.
    study : tuple of str and Result, optional
        The capability whose heads these are, and the study that found them.
    ablation : {"zero", "mean", "resample"}
        What knocked-out heads gave in the study.
    figures : sequence of str
        Paths of the figures to show, relative to the card.
    """
    from huggingface_hub import ModelCardData

    data = ModelCardData(
        base_model=base_model,
        library_name="transformers",
        tags=["headsieve", "interpretability", "attention-heads"],
    )
    count = len(edit.heads)
    kind = kind_of(edit.heads[0])
    one, many = ("attention head", "attention heads") if kind == "heads" else NOUNS[kind]
    heads = f"{count} {one if count == 1 else many}"
    name = base_model or model.name
    parts = [
        f"---\n{data.to_yaml()}\n---",
        f"# {name.rstrip('/').rpartition('/')[2]} with {heads} {edit.describe()}",
        f"`{name}` ({model.architecture}) with {heads} {edit.describe()}: "
        f"{', '.join(edit.heads)} ({_NAMES[kind]}). {_how(edit)}",
    ]
    if from_gguf:
        parts.append(
            "The weights that were edited were those of a GGUF file, most likely quantized: they "
            "differ by that from the checkpoint that the file was made from."
        )
    if study is not None:
        capability, result = study
        parts += _finding(capability, result, ablation, exact=edit.is_knockout)
        parts += [f"![{path}]({path})" for path in figures]
    parts += [
        "## How to repeat",
        _code("console", commands),
        f"The weights are {dtype}. After writing, the folder was loaded again: no logit differs by "
        f"more than {difference:.2g} from those of the model with the heads changed by hooks.",
        "## How to load",
        _code(
            "python",
            [
                "import transformers",
                'model = transformers.AutoModelForCausalLM.from_pretrained("THIS FOLDER")',
                'tokenizer = transformers.AutoTokenizer.from_pretrained("THIS FOLDER")',
            ],
        ),
        "The licence is that of the model it was made from. Removing heads is no proof that a "
        "capability is gone: it may come back with another prompt or by training.",
    ]
    return "\n\n".join(parts) + "\n"


def _how(edit: Edit) -> str:
    if edit.silenced:
        return (
            "The weights and biases of the projections that these parts end in are set to zero; "
            "everything else is as it was."
        )
    what = "set to zero" if edit.scale == 0 else f"multiplied by {edit.scale}"
    sentence = f"Their columns of the attention output projections are {what}"
    if edit.mean:
        sentence += ", and the projections' biases carry the rest of their mean outputs"
    return f"{sentence}; everything else is as it was."


def _finding(capability: str, result: Result, ablation: Ablation, *, exact: bool) -> list[str]:
    found: CapabilityResult = result.capabilities[capability]
    checks = found.verification
    parts = ["## Finding", verdict(capability, found)]
    parts += [f"**Warning:** {warning}" for warning in warnings(capability, found)]
    if not exact or ablation != "zero":
        parts.append(
            f"**These figures are of heads whose output was set to {REPLACEMENTS[ablation]};** "
            "this checkpoint changes the heads in another way, of which nothing was measured."
        )
    rows: list[tuple[str, Claim, str]] = [
        (capability, checks.capability, p_value(checks.capability.p_value))
    ]
    rows += [(name, claim, "control") for name, claim in checks.controls.items()]
    parts.append(
        _table(
            ("held out", "items", "before", "after", "drop", "95 % interval", ""),
            (_claim(*row) for row in rows),
        )
    )
    random = checks.random_sets
    if random.count:
        parts.append(
            f"{random.count} random sets of as many heads: mean drop {number(random.mean_drop)}, "
            f"at most {number(random.max_drop)}."
        )
    parts.append(
        f"Measured by headsieve {result.headsieve} with weights in {result.model.dtype} "
        f"(model fingerprint `{result.model.fingerprint}`, seed {result.seed})."
    )
    return parts


def _claim(name: str, claim: Claim, remark: str) -> list[str]:
    values = map(number, (claim.baseline, claim.knocked_out, claim.drop))
    unit = "" if claim.metric != LOG_PROB else ", nats a token"
    return [name, str(claim.items), *values, interval(claim.ci), remark + unit]


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    # A bar or a new line in a task's name would end its cell.
    return "\n".join(
        "| " + " | ".join(" ".join(cell.replace("|", r"\|").splitlines()) for cell in line) + " |"
        for line in lines
    )


def _code(language: str, lines: Iterable[str]) -> str:
    return "\n".join([f"```{language}", *lines, "```"])
