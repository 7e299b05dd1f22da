"""The default search: screen with random masks, look at candidates alone, then build sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headsieve.errors import HeadsieveError
from headsieve.sensing.choice import SHARE_PER_HEAD, best_set, frontier, worth
from headsieve.sensing.designs import stratified
from headsieve.sensing.problem import (
    SHARE_PER_NAT,
    Columns,
    Ledger,
    Problem,
    to_sets,
)
from headsieve.sensing.recovery import (
    FloatArray,
    decode,
    decode_sparsely,
    estimate,
    floored,
    smooth,
)
from headsieve.sensing.strategies.recommendation import Recommendation, Search, Step

# The unmodified model, and a few evaluations for each stage that follows.
SMALLEST_BUDGET = 20
# Shares of the budget: until the end of the screening, and of the single knockouts.
SCREENED = 0.5
SINGLED = 0.85
# Gradients tell so much that fewer masks are needed beside them.
SCREENED_BESIDE_GRADIENTS = 0.4
# Of what gradients foretell, where each of four ways to decode masks weighs one.
_GRADIENT_WEIGHT = 8.0
# Each round of the screening goes on with half of the heads.
_ROUNDS = 3
# Masks tell most when they take about half of what the capability has.
_AIM = 0.5
_FIRST_DENSITY = 0.04
_DENSEST = 0.5
# From one batch to the next the density changes by at most this factor.
_STEEPEST = 2.0
_AT_ONCE = 6
# Below this share of the capability there is nothing left to take.
_ALL_BUT_GONE = 0.03
_TINY = 1e-9
# How many of the best sets so far are extended.
_BEAM = 3
# What controls lose beyond what they may counts so many times what the capability loses.
_EXCESS_WEIGHT = 5.0
# A set is measured if it promises to take this share of the capability more than the best one.
_SMALLEST_GAIN = 0.005


def adaptive(problem: Problem) -> Search:
    """Find a selective set of heads inside one budget of evaluations.

    1. Measure the unmodified model; with a gradient prior, also gradients with respect to gates
       on all heads.
    2. Screen with random masks on the capability and controls, at the density that hurts but does
       not destroy, in three rounds: each next one keeps the more promising half of the heads.
    3. Knock out the most promising heads one by one, by what masks and gradients tell together.
    4. Build sets from the best, one head at a time, keeping a beam of the best sets; where nothing
       promises a gain, try what further heads add to the best set. Controls are measured only for
       sets that do enough to the capability.
    5. Choose, among all measured sets, the one that does most damage to the capability (see
       `Ledger.damage`) and costs no control more than it may; every head must be worth its place.

    Raises
    ------
    HeadsieveError
        If the budget is too small for all stages.
    """
    if problem.budget < SMALLEST_BUDGET:
        raise HeadsieveError(
            f"A budget of {problem.budget} is too small for the adaptive search, whose "
            f"stages need {SMALLEST_BUDGET}; raise --budget."
        )
    rng = np.random.default_rng(problem.seed)
    ledger = Ledger(problem)
    yield from ledger.ask([()], problem.tasks)
    if problem.prior == "gradient":
        yield from ledger.ask_gradients()
    yield from _screen(ledger, rng)
    yield from _singles(ledger, int(SINGLED * problem.budget))
    yield from _sets(ledger)
    while ledger.left > 0:
        # No set promises a gain: a head that was not looked at may.
        before = ledger.spent
        yield from _singles(ledger, min(before + _AT_ONCE, problem.budget))
        yield from _sets(ledger)
        if ledger.spent == before:
            break
    effects = estimate(ledger, rng)
    selected = best_set(ledger)
    return Recommendation(
        selected=tuple(sorted(selected, key=lambda head: effects.effect[head])),
        effects=effects,
        frontier=frontier(ledger),
        evaluations=ledger.spent,
        control_evaluations=ledger.control_evaluations,
    )


def _screen(ledger: Ledger, rng: np.random.Generator) -> Step:
    """Measure random masks, in rounds: in each of those heads that promise most after the last.

    The density is steered so that masks leave about half of the capability.
    """
    problem = ledger.problem
    kept = np.arange(problem.heads)
    density = _FIRST_DENSITY
    share = SCREENED_BESIDE_GRADIENTS if ledger.gradients else SCREENED
    ends = np.linspace(ledger.spent, share * problem.budget, _ROUNDS + 1)[1:]
    for number, end in enumerate(ends):
        if number:
            ranking = np.array(_ranking(ledger, expected(ledger, problem.tasks)))
            promising = ranking[np.isin(ranking, kept)]
            kept = np.sort(promising[: max(len(kept) // 2, problem.set_size)])
        used = np.zeros(len(kept), dtype=np.int64)
        while (count := min(_AT_ONCE, int(end) - ledger.spent)) > 0:
            masks = np.zeros((count, problem.heads), dtype=bool)
            masks[:, kept] = stratified(count, len(kept), density, rng, used=used)
            used += masks[:, kept].sum(axis=0)
            before = ledger.spent
            yield from ledger.ask(to_sets(masks), problem.tasks)
            if ledger.spent == before:
                # So few heads are left that all these masks are known.
                break
            left = [max(ledger.remaining(chosen), 0.0) for chosen in to_sets(masks)]
            density = steered(density, float(np.mean(left)))


def steered(density: float, left: float) -> float:
    """The density that leaves half of the capability, if this one leaves so much of it.

    As if each head took its share of what the others leave.
    """
    change = np.log(_AIM) / np.log(np.clip(left, 0.05, 0.95))
    return min(density * float(np.clip(change, 1 / _STEEPEST, _STEEPEST)), _DENSEST)


def _singles(ledger: Ledger, last: int) -> Step:
    """Knock out the most promising heads alone, deciding anew after each few."""
    while (count := min(_AT_ONCE, last - ledger.spent)) > 0:
        promising = candidates(ledger, expected(ledger, ledger.problem.tasks))[:count]
        if not promising:
            return
        yield from ledger.ask(promising, ledger.problem.tasks)


def candidates(ledger: Ledger, effects: Mapping[str, FloatArray]) -> list[Columns]:
    """Heads not yet knocked out alone, the most selective by what is known so far first.

    Parameters
    ----------
    ledger : Ledger
    effects : mapping of str to ndarray
        What `expected` gives.
    """
    measured = {chosen for chosen in ledger.complete() if len(chosen) == 1}
    return [(head,) for head in _ranking(ledger, effects) if (head,) not in measured]


def _ranking(ledger: Ledger, effects: Mapping[str, FloatArray]) -> list[int]:
    """Heads by their effect on the capability less the mean effect on controls, best first.

    The mean over controls is less noisy than the worst of so many estimated effects.
    """
    problem = ledger.problem
    effect = effects[problem.capability]
    if problem.controls:
        shared = np.mean([effects[task] for task in problem.controls], axis=0)
        effect = np.asarray(effect - np.minimum(shared, 0))
    return [int(head) for head in np.argsort(effect, kind="stable")]


def expected(ledger: Ledger, tasks: Sequence[str]) -> dict[str, FloatArray]:
    """Effects of all heads on each task, from everything known so far, in units of their spread.

    From masks by two decoders and two scores: the random-effects model leads while masks are few,
    the Lasso once they are many; the search score sees what makes wrong answers worse, the smooth
    accuracy what flips them. Where there are gradients they count most: they are exact but for
    saturation, which masks see.
    """
    effects = {}
    for task in tasks:
        sources = [
            _scaled(decoder(ledger, task, scores))
            for decoder in (decode, decode_sparsely)
            for scores in (floored, smooth)
        ]
        weights = [1.0] * len(sources)
        if task in ledger.gradients:
            sources.append(_scaled(-ledger.gradients[task]))
            weights.append(_GRADIENT_WEIGHT)
        effects[task] = np.average(sources, axis=0, weights=weights)
    return effects


def _scaled(effects: FloatArray) -> FloatArray:
    return np.asarray(effects / (effects.std() + _TINY))


def _sets(ledger: Ledger) -> Step:
    """Build sets while one promises a gain, else see what further heads add to the best set."""
    problem = ledger.problem
    while ledger.left > 0:
        promised = proposal(ledger)
        proposals = [promised] if promised is not None else _explorations(ledger)[: ledger.left]
        if not proposals:
            return
        yield from ledger.ask(proposals, [problem.capability])
        # Controls are worth measuring only for sets that do more to the capability.
        best = best_set(ledger)
        reached = worth(ledger, best)
        better = [one for one in proposals if worth(ledger, one) > reached]
        yield from ledger.ask(better, list(problem.controls))


def _explorations(ledger: Ledger) -> list[Columns]:
    """The best set with one head more that was not knocked out alone.

    A head that backs another up shows its effect only once that other is gone. Nothing where the
    set is full or the capability all but gone.
    """
    best = best_set(ledger)
    if len(best) >= ledger.problem.set_size or ledger.remaining(best) < _ALL_BUT_GONE:
        return []
    known = ledger.scores[ledger.problem.capability]
    others = candidates(ledger, expected(ledger, ledger.problem.tasks))
    larger = [tuple(sorted({*best, head})) for (head,) in others]
    return [chosen for chosen in larger if chosen not in known and chosen != best][:_AT_ONCE]


def proposal(ledger: Ledger) -> Columns | None:
    """The unmeasured set that promises most: a good set with one head more, or one exchanged.

    A promise assumes that what heads cost the controls adds up, and that a further head takes its
    share of what is left of the capability. None if nothing promises a gain.
    """
    problem = ledger.problem
    known = ledger.scores[problem.capability]
    complete = ledger.complete()
    singles = [_estimate(ledger, chosen) for chosen in complete if len(chosen) == 1]
    measured = [_estimate(ledger, chosen) for chosen in complete if len(chosen) <= problem.set_size]
    limits = _limits(ledger)
    measured.sort(key=lambda one: -_promise(one, limits))
    proposals: dict[Columns, float] = {}
    for start in measured[:_BEAM]:
        bases = [start]
        if len(start.heads) == problem.set_size:
            alone = {one.heads[0]: one for one in singles}
            bases = [start.less(alone[head]) for head in start.heads if head in alone]
        for base in bases:
            for single in singles:
                promise = base.plus(single)
                if len(promise.heads) > len(base.heads) and promise.heads not in known:
                    proposals[promise.heads] = _promise(promise, limits)
    if not proposals:
        return None
    best = max(proposals, key=lambda heads: (proposals[heads], heads))
    gain = proposals[best] - (_promise(measured[0], limits) if measured else 0.0)
    return best if gain > _SMALLEST_GAIN else None


@dataclass(frozen=True)
class _Estimate:
    """What a set costs, measured or promised.

    The share of the capability that is lost, the nats its right answers lose, the controls' drops.
    """

    heads: Columns
    lost: float
    nats: float
    controls: FloatArray

    def plus(self, single: _Estimate) -> _Estimate:
        """With one head more."""
        return _Estimate(
            tuple(sorted({*self.heads, *single.heads})),
            self.lost + (1 - self.lost) * single.lost,
            self.nats + single.nats,
            self.controls + single.controls,
        )

    def less(self, single: _Estimate) -> _Estimate:
        """With one head fewer."""
        return _Estimate(
            tuple(head for head in self.heads if head not in single.heads),
            1 - (1 - self.lost) / max(1 - single.lost, 0.05),
            self.nats - single.nats,
            self.controls - single.controls,
        )


def _estimate(ledger: Ledger, chosen: Columns) -> _Estimate:
    known = ledger.scores[ledger.problem.capability]
    return _Estimate(
        chosen,
        # A promise takes shares of what is left; what is below chance is nothing.
        min(1 - ledger.remaining(chosen), 1.0),
        known[()].search - known[chosen].search,
        np.array([ledger.drop(task, chosen) for task in ledger.problem.controls]),
    )


def _limits(ledger: Ledger) -> FloatArray:
    """What each control may lose, the typical noise of its drop included."""
    singles = [chosen for chosen in ledger.complete() if len(chosen) == 1]
    return np.array(
        [
            allowed + np.median([ledger.noise(task, chosen) for chosen in singles] or [0.0])
            for task, allowed in ledger.problem.controls.items()
        ]
    )


def _promise(one: _Estimate, limits: FloatArray) -> float:
    """The worth of a set, less what controls lose beyond their limits."""
    excess = float(np.maximum(one.controls - limits, 0).sum())
    earned = one.lost + SHARE_PER_NAT * one.nats - SHARE_PER_HEAD * len(one.heads)
    return earned - _EXCESS_WEIGHT * excess
