from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from headsieve.errors import HeadsieveError
from headsieve.report.curve import Curve
from tests.report.examples import curve


def test_csv_round_trip_keeps_every_digit() -> None:
    assert Curve.from_csv(curve().to_csv()) == curve()


def test_csv_says_which_head_each_count_adds() -> None:
    rows = list(csv.DictReader(io.StringIO(curve().to_csv())))
    row = next(row for row in rows if row["task"] == "antonym" and row["knocked_out"] == "1")
    assert row["head"] == "L1H2"
    assert float(row["value"]) == 1 / 3
    assert (float(row["ci_low"]), float(row["ci_high"])) == (0.25, 0.45)


def test_round_trip_of_no_heads_and_awkward_names() -> None:
    one = Curve((), {'a, "b"': "accuracy"}, {'a, "b"': (0.5,)}, 'a, "b"', ((0.4, 0.6),))
    assert Curve.from_csv(one.to_csv()) == one


@pytest.mark.parametrize(
    "text",
    [
        "",
        "task,value\nantonym,1\n",
        curve().to_csv().replace("0.88", "much"),
        curve().to_csv().replace("plural,accuracy,2,L3H0,0.85,,\n", ""),
    ],
)
def test_other_tables_are_refused(text: str) -> None:
    with pytest.raises(HeadsieveError):
        Curve.from_csv(text)


def test_a_value_for_every_count_is_required() -> None:
    with pytest.raises(HeadsieveError, match="has 2 values"):
        Curve(("L0H0",), {"a": "accuracy"}, {"a": (0.5,)}, "a", ((0.4, 0.6),))


def test_heads_that_add_nothing_are_idle() -> None:
    assert curve().idle == ()
    same = replace(curve(), values=curve().values | {"antonym": (0.66, 0.7, 0.7)})
    assert same.idle == ("L1H2", "L3H0")
