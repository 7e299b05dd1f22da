from __future__ import annotations

import pytest

from headsieve.report import words
from headsieve.results import CapabilityResult, Claim
from tests.report.examples import capability, claim


def test_clean_result_has_its_verdict_and_no_warning() -> None:
    assert words.verdict("antonym", capability()) == (
        "Without these 2 heads antonym falls from 0.66 to 0.04 on 75 held-out items; the controls "
        "lose 0.02 on average, at most 0.05 (plural)."
    )
    assert words.warnings("antonym", capability()) == []


def test_text_is_not_averaged_with_accuracies() -> None:
    controls = {"plural": claim(0.9, 0.88), "text": claim(-2.5, -2.54, "log_prob")}
    assert words.verdict("antonym", capability(controls=controls)).endswith(
        "; plural loses 0.02; text loses 0.04 nats a token."
    )


@pytest.mark.parametrize(
    ("controls", "clause"),
    [
        ({"a": claim(0.5, 0.6), "b": claim(0.5, 0.52)}, "no control loses 0.01 or more"),
        (
            {"a": claim(0.5, 0.6), "b": claim(0.5, 0.46)},
            "the controls gain 0.03 on average, but b loses 0.04",
        ),
        ({"a": claim(0.5, 0.6)}, "a gains 0.10"),
    ],
)
def test_controls_that_gain(controls: dict[str, Claim], clause: str) -> None:
    assert f"; {clause}." in words.verdict("antonym", capability(controls=controls))


def test_a_capability_that_does_not_fall() -> None:
    same = capability(knocked_out=0.661, drop=-0.001, ci=(-0.05, 0.05))
    assert "antonym stays at 0.66 on" in words.verdict("antonym", same)
    better = capability(knocked_out=0.7, drop=-0.04, selected=["L1H2"])
    assert "Without this head antonym rises from 0.66 to 0.70" in words.verdict("antonym", better)


@pytest.mark.parametrize(
    ("weak", "warning"),
    [
        (capability(ci=(0.0, 0.7)), "may be chance; its 95 % interval, 0.00 to 0.70"),
        (capability(controls={"plural": claim(0.90, 0.84)}), "not antonym's alone"),
        (capability(controls={"plural": claim(0.90, 0.84)}), "plural (0.06)"),
        (
            capability(controls={"text": claim(-2.5, -2.62, "log_prob")}),
            "text (0.12 nats a token)",
        ),
        (capability(random_max=0.62), "a random set of as many heads does as much"),
        (capability(controls={}), "no control was measured"),
        (capability(selected=[]), "no measured set of heads lowers antonym"),
    ],
)
def test_each_weakness_has_its_warning(weak: CapabilityResult, warning: str) -> None:
    (found,) = words.warnings("antonym", weak)
    assert warning in found


def test_what_does_not_hold_on_other_items_has_one_warning() -> None:
    rose = capability(knocked_out=0.7, drop=-0.04, ci=(-0.1, 0.02), random_max=0.3)
    (warning,) = words.warnings("antonym", rose)
    assert warning.startswith("what the search found on its own items does not hold on others")


def test_a_large_p_value_is_told_where_the_interval_is_not_at_zero() -> None:
    (warning,) = words.warnings("antonym", capability(ci=(0.001, 0.6), p_value=0.062))
    assert warning == "the drop of antonym may be chance: p = 0.062."


def test_a_head_of_no_clear_effect_is_not_named_alone() -> None:
    found = capability(selected=["L1H2", "L0H0"])
    (warning,) = words.warnings("antonym", found)
    assert warning.startswith("no clear effect alone: L0H0 (")


def test_an_empty_selection_claims_no_drop() -> None:
    text = words.verdict("antonym", capability(selected=[]))
    assert text.startswith("No set of heads was found for antonym")
    assert "falls" not in text


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (words.number(-0.001), "0.00"),
        (words.p_value(0.00009), "p < 0.0001"),
        (words.p_value(0.0001), "p = 0.0001"),
        (words.p_value(0.0312), "p = 0.031"),
        (words.duration(59.94), "59.9 s"),
        (words.duration(812.3), "13 min 32 s"),
        (words.duration(7260), "2 h 1 min"),
        (words.memory(3 * 2**29), "1.5 GiB"),
        (words.memory(2**28), "256 MiB"),
        (words.ranges([0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8"),
    ],
)
def test_numbers_for_people(shown: str, text: str) -> None:
    assert shown == text
