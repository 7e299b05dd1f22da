"""The benchmark of sample efficiency, on sizes that take no time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from efficiency import bank, simulation
from efficiency.compare import answered, compare
from efficiency.measures import Truth, calibrate, mean_and_error
from efficiency.methods import available
from efficiency.simulation import CAPABILITY, Case, SimulatedModel
from headsieve.scores import Score
from headsieve.sensing import recovery
from headsieve.sensing.problem import GradientQuestion, Masks, Question, to_masks
from headsieve.sensing.recovery import Effects
from sample_efficiency import main

SMALL = Case(heads=40, mattering=5, controls=2, general=2, backups=1, items=20, strongest=6.0)


def test_a_mask_always_gets_the_same_score_and_the_unmodified_model_has_no_noise() -> None:
    model = SimulatedModel(SMALL, seed=1)
    masks = to_masks([(), (3, 4)], 40)
    once, again = (SimulatedModel(SMALL, 1).scores(CAPABILITY, masks) for _ in range(2))
    assert np.array_equal(once[1].margin, again[1].margin)
    quiet = model.scores(CAPABILITY, masks, noisy=False)
    assert np.array_equal(once[0].margin, quiet[0].margin)
    assert not np.array_equal(once[1].margin, quiet[1].margin)


def test_effects_saturate() -> None:
    model = SimulatedModel(SMALL, seed=0)
    everything = model.scores(CAPABILITY, np.ones((1, 40), bool), noisy=False)[0].margin
    nothing = model.scores(CAPABILITY, np.zeros((1, 40), bool), noisy=False)[0].margin
    assert (nothing - everything < SMALL.most).all()


def test_a_general_head_costs_the_capability_much_and_is_hardly_selective() -> None:
    model = SimulatedModel(SMALL, seed=0)
    truth = model.truth()
    general = model._planted[: SMALL.general]
    assert (truth.effect[general] < -1).all()
    assert (truth.selective[general] > 0.5 * truth.effect[general]).all()


def test_a_backup_hides_a_head() -> None:
    hidden = SimulatedModel(SMALL, seed=0)
    main_head = hidden._planted[hidden._backed[0]]
    backup = hidden._planted[hidden._backups[0]]
    masks = to_masks([(), (main_head,), (backup,), tuple(sorted((main_head, backup)))], 40)
    base, one, other, both = (
        score.search for score in hidden.scores(CAPABILITY, masks, noisy=False)
    )
    assert base - other == pytest.approx(0, abs=1e-9)
    assert base - both > 2 * (base - one)


def test_kept_and_recall_are_shares_of_the_best() -> None:
    selective = np.array([-5.0, -1.0, -2.0, -3.0, -4.0, -1.5, 0.1])
    truth = Truth(selective, selective)
    assert truth.kept((0, 4, 3, 2, 5)) == 1
    assert truth.kept((0, 6)) == pytest.approx(5 / 15.5)
    assert truth.recall((0, 1, 4)) == 0.4


def test_calibration_counts_what_is_covered_and_what_is_false() -> None:
    truth = Truth(np.array([-1.0, 0.0, 0.0]), np.array([-1.0, 0.0, 0.0]))
    low, high = np.array([-1.2, 0.1, -0.1]), np.array([-0.8, 0.2, 0.1])
    effects = Effects(truth.effect, low, high, np.array([1.0, 0.95, 0.1]), truth.effect, ())
    counted = calibrate(effects, truth)
    assert (counted.covered, counted.intervals) == (2, 3)
    assert (counted.false, counted.certain) == (1, 2)


def test_errors_are_those_of_a_mean() -> None:
    mean, error = mean_and_error([1.0, 3.0])
    assert (mean, error) == pytest.approx((2.0, 1.0))
    assert mean_and_error([1.0, float("nan")]) == (1.0, 0.0)


@pytest.mark.parametrize(
    "name",
    [
        *("adaptive", "exhaustive", "random", "paper", "paper-bernoulli"),
        *("lasso-cv", "matching-pursuit", "ridge"),
    ],
)
def test_a_method_ranks_heads_within_its_budget(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "RESAMPLINGS", 4)
    method = available()[0][name]
    runs = compare("small", lambda seed: SimulatedModel(SMALL, seed), {name: method}, [50], [0])
    ((_budget, (run,)),) = runs.runs[name].items()
    assert run.evaluations <= 50
    assert 0 <= run.kept <= 1
    if name in ("adaptive", "exhaustive", "lasso-cv"):
        assert run.kept > 0.5


def test_coalitions_of_shapiq_are_asked_once_and_ranked() -> None:
    pytest.importorskip("shapiq")
    method = available()[0]["kernel-shap"]
    model = SimulatedModel(SMALL, seed=0)
    ranking = answered(method, model.problem(60), model)
    assert ranking.evaluations <= 60
    assert len(set(ranking.top)) == 5


def test_the_script_prints_json_of_what_was_chosen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cases = {"growth-40": SMALL, "growth-60": replace(SMALL, heads=60)}
    monkeypatch.setattr(simulation, "CASES", cases)
    figure = tmp_path / "figure.png"
    words = ["--cases", "growth-40,growth-60", "--methods", "random", "ridge"]
    numbers = ["--budgets", "20", "30", "--seeds", "1", "--bank", str(tmp_path / "none.npz")]
    assert main([*words, *numbers, "--json", "--figure", str(figure)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"real", "simulated", "calibration"}
    curve = found["simulated"]["growth-40"]["random"]
    assert curve["evaluations"] == [20, 30]
    assert len(curve["kept"]) == len(curve["standard_error"]) == 2
    assert figure.stat().st_size > 1000
    assert main([*words, *numbers]) == 0
    assert "| random | 20 |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--methods", "guess"], "There is no method 'guess'"),
        (["--cases", "none"], "There is no case 'none'"),
        (["--budgets", "many"], "Budgets must be whole numbers"),
    ],
)
def test_what_cannot_be_done_is_told(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([*words, "--bank", str(tmp_path / "none.npz")]) == 2
    assert message in capsys.readouterr().err


def test_a_bank_gives_back_what_was_measured_and_measures_the_rest(tmp_path: Path) -> None:
    simulated = SimulatedModel(SMALL, seed=0)
    tasks = [CAPABILITY, "control 1"]
    measured: list[int] = []

    def search(masks: Masks, task: str) -> list[Score]:
        measured.append(len(masks))
        return simulated.scores(task, masks)

    def gradient(task: str) -> NDArray[np.float64]:
        asked.append(task)
        return np.arange(40.0)

    asked: list[str] = []
    one = bank.MeasuredModel(bank.Bank(40), search, gradient, CAPABILITY, tasks, 0)
    truth = one.truth()
    assert measured == [41, 41]
    one.answer(GradientQuestion((CAPABILITY,)))
    one.bank.save(tmp_path / "bank.npz")
    again = bank.MeasuredModel(
        bank.Bank.load(tmp_path / "bank.npz"), search, gradient, CAPABILITY, tasks, 0
    )
    assert np.allclose(again.truth().effect, truth.effect, atol=5e-3)
    assert measured == [41, 41]
    found = again.answer(GradientQuestion((CAPABILITY,)))[CAPABILITY]
    assert np.array_equal(np.asarray(found), np.arange(40.0))
    assert asked == [CAPABILITY]
    again.answer(Question(to_masks([(), (1,), (1, 2)], 40), (CAPABILITY,)))
    assert measured == [41, 41, 1]


def test_a_damaged_bank_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bank.npz"
    path.write_bytes(b"nothing of the kind")
    assert main(["--bank", str(path)]) == 2
    assert "is not a bank of measured masks" in capsys.readouterr().err


def test_the_bank_replays_without_the_model(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_model(_folder: Path) -> None:
        raise AssertionError("the model is loaded")

    monkeypatch.setattr(bank, "_live", no_model)
    options = ["--cases", "antonym", "--budgets", "30", "--seeds", "1", "--json"]
    assert main([*options, "--methods", "adaptive", "attribution", "paper", "exhaustive"]) == 0
    found = json.loads(capsys.readouterr().out)["real"]["antonym"]
    assert found["exhaustive"]["kept"] == [1.0]
    assert found["exhaustive"]["evaluations"] == [271]
    assert found["paper"]["kept"][0] < found["attribution"]["kept"][0]
    assert found["adaptive"]["evaluations"] == [30]
