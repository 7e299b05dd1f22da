"""Studies and scores of units larger than heads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headsieve.errors import HeadsieveError
from headsieve.handover import export
from headsieve.localization import locate
from headsieve.measure.journal import Journal
from headsieve.measure.measurer import Measurer
from headsieve.models.heads import UNITS, Units, kind_of
from headsieve.models.loading import Model
from headsieve.report.tables import summary
from headsieve.scoring import score
from headsieve.study import Study
from tests.measure.test_measurer import SHORT
from tests.taskfiles import write_task

LARGER = [units for units in UNITS if units != "heads"]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with two task files."""
    monkeypatch.chdir(tmp_path)
    write_task(Path("skill.json"))
    write_task(Path("other.json"), "?")


def find(model: Model, units: Units, *, resume: bool = False) -> Study:
    return locate(
        model,
        ["skill.json"],
        controls=["other.json"],
        budget=22,
        heads=2,
        max_control_drop=1.0,
        limit=6,
        force=True,
        units=units,
        out="run",
        resume=resume,
    )


@pytest.mark.parametrize("units", LARGER)
def test_a_study_of_larger_units(llama: Model, units: Units) -> None:
    study = find(llama, units)
    geometry = llama.geometry.of(units)
    (found,) = study.result.capabilities.values()
    assert {head.head for head in found.heads} == {str(unit) for unit in geometry.heads}
    assert all(kind_of(head) == units for head in found.selected)
    # Counted are the model's heads, whatever is searched for.
    assert study.result.model.heads == 12
    assert f"--units {units}" in study.result.command
    assert Study.load("run").result == study.result
    name = {"kv-groups": "KV group", "attention-layers": "attention layer"}.get(units, "MLP layer")
    assert (
        name.lower() in (study.folder or Path()).joinpath("report.html").read_text("utf-8").lower()
    )
    assert summary(study.result, general=study.general, curves=study.curves, folder=None)
    done = export(llama, "edited", heads=[found.heads[0].head])
    assert done.difference < 1e-4
    assert name in Path("edited/README.md").read_text("utf-8")
    with pytest.raises(HeadsieveError, match="has units"):
        find(llama, "heads", resume=True)


@pytest.mark.parametrize("knockout", ["L1G0", "L1A", "L1M"])
def test_scores_without_larger_units(llama: Model, knockout: str) -> None:
    (one,) = score(llama, ["skill.json"], knockout=[knockout]).values()
    assert one.knocked_out is not None
    heads = {"L1G0": ["L1H0", "L1H1"], "L1A": [f"L1H{index}" for index in range(4)]}
    if knockout in heads:  # this model has no biases, so its heads are all there is
        (other,) = score(llama, ["skill.json"], knockout=heads[knockout]).values()
        assert other.knocked_out == one.knocked_out


def test_measurements_of_different_units_are_kept_apart(llama: Model) -> None:
    journal = Journal()
    found = {}
    for units in UNITS:
        model = llama.with_units(units)
        measurer = Measurer(model, SHORT, journal)
        masks = np.eye(1, len(model.geometry), dtype=bool)
        (alone,) = measurer.measure(masks, "answer")
        found[units] = (float(alone.log_prob.sum()), measurer.gradient("answer"))
    assert len({total for total, _ in found.values()}) == len(UNITS)
    assert [len(gradient) for _, gradient in found.values()] == [12, 6, 3, 3]
    # A group's gate is the gate of each of its heads.
    np.testing.assert_allclose(
        found["kv-groups"][1], found["heads"][1].reshape(6, 2).sum(axis=1), rtol=1e-4, atol=1e-5
    )


def test_more_units_than_there_are_cannot_be_found(llama: Model) -> None:
    with pytest.raises(HeadsieveError, match="3 MLP layers; no set has 4"):
        locate(llama, ["skill.json"], controls=["other.json"], heads=4, units="mlp-layers")
