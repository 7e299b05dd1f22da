"""Lists of names in one word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headsieve.errors import HeadsieveError
from headsieve.names import join_names, option, split_names

# No name of a task begins or ends with a space.
NAMES = st.lists(
    st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.just("\n"))
    .map(str.strip)
    .filter(bool),
    min_size=1,
)


@given(NAMES)
def test_a_list_is_read_as_it_was_written(names: list[str]) -> None:
    assert split_names(join_names(names)) == names


def test_a_value_that_looks_like_an_option_is_joined_to_its_own() -> None:
    assert option("--controls", "-x.json") == ["--controls=-x.json"]
    assert option("--seed", 0) == ["--seed", "0"]


def test_quotes_are_for_names_with_commas() -> None:
    assert split_names('copying, "odd, name.json",,plural ') == [
        *("copying", "odd, name.json", "plural")
    ]
    assert join_names(["odd, name.json", "plural"]) == '"odd, name.json",plural'
    with pytest.raises(HeadsieveError, match="quote whole names"):
        split_names('"odd, name.json')
