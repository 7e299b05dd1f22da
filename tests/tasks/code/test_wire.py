"""Plain values cross unchanged; nothing else gets through."""

from __future__ import annotations

import io
import json
import math
from collections import Counter, OrderedDict, namedtuple
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headsieve.tasks.code.inside import wire

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text()
    | st.binary()
)
hashables = scalars | st.tuples(scalars, scalars) | st.frozensets(scalars, max_size=3)
values = st.recursive(
    hashables | st.sets(hashables, max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(hashables, inner, max_size=3),
    max_leaves=8,
)
tags = st.sampled_from(["list", "set", "dict", "iterator", "int", "float", "bytes", "type"])
messages = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(tags, inner).map(list),
    max_leaves=8,
)


def refuse(value: Any) -> int:
    raise TypeError(type(value).__name__)


def over(value: Any) -> Any:
    """What arrives of a value."""
    stream = io.BytesIO()
    wire.send(stream, wire.encode(value, refuse))
    stream.seek(0)
    return wire.decode(wire.receive(stream))


@given(values)
def test_plain_values_arrive_as_they_were(value: Any) -> None:
    assert over(value) == value
    assert type(over(value)) is type(value)


def test_what_is_no_literal_arrives_too() -> None:
    assert math.isnan(over(float("nan")))
    assert over(10**5000) == 10**5000
    assert over("\udcff") == "\udcff"
    assert over([int, dict]) == [int, dict]


def test_a_class_of_the_programs_own_does_not_pass_for_a_type() -> None:
    with pytest.raises(TypeError):
        over(type("int", (int,), {}))


def test_subclasses_arrive_as_what_they_derive_from() -> None:
    point = namedtuple("point", "x y")
    assert over(point(1, 2)) == (1, 2)
    assert type(over(point(1, 2))) is tuple
    assert type(over(Counter("aab"))) is dict
    assert over(OrderedDict(a=1)) == {"a": 1}
    assert list(over(number * 2 for number in range(3))) == [0, 2, 4]


@given(messages)
def test_any_message_gives_plain_data_or_an_error(message: Any) -> None:
    try:
        value = wire.decode(json.loads(json.dumps(message)))
    except wire.MalformedMessageError:
        return
    if isinstance(value, Iterator):
        return
    plain = (
        type,
        type(None),
        bool,
        int,
        float,
        complex,
        str,
        bytes,
        list,
        tuple,
        set,
        frozenset,
        dict,
    )
    assert type(value) in (*plain, wire.Reference)


@pytest.mark.parametrize(
    "line", [b"[\n", b"\xff\n", b"1", b"[" * 10**6 + b"\n", b" " * (wire.LONGEST_MESSAGE + 9)]
)
def test_what_is_no_message_is_an_error(line: bytes) -> None:
    with pytest.raises(wire.MalformedMessageError):
        wire.receive(io.BytesIO(line))


def test_an_endless_iterator_is_refused() -> None:
    with pytest.raises(ValueError, match="more than"):
        wire.encode(iter(int, 1), refuse)
