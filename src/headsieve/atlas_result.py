"""The form of ``atlas.json``: what other programs may rely on.

Numbers are not rounded. A change that breaks a reader raises `ATLAS_SCHEMA`.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from headsieve.results import (
    Claim,
    Cost,
    Document,
    Interval,
    ModelInfo,
    Part,
    PlacedHead,
    Verification,
)

ATLAS_SCHEMA: Literal[1] = 1


class AtlasHead(PlacedHead):
    """One head on the map.

    Attributes
    ----------
    alone : bool
        Whether it was knocked out alone; its effects are decoded from larger sets if not.
    effects : dict of str to float
        For each capability, change of its search score (nats) when the head is knocked out.
    needed_by : list of str
        Capabilities that need it by the single knockout on search items.
    """

    alone: bool
    effects: dict[str, float]
    needed_by: list[str]


class AtlasCapability(Part):
    """One capability: the set of heads chosen for it and what held-out items say of it.

    Attributes
    ----------
    selected : list of str
        Best first; empty where no measured set spares the other capabilities.
    verification : Verification
        The controls are the other capabilities.
    adjusted_p : float
        The p-value after Benjamini and Hochberg, over all capabilities.
    confirmed : bool
        Whether `adjusted_p` is at most 0.05 and the drop is larger than that of every random set.
    """

    selected: list[str]
    verification: Verification
    adjusted_p: float
    confirmed: bool


class GeneralHead(Part):
    """A head that at least half of the capabilities need by search items.

    Attributes
    ----------
    claims : dict of str to Claim
        Every capability with this head alone knocked out, on held-out items.
    needed_by : list of str
        Capabilities whose drop has an interval above zero.
    confirmed : bool
        Whether those are at least half of all.
    """

    head: str
    claims: dict[str, Claim]
    needed_by: list[str]
    confirmed: bool


class ModularityResult(Part):
    """Specificity of the heads that were knocked out alone, and its null distribution.

    Attributes
    ----------
    specificity : float
        Tau of Yanai et al. 2005, averaged over heads by what they do: 1 if each head serves one
        capability alone, 0 if all capabilities need each head alike.
    null_mean, null_ci, p_value
        Of the same with each capability's effects permuted over the heads; two-sided.
    heads, permutations : int
    """

    specificity: float
    null_mean: float
    null_ci: Interval
    p_value: float
    heads: int
    permutations: int


class AtlasResult(Document):
    """A whole atlas.

    Attributes
    ----------
    left_out : dict of str to str
        Capabilities that the model hardly has, and what its accuracy is.
    order : list of str
        Capabilities, those of similar heads side by side.
    tree : list of list of float
        Their clustering, as scipy's linkage matrix over the capabilities in their own order.
    masks : int
        Masks measured on search items, each on every capability.
    """

    schema_: Literal[1] = Field(alias="schema")
    headsieve: str
    created: str
    seed: int
    command: str
    model: ModelInfo
    left_out: dict[str, str]
    capabilities: dict[str, AtlasCapability] = Field(min_length=2)
    general: list[GeneralHead]
    heads: list[AtlasHead] = Field(min_length=1)
    order: list[str]
    tree: list[list[float]]
    modularity: ModularityResult
    masks: int
    cost: Cost
    versions: dict[str, str]

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        names = set(self.capabilities)
        if set(self.order) != names or any(set(head.effects) != names for head in self.heads):
            raise ValueError("the capabilities of its parts differ")
        heads = {head.head for head in self.heads}
        chosen = {name for one in self.capabilities.values() for name in one.selected}
        if not chosen | {one.head for one in self.general} <= heads:
            raise ValueError("a selected or general head is not among the heads")
        self.model.require(self.heads)
        return self

    @property
    def confirmed(self) -> list[str]:
        """Capabilities whose heads held-out items confirm, in the order of the map."""
        return [name for name in self.order if self.capabilities[name].confirmed]
