"""What ``headsieve reproduce`` is asked and finds: the form of ``reproduction.json``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headsieve.config import Config
from headsieve.results import Cost, Document, FormCheck, ModelInfo


class ReproductionConfig(Config):
    """The configuration of the programme: that of a study of all its searches."""

    @property
    def _asked(self) -> list[str]:
        return ["reproduce", "--strategy", self.strategy, "--budget", str(self.budget)]


class Reproduction(Document):
    """The paper's tables, measured on one model.

    Attributes
    ----------
    items : dict of str to int
        Held-out items of each task.
    missing : dict of str to str
        Tasks that could not be had, and why.
    heads : dict of str to list of str
        Heads found for ``math`` (up to ten; the first five are the set), ``code``, ``swear``,
        ``rhyme``, ``bio``, ``chem`` and ``cyber``, best first.
    table : dict of str to dict of str to float
        Score of each task with no head knocked out (``none``) and without each set; swearing is
        relative to the unmodified model's count.
    curve : dict of str to list of float
        With 0, 1, … math heads knocked out.
    wmdp : dict of str to dict of str to float
        As `table`, of WMDP's subjects. ``general`` is without MMLU, which has its own column.
    form : dict of str to FormCheck
        Of tasks answered by letters or in writing, without the heads found for them.
    """

    schema_: Literal[1] = Field(alias="schema")
    headsieve: str
    created: str
    command: str
    model: ModelInfo
    strategy: str
    budget: int
    seed: int
    limit: int | None
    items: dict[str, int]
    missing: dict[str, str]
    heads: dict[str, list[str]]
    table: dict[str, dict[str, float]]
    curve: dict[str, list[float]]
    wmdp: dict[str, dict[str, float]]
    form: dict[str, FormCheck]
    cost: Cost
    versions: dict[str, str]
