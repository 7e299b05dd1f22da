"""The configuration of a study, as ``study.toml`` keeps it."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Self, get_args

import tomli_w
from pydantic import TypeAdapter, ValidationError

from headsieve.errors import HeadsieveError
from headsieve.measure.ablation import Ablation, require_ablation
from headsieve.models.heads import Units
from headsieve.names import join_names, option
from headsieve.sensing.problem import Prior
from headsieve.tasks.lm_eval.options import HarnessOptions

if TYPE_CHECKING:
    from headsieve.tasks.task import TaskItems

STUDY_FILE = "study.toml"
SMALLEST_LIMIT = 5


@dataclass(frozen=True)
class Config:
    """The resolved configuration of a study: enough to repeat it.

    Attributes
    ----------
    model : str
    revision : str or None
    dtype, device : str
    fingerprint : str
        Of the model.
    quantize : {"4bit", "8bit"} or None
        Of the model's weights.
    capabilities, controls : tuple of str
    budget : int
        Evaluations a capability.
    heads : int
        Heads in a set, at most.
    max_control_drop : float
    strategy : str
    prior : {"none", "gradient"}
    units : {"heads", "kv-groups", "attention-layers", "mlp-layers"}
        What is searched for.
    ablation : {"zero", "mean", "resample"}
    seed : int
    limit : int or None
    batch_size : int or "auto"
    force : bool
        Changes what is refused, not what is measured, so it may differ on resuming.
    items : dict of str to str
        Fingerprint of each task's search and held-out items.
    interactions : bool
        Whether all subsets of the selected heads are measured; resuming may add them.
    harness : HarnessOptions
        How tasks of lm-evaluation-harness are asked.
    documents : dict
        For each task of lm-evaluation-harness, under ``search`` and ``held-out``, the numbers of
        the documents of each of its data sets.
    """

    model: str
    revision: str | None
    dtype: str
    device: str
    fingerprint: str
    quantize: str | None
    capabilities: tuple[str, ...]
    controls: tuple[str, ...]
    budget: int
    heads: int
    max_control_drop: float
    strategy: str
    prior: Prior
    units: Units
    ablation: Ablation
    seed: int
    limit: int | None
    batch_size: int | str
    force: bool
    items: dict[str, str]
    interactions: bool = False
    harness: HarnessOptions = field(default_factory=HarnessOptions)
    documents: dict[str, dict[str, dict[str, list[int]]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what no study can have."""
        require_ablation(self.ablation, self.units)
        for holds, sentence in (
            (self.budget >= 1, f"The budget must be at least 1, not {self.budget}."),
            (self.heads >= 1, f"The number of heads must be at least 1, not {self.heads}."),
            (
                0 <= self.max_control_drop <= 1,
                f"The largest control drop must be from 0 to 1, not {self.max_control_drop}.",
            ),
            (
                self.prior in get_args(Prior),
                f"There is no prior {self.prior!r}; use {' or '.join(get_args(Prior))}.",
            ),
            (
                self.prior == "none" or self.strategy in ("adaptive", "atlas"),
                f"The strategy {self.strategy} takes no prior; only adaptive does.",
            ),
            (self.seed >= 0, f"The seed must be 0 or more, not {self.seed}."),
            (
                self.limit is None or self.limit >= SMALLEST_LIMIT,
                f"The limit must be at least {SMALLEST_LIMIT} items, not {self.limit}.",
            ),
        ):
            if not holds:
                raise HeadsieveError(sentence)

    def with_items(self, items: Mapping[str, TaskItems]) -> Self:
        """The same with what identifies each task's items."""
        return replace(
            self,
            items={
                name: f"{own.search.fingerprint}-{own.held_out.fingerprint}"
                for name, own in items.items()
            },
            documents={
                name: {
                    part: {dataset: list(numbers) for dataset, numbers in datasets.items()}
                    for part, datasets in own.documents.items()
                }
                for name, own in items.items()
                if own.documents
            },
        )

    def to_toml(self) -> str:
        """The text of ``study.toml``; options that were not given are left out."""
        values = asdict(self)
        values["harness"] = _given(values["harness"])
        return tomli_w.dumps(_given(values))

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Read ``study.toml``.

        Raises
        ------
        HeadsieveError
            If it is not the configuration of a study.
        """
        try:
            values: dict[str, Any] = {"revision": None, "quantize": None, "limit": None}
            values |= {"prior": "none", "units": "heads", "ablation": "zero"}
            values |= tomllib.loads(text)
            if unknown := values.keys() - {one.name for one in fields(cls)}:
                raise ValueError(f"it has no entry {min(unknown)!r}")
            return TypeAdapter(cls).validate_python(values)
        except ValidationError as error:
            first = error.errors()[0]
            what = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        except ValueError as error:  # no TOML, too
            what = str(error)
        raise HeadsieveError(f"{STUDY_FILE} is not the configuration of a study: {what}.")

    @property
    def command(self) -> str:
        """The command that makes this study."""
        words = ["headsieve", *self._asked, *option("--model", self.model)]
        words += [] if self.revision is None else option("--revision", self.revision)
        words += option("--seed", self.seed)
        words += [] if self.limit is None else option("--limit", self.limit)
        words += [*option("--device", self.device), *option("--dtype", self.dtype)]
        words += option("--batch-size", self.batch_size)
        words += [] if self.quantize is None else option("--quantize", self.quantize)
        return shlex.join([*words, *self.harness.words, *self._last])

    @property
    def _last(self) -> list[str]:
        """Words at the command's end: capabilities, if one would be taken for an option."""
        odd = any(name.startswith("-") for name in self.capabilities)
        return ["--", *self.capabilities] if odd else []

    @property
    def _asked(self) -> list[str]:
        """The words of its own in the command: what is asked of the model."""
        words = ["locate", *([] if self._last else self.capabilities)]
        words += option("--controls", join_names(self.controls) if self.controls else "none")
        words += [*option("--budget", self.budget), *option("--heads", self.heads)]
        words += option("--max-control-drop", self.max_control_drop)
        words += [*option("--strategy", self.strategy), *option("--prior", self.prior)]
        words += [*option("--units", self.units), *option("--ablation", self.ablation)]
        words += ["--interactions"] if self.interactions else []
        return words + (["--force"] if self.force else [])


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """Those values that are not None, for which TOML has no word."""
    return {name: value for name, value in values.items() if value is not None}
