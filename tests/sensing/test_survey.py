"""A survey finds planted heads of every capability, all of them under the same masks."""

from __future__ import annotations

import pytest

from headsieve.errors import HeadsieveError
from headsieve.sensing.choice import best_set
from headsieve.sensing.problem import Prior, Problem
from headsieve.sensing.strategies import answered
from headsieve.sensing.survey import survey
from tests.sensing.oracle import GENERAL, Oracle

# Of names of different lengths, by which the oracle tells items apart.
OWN = {"a": (7, 31), "bb": (12,), "ccc": (40, 41), "dddd": (55,)}


def oracle() -> Oracle:
    return Oracle({name: (*own, *GENERAL) for name, own in OWN.items()})


def problems(budget: int = 60, prior: Prior = "none") -> list[Problem]:
    return [
        Problem(
            heads=60,
            capability=name,
            controls={other: 0.1 for other in OWN if other != name},
            budget=budget,
            set_size=3,
            seed=0,
            prior=prior,
        )
        for name in OWN
    ]


@pytest.mark.parametrize("prior", ["none", "gradient"])
def test_every_mask_is_measured_on_every_capability(prior: Prior) -> None:
    asked = oracle()
    ledgers = answered(survey(problems(prior=prior)), asked.answer)
    counts = {asked.evaluations(name) for name in OWN}
    assert len(counts) == 1
    assert {ledger.spent for ledger in ledgers} <= set(range(40, 61))
    first = ledgers[0]
    assert {frozenset(known) for known in first.scores.values()} == {frozenset(first.scores["a"])}
    assert bool(first.gradients) == (prior == "gradient") == bool(asked.slopes_asked)


def test_planted_heads_are_knocked_out_alone_and_sets_chosen() -> None:
    ledgers = answered(survey(problems(prior="gradient")), oracle().answer)
    alone = {chosen[0] for chosen in ledgers[0].scores["a"] if len(chosen) == 1}
    assert {*GENERAL, *(head for own in OWN.values() for head in own)} <= alone
    for ledger in ledgers:
        chosen = best_set(ledger)
        assert chosen
        assert set(chosen) <= set(OWN[ledger.problem.capability])


def test_the_same_answers_lead_to_the_same_questions() -> None:
    first, again = oracle(), oracle()
    for one in (first, again):
        answered(survey(problems()), one.answer)
    assert [question.masks.tolist() for question in first.asked] == [
        question.masks.tolist() for question in again.asked
    ]


def test_a_small_budget_is_refused_before_anything_is_measured() -> None:
    asked = oracle()
    with pytest.raises(HeadsieveError, match="raise --budget"):
        answered(survey(problems(budget=19)), asked.answer)
    assert not asked.asked
