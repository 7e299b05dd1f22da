from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headsieve.measure.packing import Row, TokenSequence, pack, single


@st.composite
def sequences(draw: st.DrawFn) -> list[TokenSequence]:
    """Draw sequences over few tokens, so that they share much."""
    several = draw(st.lists(st.lists(st.integers(0, 2), min_size=2, max_size=9), min_size=1))
    return [
        TokenSequence(tuple(tokens), draw(st.integers(1, len(tokens) - 1))) for tokens in several
    ]


def ancestors(row: Row, node: int) -> list[int]:
    """List what a node attends to, itself included, in order of position."""
    assert row.attends is not None
    seen = np.flatnonzero(row.attends[node])
    return sorted(seen.tolist(), key=lambda other: int(row.positions[other]))


@given(sequences(), st.sampled_from([0.0, 0.01, 1.0]), st.sampled_from([1, 8, 2048]))
def test_every_scored_token_is_predicted_from_its_own_sequence(
    given_sequences: list[TokenSequence], attention_cost: float, max_nodes: int
) -> None:
    rows = pack(given_sequences, attention_cost=attention_cost, max_nodes=max_nodes)
    found = []
    for row in rows:
        scored = zip(row.sequences, row.predictors, row.targets, strict=True)
        for number, place, target in scored:
            path = ancestors(row, row.keep[place])
            tokens = given_sequences[number].tokens
            assert tuple(row.tokens[path]) == tokens[: len(path)]
            assert target == tokens[len(path)]
            found.append((int(number), len(path)))
    assert sorted(found) == [
        (number, position)
        for number, sequence in enumerate(given_sequences)
        for position in range(sequence.start, len(sequence.tokens))
    ]


@given(sequences())
def test_a_row_is_a_prefix_tree(given_sequences: list[TokenSequence]) -> None:
    for row in pack(given_sequences, attention_cost=0.0):
        paths = [ancestors(row, node) for node in range(len(row.tokens))]
        for node, path in enumerate(paths):
            assert path[-1] == node
            assert row.positions[path].tolist() == list(range(len(path)))
            assert path == sorted(path)
        # What a node stands for, its tokens from the root on, stands in the row once.
        assert len({tuple(row.tokens[path]) for path in paths}) == len(paths)


@given(sequences(), st.data())
def test_a_row_of_some_sequences_predicts_only_their_tokens(
    given_sequences: list[TokenSequence], data: st.DataObject
) -> None:
    (row,) = pack(given_sequences, attention_cost=0.0)
    numbers = data.draw(st.sets(st.sampled_from(range(len(given_sequences))), min_size=1))
    part = row.only(sorted(numbers))
    assert np.array_equal(part.tokens, row.tokens)
    assert np.array_equal(part.keep, np.unique(part.keep))

    def predictions(one: Row) -> list[tuple[int, int, int]]:
        nodes = one.keep[one.predictors]
        return list(zip(one.sequences.tolist(), nodes.tolist(), one.targets.tolist(), strict=True))

    assert predictions(part) == [one for one in predictions(row) if one[0] in numbers]


@given(sequences())
def test_no_row_is_longer_than_allowed_unless_one_sequence_is(
    given_sequences: list[TokenSequence],
) -> None:
    for row in pack(given_sequences, attention_cost=0.0, max_nodes=12):
        assert len(row.tokens) <= 12


def test_a_shared_prefix_is_computed_once() -> None:
    prefix = tuple(range(100))
    several = [TokenSequence((*prefix, 200 + n, 300), 100) for n in range(10)]
    (row,) = pack(several, attention_cost=0.0)
    assert len(row.tokens) == 100 + 10
    assert sum(len(row.tokens) for row in single(several)) == 10 * 101


def test_costly_attention_makes_more_rows() -> None:
    several = [TokenSequence(tuple(range(n, n + 60)), 1) for n in range(0, 4800, 60)]
    assert len(pack(several, attention_cost=1.0)) > len(pack(several, attention_cost=0.0))


@pytest.mark.parametrize("start", [0, 3, 4])
def test_a_sequence_must_have_something_to_score(start: int) -> None:
    with pytest.raises(ValueError, match="a token to score"):
        TokenSequence((1, 2, 3), start)
