from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from headsieve.errors import HeadsieveError
from headsieve.measure.journal import Entry, Journal, Key
from headsieve.scores import Score


def entry(mask: str, value: float = 0.1) -> Entry:
    score = Score(np.array([value, -1 / 3]), np.array([1.0, 0.0]), np.array([0.5, -2.0]))
    return Entry(Key("model", "items", "float32", mask), "antonym", score, 10, 0.5)


def test_measurements_survive_closing_to_the_last_bit(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "m.sqlite")
    journal.add([entry("L0H0"), entry("L0H1", 0.2)])
    journal.close()
    reopened = Journal(tmp_path / "m.sqlite")
    score = reopened.get(entry("L0H1").key)
    assert score is not None
    assert score.log_prob.tolist() == [0.2, -1 / 3]
    assert score.value.tolist() == [1.0, 0.0]
    assert reopened.totals() == (2, 20, 1.0)


@pytest.mark.parametrize("field", ["model", "items", "dtype", "mask"])
def test_a_measurement_answers_for_nothing_else(field: str) -> None:
    journal = Journal()
    journal.add([entry("L0H0")])
    key = entry("L0H0").key
    other = Key(**{**vars(key), field: "another"})
    assert journal.get(key) is not None
    assert journal.get(other) is None


@pytest.mark.parametrize("blob", ["X''", "X'0102'", "7", "'text'"])
def test_a_damaged_measurement_is_told(tmp_path: Path, blob: str) -> None:
    journal = Journal(tmp_path / "m.sqlite")
    journal.add([entry("L0H0")])
    with sqlite3.connect(tmp_path / "m.sqlite") as connection:
        connection.execute(f"UPDATE measurements SET log_prob = {blob}")
    with pytest.raises(HeadsieveError, match=r"m\.sqlite is damaged"):
        journal.get(entry("L0H0").key)


def test_a_batch_is_kept_whole_or_not_at_all() -> None:
    journal = Journal()
    journal.add([entry("L0H0")])
    with pytest.raises(HeadsieveError, match="Cannot keep measurements"):
        journal.add([entry("L0H1"), entry("L0H0")])
    assert journal.get(entry("L0H1").key) is None
    assert journal.totals()[0] == 1


_WRITER = """
import sys
from itertools import count
from pathlib import Path
from tests.measure.test_journal import Journal, entry
journal = Journal(Path(sys.argv[1]))
for batch in count():
    journal.add([entry(f"L{batch}H{head}") for head in range(50)])
    print(batch, flush=True)
"""


def test_a_killed_writer_loses_no_finished_batch(tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, path],
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": ":".join(sys.path)},
    ) as writer:
        assert writer.stdout is not None
        while int(writer.stdout.readline()) < 5:
            pass
        writer.kill()
        finished = 6 + len(writer.stdout.read().splitlines())
    # The batch after the last one announced may have been kept too.
    assert Journal(path).totals()[0] in (50 * finished, 50 * (finished + 1))


def test_a_file_that_is_no_journal_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    path.write_text("not a database, but long enough to be taken for one" * 50)
    with pytest.raises(HeadsieveError, match="Cannot keep measurements in") as raised:
        Journal(path)
    assert isinstance(raised.value.__cause__, sqlite3.Error)
