"""Is it the knowledge or the form? Whether a drop is one of how answers are given.

A knockout may keep a model from answering by letter, or from writing an answer that can be read,
and leave what it knows untouched. Beside a task that is answered by letters stand the same items
answered in words, and trivial questions answered by letters; what a model writes is looked at for
faults of form (`headsieve.tasks.degenerate`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headsieve.results import Claim, FormCheck
from headsieve.sensing.problem import Columns, to_masks
from headsieve.tasks.degenerate import Fault
from headsieve.tasks.judged import FAULTS
from headsieve.tasks.letters import TEXT, TRIVIAL
from headsieve.verify import claim

if TYPE_CHECKING:
    from headsieve.workbench import Workbench

# With less above chance there is too little that could fall.
_LEAST_ABOVE_CHANCE = 0.1
# A loss that is at most this share of another is spared; so many lost answers explain a drop.
_HALF = 0.5


def check_form(
    bench: Workbench,
    capability: str,
    selected: Columns,
    found: Claim,
    rng: np.random.Generator,
) -> FormCheck | None:
    """Measure what stands beside a capability, and say whether the form explains its drop.

    Parameters
    ----------
    bench : Workbench
    capability : str
    selected : tuple of int
        The heads chosen.
    found : Claim
        The capability's own, on its held-out items.
    rng : numpy.random.Generator
        For the resampling.

    Returns
    -------
    FormCheck or None
        None where nothing stands beside the capability, or no head was chosen.
    """
    items = bench.items[capability]
    if not items.companions or not selected:
        return None
    masks = to_masks([(), selected], len(bench.model.geometry))
    if FAULTS in items.companions:
        before, after = bench.held_out(masks, capability)
        faults = [
            score.value.reshape(-1, len(Fault)) > 0
            for score in bench.companion(masks, capability, FAULTS)
        ]
        return written(found, before.value > after.value, faults[0], faults[1])
    beside = {}
    for which, one in items.companions.items():
        before, after = bench.companion(masks, capability, which)
        beside[which] = claim(one.metric, before, after, rng)
    return lettered(
        found,
        beside.get(TEXT),
        beside.get(TRIVIAL),
        chance=items.held_out.chance,
        trivial_chance=items.companions[TRIVIAL].chance,
    )


def lettered(
    letters: Claim,
    text: Claim | None,
    trivial: Claim | None,
    *,
    chance: float,
    trivial_chance: float,
) -> FormCheck:
    """Whether a task that is answered by letters falls because of the letters.

    The letters explain the drop if the same items answered in words lose at most half as large a
    share of what they have above chance. Where the words cannot tell, because the model is hardly
    above chance in them, the letters explain it if trivial questions lose at least half as large a
    share.

    Parameters
    ----------
    letters : Claim
    text, trivial : Claim or None
        The same items in words, and the trivial questions.
    chance, trivial_chance : float
        Of guessing at the items, and at the trivial questions.
    """

    def check(explains: bool | None, reason: str) -> FormCheck:
        return FormCheck(explains=explains, reason=reason, text=text, trivial=trivial)

    if letters.ci[0] <= 0:
        return check(False, "there is no clear drop to be explained")
    if not _shows(letters, chance):
        return check(None, "answers by letter were hardly above chance before the knockout")
    lost = _share_lost(letters, chance)
    own = f"answers by letter go from {_change(letters)}"
    if text is not None and _shows(text, chance):
        spared = _share_lost(text, chance) <= _HALF * lost
        also = "only from" if spared else "from"
        return check(spared, f"{own}, the same answers in words {also} {_change(text)}")
    if trivial is not None and _shows(trivial, trivial_chance):
        fell = _share_lost(trivial, trivial_chance) >= _HALF * lost
        return check(fell, f"{own}, trivial questions answered by letter from {_change(trivial)}")
    return check(
        None,
        "neither the same answers in words nor trivial questions answered by letter are clearly "
        "above chance before the knockout",
    )


def written(
    found: Claim,
    lost: NDArray[np.bool_],
    before: NDArray[np.bool_],
    after: NDArray[np.bool_],
) -> FormCheck:
    """Whether answers that a model writes are lost because they are badly formed.

    They are if at least half of the lost ones have a fault of form that they lacked before.

    Parameters
    ----------
    found : Claim
    lost : ndarray of bool, shape (answers,)
        Whether each answer is worth less than before.
    before, after : ndarray of bool, shape (answers, faults)
        Faults, in the order of `Fault`.
    """
    faults = {
        str(fault): (float(before[:, number].mean()), float(after[:, number].mean()))
        for number, fault in enumerate(Fault)
    }
    if found.ci[0] <= 0 or not lost.any():
        return FormCheck(
            explains=False, reason="there is no clear drop to be explained", faults=faults
        )
    new = (after & ~before)[lost]
    count = int(new.any(axis=1).sum())
    names = [str(fault) for number, fault in enumerate(Fault) if new[:, number].any()]
    return FormCheck(
        explains=count >= _HALF * len(new),
        reason=f"{count} of {len(new)} lost answers are newly {' or '.join(names)}"
        if count
        else "the lost answers are as well formed as before",
        faults=faults,
    )


def _shows(one: Claim, chance: float) -> bool:
    return one.baseline - chance >= _LEAST_ABOVE_CHANCE


def _share_lost(one: Claim, chance: float) -> float:
    return one.drop / (one.baseline - chance)


def _change(one: Claim) -> str:
    return f"{one.baseline:.2f} to {one.knocked_out:.2f}"
