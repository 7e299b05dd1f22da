"""An atlas in plain words, and which of its heads are worth showing.

ASCII, as `headsieve.report.words`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.cluster import hierarchy

from headsieve.report.words import ROUNDING, number
from headsieve.sensing.modularity import cluster, leaves, shares

if TYPE_CHECKING:
    from headsieve.atlas_result import AtlasCapability, AtlasHead, AtlasResult

# More columns than these could not be read.
_MOST_SHOWN = 44
# A set that costs the others no more accuracy than this is selective.
MEAN_LOSS, LARGEST_LOSS = 0.05, 0.15
# One less the correlation from which profiles are drawn together.
_ALIKE = 0.5


def shown_heads(result: AtlasResult) -> list[AtlasHead]:
    """Heads that a capability needs or for which one was selected, similar ones side by side.

    Of too many, those with the largest shares in what capabilities lose.
    """
    selected = {name for one in result.capabilities.values() for name in one.selected}
    heads = [head for head in result.heads if head.needed_by or head.head in selected]
    if len(heads) < 3:
        return heads
    profiles = shares(np.array([list(head.effects.values()) for head in heads]))
    kept = np.sort(np.argsort(-profiles.sum(axis=1), kind="stable")[:_MOST_SHOWN])
    return [heads[kept[leaf]] for leaf in leaves(cluster(profiles[kept]))]


def groups(result: AtlasResult) -> list[list[str]]:
    """Capabilities alike in what they need beyond what all need, two or more together."""
    labels = hierarchy.fcluster(np.array(result.tree), _ALIKE, criterion="distance")
    of = dict(zip(result.capabilities, labels.tolist(), strict=True))
    found: dict[int, list[str]] = {}
    for name in result.order:
        found.setdefault(of[name], []).append(name)
    return [group for group in found.values() if len(group) > 1]


def worst_other(one: AtlasCapability) -> tuple[str, float]:
    """The other capability that loses most without a capability's heads, and its drop."""
    drops = {name: claim.drop for name, claim in one.verification.controls.items()}
    worst = max(drops, key=drops.__getitem__)
    return worst, drops[worst]


def verdict(one: AtlasCapability) -> str:
    """Whether held-out items confirm a capability's heads, and whether they spare the others."""
    if not one.selected:
        return "-"
    if not one.confirmed:
        return "not confirmed"
    drops = [claim.drop for claim in one.verification.controls.values()]
    spared = np.mean(drops) <= MEAN_LOSS + ROUNDING and max(drops) <= LARGEST_LOSS + ROUNDING
    return "confirmed, selective" if spared else "confirmed, not selective"


def general_sentence(result: AtlasResult) -> str:
    """Which heads most capabilities need, as held-out items confirm."""
    total = len(result.capabilities)
    named = [
        f"{one.head} ({len(one.needed_by)} of {total} capabilities)"
        for one in result.general
        if one.confirmed
    ]
    if not named:
        return (
            "No single head is confirmed as general: none costs at least half of the capabilities "
            "a drop whose 95 % interval on held-out items lies above zero."
        )
    return f"General heads, which at least half of the capabilities need: {', '.join(named)}."


def capability_sentence(name: str, one: AtlasCapability) -> str:
    """What a capability's heads do to it and to the others, on held-out items."""
    if not one.selected:
        return f"{name}: no measured set of heads lowers it and spares the other capabilities."
    own = one.verification.capability
    worst, drop = worst_other(one)
    others = f"of the others {worst} loses most, {number(drop)}" if drop > 0 else "no other loses"
    return (
        f"{name} ({verdict(one)}): without {', '.join(one.selected)} {number(own.baseline)} to "
        f"{number(own.knocked_out)}; {others}."
    )


def modularity_sentence(result: AtlasResult) -> str:
    """How modular the model is, against chance."""
    found = result.modularity
    low, high = found.null_ci
    if found.specificity > high:
        meaning = "heads serve single capabilities more than chance would have it"
    elif found.specificity < low:
        meaning = "capabilities share heads more than chance would have it"
    else:
        meaning = "as much as chance would have it"
    return (
        f"Specificity of heads (1: each serves one capability; 0: all alike): "
        f"{number(found.specificity)}, by chance {number(found.null_mean)} ({number(low)} to "
        f"{number(high)}): {meaning}."
    )
