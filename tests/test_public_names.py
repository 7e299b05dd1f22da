"""What ``import headsieve`` gives."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import headsieve as hs


def test_public_names_stay_what_they_are() -> None:
    for name in hs.__all__:
        assert getattr(hs, name) is getattr(hs, name)
        assert not isinstance(getattr(hs, name), ModuleType)


def test_public_names_are_offered_for_completion() -> None:
    assert set(hs.__all__) <= set(dir(hs))


def test_score_stays_the_function() -> None:
    program = (
        "import headsieve as hs; hs.score; import headsieve.scoring; print(callable(hs.score))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"
