"""The choice among measured sets: what each costs the capability and its controls."""

from __future__ import annotations

from dataclasses import dataclass

from headsieve.sensing.problem import Columns, Ledger

# A head must do at least this share of damage to be worth its place in a set.
SHARE_PER_HEAD = 0.02


@dataclass(frozen=True)
class SetCost:
    """A measured set of heads.

    Attributes
    ----------
    heads : tuple of int
    drop : float
        What it costs the capability, in smooth accuracy on search items.
    worst_control_drop : float
        The largest such cost to a control whose metric is accuracy.
    excess : float
        By how much, summed over the controls, the set costs more than is allowed (see
        `Ledger.excess`).
    worth : float
        The damage it does to the capability, less `SHARE_PER_HEAD` for each of its heads.
    """

    heads: Columns
    drop: float
    worst_control_drop: float
    excess: float
    worth: float


def worth(ledger: Ledger, chosen: Columns) -> float:
    """The damage a measured set does to the capability, less what its heads must earn."""
    return ledger.damage(chosen) - SHARE_PER_HEAD * len(chosen)


def cost(ledger: Ledger, chosen: Columns) -> SetCost:
    """What a set costs that was measured on the capability and all controls."""
    problem = ledger.problem
    drops = {task: ledger.drop(task, chosen) for task in problem.controls}
    accuracy = [drop for task, drop in drops.items() if task not in problem.in_nats]
    return SetCost(
        chosen,
        ledger.drop(problem.capability, chosen),
        max(accuracy, default=0.0),
        ledger.excess(chosen),
        worth(ledger, chosen),
    )


def admissible(ledger: Ledger) -> list[SetCost]:
    """Costs of the measured sets that are small enough to be chosen, best first."""
    costs = [
        cost(ledger, chosen)
        for chosen in ledger.complete()
        if len(chosen) <= ledger.problem.set_size
    ]
    return sorted(costs, key=lambda one: (-one.worth, one.heads))


def best_set(ledger: Ledger) -> Columns:
    """The measured set that does most damage and costs no control more than it may.

    The empty set if there is none.
    """
    for candidate in admissible(ledger):
        if candidate.excess <= 1e-9 and candidate.worth > 0:
            return candidate.heads
    return ()


def frontier(ledger: Ledger) -> list[SetCost]:
    """The measured sets that no other beats both in drop and in worst control drop.

    From the gentlest to the most damaging to the controls. The set that would be chosen is always
    among them, though another may have the same drop.
    """
    kept: list[SetCost] = []
    for candidate in sorted(
        admissible(ledger), key=lambda one: (one.worst_control_drop, -one.drop)
    ):
        if candidate.drop > max((one.drop for one in kept), default=0.0):
            kept.append(candidate)
    chosen = best_set(ledger)
    if chosen and chosen not in [one.heads for one in kept]:
        kept.append(cost(ledger, chosen))
        kept.sort(key=lambda one: (one.worst_control_drop, one.drop))
    return kept
