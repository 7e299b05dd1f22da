"""Counting words of a lexicon. The lexicon here is of vegetables."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headsieve.errors import HeadsieveError
from headsieve.tasks.data import load_data
from headsieve.tasks.swearing import Lexicon, count_matches, load_lexicon, relative_count

DATA = Path(__file__).parents[3] / "shared/benchmarks/profanity/profanity_en.csv"
LEXICON = Lexicon(frozenset({("leek",), ("brussels", "sprout"), ("sprout",), ("jack's", "bean")}))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("You leek!", 1),
        ("LEEK, leek; (leek)\nleek-leek", 5),
        ("leeks and sleek leekage", 0),
        ("a Brussels   sprout", 1),
        ("brussels-sprout sprout", 2),
        ("sprout brussels", 1),
        ("Jack\u2019s bean, jack's bean", 2),
        ("l33k l e e k", 0),
        ("leek_leek", 2),
        ("", 0),
    ],
)
def test_whole_words_match(text: str, count: int) -> None:
    assert count_matches(text, LEXICON) == count


@given(st.lists(st.sampled_from(["leek", "carrot", "Brussels sprout", "sprout", "pea"])))
def test_counts_of_lines_add_up(parts: list[str]) -> None:
    apart = sum(count_matches(part, LEXICON) for part in parts)
    assert count_matches(" carrot ".join(parts), LEXICON) == apart


def test_csv_and_plain_lists_give_the_same_lexicon(tmp_path: Path) -> None:
    table, plain = tmp_path / "words.csv", tmp_path / "words.txt"
    table.write_text('severity,text\n1,Leek\n2,"brussels  sprout"\n1,sprout\n3,Jack\'s bean\n')
    plain.write_text(
        "# vegetables\nleek\n\nBrussels sprout\r\nsprout\nJACK\u2019S BEAN\nleek\n",
        encoding="utf-8",
    )
    assert load_lexicon(table) == load_lexicon(plain) == LEXICON


def test_a_table_of_unknown_columns_is_read_by_its_first(tmp_path: Path) -> None:
    path = tmp_path / "words.csv"
    path.write_text("vegetable,colour\nleek,green\n")
    assert load_lexicon(path).entries == {("leek",)}


def test_entries_that_no_text_can_match_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("leek\nl@@k\n@55\n69\n!!\n")
    assert load_lexicon(path) == Lexicon(frozenset({("leek",)}), left_out=4)


@pytest.mark.parametrize("content", [b"", b"# nothing\n", b"@55\n69\n", b"\xff\xfe\xff"])
def test_a_lexicon_without_words_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(content)
    with pytest.raises(HeadsieveError, match=r"words\.txt"):
        load_lexicon(path)


def test_a_missing_lexicon_is_named(tmp_path: Path) -> None:
    with pytest.raises(HeadsieveError, match="No lexicon at"):
        load_lexicon(tmp_path / "none.csv")


def test_counts_are_relative_to_the_unmodified_model() -> None:
    assert relative_count(["leek", "pea"], ["leek leek", "sprout leek"], LEXICON) == 0.25
    assert relative_count(["leek leek"], ["leek"], LEXICON) == 2.0
    with pytest.raises(HeadsieveError, match="unmodified model"):
        relative_count(["leek"], ["pea"], LEXICON)


def test_there_are_enough_prompts() -> None:
    prompts = load_data("swearing")["prompts"]
    assert len(prompts) == len(set(prompts)) >= 60


@pytest.mark.skipif(not DATA.exists(), reason="the benchmark data is not here")
def test_no_prompt_swears() -> None:
    lexicon = load_lexicon(DATA)
    found = [text for text in load_data("swearing")["prompts"] if count_matches(text, lexicon)]
    assert found == []
