"""Strategies to compare with that go by what they have measured: greedy, Thompson, halving."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from headsieve.errors import HeadsieveError
from headsieve.sensing.choice import best_set, frontier, worth
from headsieve.sensing.designs import dispersed
from headsieve.sensing.problem import Columns, Ledger, Problem, to_masks, to_sets
from headsieve.sensing.recovery import FloatArray, estimate
from headsieve.sensing.strategies.recommendation import Recommendation, Search

# What controls lose beyond what they may counts so many times what the capability loses.
_EXCESS_WEIGHT = 5.0
_AT_ONCE = 8
_FEWEST_SETS = 10
# Share of the spread of rewards that no head explains.
_NOISE_SHARE = 0.1


def greedy(problem: Problem) -> Search:
    """Add to a set, one after the other, the head that makes the best set with those before.

    Every head is tried in every round: as many evaluations a head found as the model has heads.
    Controls are measured for the sets that do most to the capability, until no set that is left
    could be better. Ends when no head is worth its place, the set is full, or the budget does not
    reach for another round.

    Raises
    ------
    HeadsieveError
        If the budget does not reach for one round.
    """
    if problem.budget < problem.heads + 1:
        raise HeadsieveError(
            f"Iterative greedy search needs {problem.heads} evaluations a head found and one of "
            f"the unmodified model; {problem.budget} were given."
        )
    ledger = Ledger(problem)
    yield from ledger.ask([()], problem.tasks)
    chosen: Columns = ()
    while len(chosen) < problem.set_size:
        larger = [
            tuple(sorted((*chosen, head))) for head in range(problem.heads) if head not in chosen
        ]
        if len(larger) > ledger.left:
            break
        yield from ledger.ask(larger, [problem.capability])
        reached = _value(ledger, chosen)
        best = chosen
        larger.sort(key=lambda one: -worth(ledger, one))
        for first in range(0, len(larger), _AT_ONCE):
            promising = larger[first : first + _AT_ONCE]
            # What controls lose can only make a set worse.
            if worth(ledger, promising[0]) <= reached:
                break
            yield from ledger.ask(promising, list(problem.controls))
            best = max((best, *promising), key=lambda one: _value(ledger, one))
            reached = _value(ledger, best)
        if best == chosen:
            break
        chosen = best
    return _recommendation(ledger, best_set(ledger))


def _value(ledger: Ledger, chosen: Columns) -> float:
    return worth(ledger, chosen) - _EXCESS_WEIGHT * ledger.excess(chosen)


def thompson(problem: Problem) -> Search:
    """Thompson sampling of sets, the reward being the drop less the worst drop of a control.

    A set's reward is taken to be the sum of its heads' plus noise, with a normal prior on each.
    In every step the effects are drawn from what is believed of them, and the set that would be
    best under the draw is measured (linear Thompson sampling; Agrawal and Goyal, *Thompson
    Sampling for Contextual Bandits with Linear Payoffs*, ICML 2013).

    Raises
    ------
    HeadsieveError
        If the budget is too small to learn from.
    """
    if problem.budget < _FEWEST_SETS + 1:
        raise HeadsieveError(
            f"Thompson sampling learns nothing from {problem.budget} evaluations; it needs at "
            f"least {_FEWEST_SETS + 1}."
        )
    rng = np.random.default_rng(problem.seed)
    ledger = Ledger(problem)
    yield from ledger.ask([()], problem.tasks)
    sets: list[Columns] = []
    rewards: list[float] = []
    while ledger.left > 0:
        believed = _draw(sets, rewards, problem, rng)
        best = np.argsort(-believed, kind="stable")[: problem.set_size]
        chosen = tuple(sorted(int(head) for head in best))
        if chosen in ledger.scores[problem.capability]:
            # Measuring it again would tell nothing: exchange one of its heads.
            others = np.setdiff1d(np.arange(problem.heads), best)
            if not len(others):
                break
            chosen = tuple(sorted((*chosen[1:], int(rng.choice(others)))))
            if chosen in ledger.scores[problem.capability]:
                break
        yield from ledger.ask([chosen], problem.tasks)
        sets.append(chosen)
        rewards.append(_reward(ledger, chosen))
    mean = _draw(sets, rewards, problem, None)
    best = np.argsort(-mean, kind="stable")[: problem.set_size]
    return _recommendation(ledger, [int(head) for head in best if mean[head] > 0])


def _reward(ledger: Ledger, chosen: Columns) -> float:
    """Nats that a set takes off the capability, less the most that it takes off a control."""
    lost = [
        scores[()].search - scores[chosen].search
        for scores in (ledger.scores[task] for task in ledger.problem.tasks)
    ]
    return lost[0] - max([0.0, *lost[1:]])


def _draw(
    sets: Sequence[Columns],
    rewards: Sequence[float],
    problem: Problem,
    rng: np.random.Generator | None,
) -> FloatArray:
    """Effects drawn from the posterior, or its mean without a generator, shape (heads,).

    A draw from the prior is corrected by what it gets wrong of the rewards (Matheron's rule).
    """
    masks = to_masks(sets, problem.heads).astype(float)
    reward = np.array(rewards)
    variance = float(reward.var()) if len(reward) > 1 else 1.0
    noise = _NOISE_SHARE * variance + 1e-12
    prior = (1 - _NOISE_SHARE) * variance / problem.set_size + 1e-12
    effect = np.zeros(problem.heads)
    error = np.zeros(len(reward))
    if rng is not None:
        effect = rng.normal(0, math.sqrt(prior), problem.heads)
        error = rng.normal(0, math.sqrt(noise), len(reward))
    covariance = prior * masks @ masks.T + noise * np.eye(len(masks))
    wrong = np.linalg.solve(covariance, reward - masks @ effect - error)
    return np.asarray(effect + prior * masks.T @ wrong)


def halving(problem: Problem) -> Search:
    """Sequential halving: measure heads in groups, keep the better half, and so on.

    Every round has the same share of the budget. In each, the heads that are left are shared out
    to masks, and go on by the mean reward of the masks they were in; when there are evaluations
    for all that are left, each is knocked out alone (Karnin, Koren and Somekh, *Almost Optimal
    Exploration in Multi-Armed Bandits*, ICML 2013).

    Raises
    ------
    HeadsieveError
        If the budget does not reach for two masks a round and the heads alone.
    """
    rounds = max(1, math.ceil(math.log2(max(2, problem.heads / problem.set_size))))
    share = (problem.budget - 1) // (rounds + 1)
    if share < max(2, problem.set_size):
        raise HeadsieveError(
            f"Sequential halving needs a budget of "
            f"{1 + max(2, problem.set_size) * (rounds + 1)} for this model; "
            f"{problem.budget} were given."
        )
    rng = np.random.default_rng(problem.seed)
    ledger = Ledger(problem)
    yield from ledger.ask([()], problem.tasks)
    left = np.arange(problem.heads)
    while len(left) > max(share, problem.set_size):
        masks = np.zeros((share, problem.heads), dtype=bool)
        masks[:, left] = dispersed(share, len(left), 1 / share, rng)
        sets = to_sets(masks)
        yield from ledger.ask(sets, problem.tasks)
        reward = np.array([_reward(ledger, chosen) for chosen in sets])
        uses = masks[:, left].sum(axis=0)
        mean = reward @ masks[:, left] / np.maximum(uses, 1)
        # A head that no mask had room for stays where it was: in the middle.
        mean[uses == 0] = np.median(mean[uses > 0])
        best = np.lexsort((rng.random(len(left)), -mean))
        left = np.sort(left[best[: max(len(left) // 2, problem.set_size)]])
    singles = [(int(head),) for head in left][: ledger.left]
    yield from ledger.ask(singles, problem.tasks)
    best_first = sorted(singles, key=lambda chosen: -_reward(ledger, chosen))
    selected = [head for (head,) in best_first if _reward(ledger, (head,)) > 0]
    return _recommendation(ledger, selected[: problem.set_size])


def _recommendation(ledger: Ledger, selected: Sequence[int]) -> Recommendation:
    return Recommendation(
        selected=tuple(selected),
        effects=estimate(ledger, np.random.default_rng(ledger.problem.seed)),
        frontier=frontier(ledger),
        evaluations=ledger.spent,
        control_evaluations=ledger.control_evaluations,
    )
