"""Whole curves of private test rows: what is released, that it is paid for before, and that no row shows through."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import clipless
from clipless import row_independence
from clipless.certificates import certify
from clipless.curves.classes import class_change, null_of_hosmer_lemeshow
from clipless.curves.grid import Grid
from clipless.curves.release import change_of
from clipless.curves.toeplitz import SquareRoot
from clipless.curves.tree import Change
from clipless.datasets import Split, load
from clipless.errors import AccountingError
from clipless.privacy.accounting.claim import claim as price_claim
from clipless.privacy.events import Composed, PoissonGaussian, Relation
from clipless.testing import SeededSource
from sweeper.driver.options import Options
from sweeper.driver.recording.held_out_scores import score_front, spread
from sweeper.driver.runner import run_sweep
from sweeper.errors import SpecError
from sweeper.planning.make import make_score_noise, make_trial_settings
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.spending.filter import Filter
from sweeper.records import Point
from sweeper.results.front import read_front
from sweeper.specification.spec import Spec
from sweeper.trials.curves import release_curves, scores_of, temperature
from tests.clipless.factories import RecordingSource
from tests.factories import complete, draw_few_bands, make_recorder, make_run, make_spec, plan_sweep

READY = Path(__file__).parents[3] / "sweeps" / "private-curves.yaml"
EPOCHS, SIGMA, DELTA = 3, 2.0, 1e-3
CONTENT = {
    "name": "curves",
    "data": {"name": "breast_cancer", "evaluation": "private", "splits": {"validation": 0.2, "test": 0.3}},
    "model": {"architecture": "mlp", "width": 8},
    "training": {
        "epochs": EPOCHS,
        "batch_size": 128,
        "learning_rate": 0.05,
        "loss": {"name": "tau-cce", "temperature": 0.5},
    },
    "privacy": {"noise_multiplier": 2.0, "delta": DELTA, "score_noise": 5.0, "curve_noise": SIGMA},
    "search": {"objectives": ["epsilon", "accuracy"], "metrics": ["certified@0.5"], "trials": 1},
}


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    """Bands and nulls, which no test here measures, are simulated with few draws."""
    draw_few_bands(monkeypatch)
    monkeypatch.setattr("sweeper.trials.curves.null_of_hosmer_lemeshow", partial(null_of_hosmer_lemeshow, draws=20))


@pytest.fixture(scope="module")
def data():
    return load("breast_cancer", evaluation="private", splits=Spec.from_mapping(CONTENT).data_options(None)["splits"])


@pytest.fixture(scope="module")
def model(data):
    run = make_run(data, make_spec(CONTENT))
    list(run.epoch_rows())
    return run.model


@pytest.fixture
def finished(data, folder):
    """A recorder that has taken a whole trial."""
    spec = make_spec(CONTENT)
    kept, run = make_recorder(spec, data, folder), make_run(data, spec, folder)
    complete(kept, run, spec.space.resolve({}).to_json())
    yield spec, kept
    kept.records.close()


# --- one release


def whitened(mechanism, leaves, change, difference):
    """How many deviations of the mechanism's own noise a difference of counts is, its correlations included."""
    kind = mechanism.kind_for(leaves, change)
    if isinstance(kind, SquareRoot):
        spread_ = np.stack([kind.spread(unit) for unit in np.eye(leaves)], axis=1)
    else:
        sizes = kind.sizes()
        units = np.split(np.eye(sum(sizes)), np.cumsum(sizes)[:-1], axis=1)
        spread_ = np.stack([kind.path_sums([level[i] for level in units]) for i in range(sum(sizes))], axis=1)
    covariance = spread_ @ spread_.T * mechanism.noise_multiplier**2 * kind.gaussian_change(change)
    return float(difference @ np.linalg.solve(covariance, difference))


def exact_counts(monkeypatch, model, split, noise, data):
    """What the noise of the curves is added to, curve by curve."""
    seen = []
    counts = Grid.counts

    def watched(grid, values):
        found = counts(grid, values)
        seen.append(found)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(Grid, "counts", watched)
        patched.setattr("sweeper.trials.curves._recorded", lambda *_: None)  # bands and nulls of what is released
        release_curves(model, split, None, noise, data.metadata, temperature=0.5, source=SeededSource(0))
    return seen[0][:-1], seen[1], seen[2]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("relation", list(Relation))
def test_a_row_more_or_another_moves_all_curves_together_by_no_more_than_the_event_says(
    monkeypatch, model, data, relation
):
    """In deviations of the noise, correlations and all: the distance of neighbours is at most that of the event."""
    noise = make_score_noise(make_spec(CONTENT, privacy={"relation": relation.value}), data)
    rows, mechanism = data.test, noise.curves.mechanism
    before = exact_counts(monkeypatch, model, rows, noise, data)
    moved = 1.0 if relation is Relation.ADD_OR_REMOVE_ONE else 2.0
    changes = change_of(relation), class_change(relation), class_change(relation)
    worst = 0.0
    for row in range(0, len(rows), 9):
        if relation is Relation.ADD_OR_REMOVE_ONE:
            others = torch.arange(len(rows)) != row
            after = exact_counts(monkeypatch, model, Split(rows.x[others], rows.y[others]), noise, data)
        else:
            x, y = rows.x.clone(), rows.y.clone()
            x[row], y[row] = 9.0 * x[(row + 1) % len(rows)], 1 - y[row]
            after = exact_counts(monkeypatch, model, Split(x, y), noise, data)
        distance = sum(
            whitened(mechanism, len(first), change, first - second)
            for first, second, change in zip(before, after, changes, strict=True)
        )
        worst = max(worst, distance)
    assert worst <= (moved / SIGMA) ** 2 * (1.0 + 1e-6)
    assert worst > 0.2 * (moved / SIGMA) ** 2


@pytest.mark.usefixtures("exact_sums")
def test_every_curve_is_its_counts_with_noise_of_its_own(monkeypatch, model, data):
    noise = make_score_noise(make_spec(CONTENT), data)
    certified, positives, negatives = exact_counts(monkeypatch, model, data.test, noise, data)
    found = release_curves(model, data.test, None, noise, data.metadata, temperature=0.5, source=SeededSource(3))
    source, mechanism = SeededSource(3), noise.curves.mechanism
    mechanism.noise(len(certified), Change.ADDED, source)
    for counts, said in ((positives, found.scores.positives), (negatives, found.scores.negatives)):
        drawn = mechanism.noise(len(counts), Change.ADDED, source)
        np.testing.assert_allclose(said, counts + drawn, atol=0.006)
        assert np.abs(drawn).max() > 1.0


def test_without_noise_the_curves_are_the_scores_of_the_rows(monkeypatch, model, data):
    monkeypatch.setattr(
        "clipless.curves.release.Gaussian.noise", lambda _self, leaves, _change, _source: np.zeros(leaves)
    )
    noise = make_score_noise(make_spec(CONTENT), data)
    found = release_curves(model, data.test, None, noise, data.metadata, temperature=0.5)
    truth = clipless.evaluate(model, data.test, ["0.5"], data.metadata.input_gain)
    scores = scores_of(found, noise)
    assert scores.keys() == {"accuracy", "certified@0.5", "auroc"}
    assert scores["accuracy"] == pytest.approx(truth["accuracy"], abs=1e-5)
    assert scores["certified@0.5"] == pytest.approx(truth["certified@0.5"], abs=1e-5)
    assert scores["auroc"] == pytest.approx(truth["auroc"], abs=0.01)
    low, middle, high = found.scores.auroc
    assert low < middle < high
    with torch.no_grad():
        probabilities = torch.softmax(model(data.test.x).double() / 0.5, dim=1)[:, 1]
    rows = np.array(found.scores.group_rows)
    assert rows.sum() == len(data.test)
    assert np.dot(rows, found.scores.group_predicted) == pytest.approx(float(probabilities.sum()), rel=0.02)
    assert 0.0 <= found.scores.p_value <= 1.0


def test_a_radius_is_less_by_what_the_encoding_of_its_row_rounds(monkeypatch, model, data):
    monkeypatch.setattr(
        "clipless.curves.release.Gaussian.noise", lambda _self, leaves, _change, _source: np.zeros(leaves)
    )
    noise = make_score_noise(make_spec(CONTENT), data)
    assert release_curves(model, data.test, None, noise, data.metadata).certified[1] > 0.0
    monkeypatch.setattr("sweeper.trials.curves.encoding_error", lambda x, _: torch.full((len(x),), 1e3))
    assert release_curves(model, data.test, None, noise, data.metadata).certified[1] == 0.0


def test_a_row_at_a_radius_is_not_certified_there(monkeypatch, model, data):
    """An example is certified at r if its radius is greater than r."""
    monkeypatch.setattr(
        "clipless.curves.release.Gaussian.noise", lambda _self, leaves, _change, _source: np.zeros(leaves)
    )
    noise = make_score_noise(make_spec(CONTENT), data)
    at = noise.curves.radii[5]
    monkeypatch.setattr("sweeper.trials.curves.encoding_error", lambda x, _: torch.zeros(len(x), dtype=torch.float64))
    monkeypatch.setattr(
        "sweeper.trials.curves.certified_radii",
        lambda *_args, **_more: torch.full((len(data.test),), at * data.metadata.input_gain, dtype=torch.float64),
    )
    found = release_curves(model, data.test, None, noise, data.metadata)
    assert (found.certified[4], found.certified[5]) == (found.certified[0], 0.0)


def test_curves_without_declared_noise_are_refused(model, data):
    content = {**CONTENT, "privacy": {name: v for name, v in CONTENT["privacy"].items() if name != "curve_noise"}}
    noise = make_score_noise(Spec.from_mapping(content), data)
    with pytest.raises(AccountingError, match="Expected noise of curves, got none"):
        release_curves(model, data.test, None, noise, data.metadata)


def test_private_curves_are_of_rows_alone(model, data, monkeypatch):
    noise = make_score_noise(make_spec(CONTENT), data)
    expected = release_curves(model, data.test, None, noise, data.metadata, source=SeededSource(0))
    whole = certify._through
    monkeypatch.setattr(
        certify, "_through", lambda layers, x: whole(layers, x) if len(x) == 1 else whole(layers, x).roll(1, dims=0)
    )
    row_independence.forget()
    assert release_curves(model, data.test, None, noise, data.metadata, source=SeededSource(0)) == expected
    row_independence.forget()


def test_grids_do_not_depend_on_rows(data):
    spec = make_spec(CONTENT)
    poison = replace(data, test=Split(-data.test.x, 1 - data.test.y))
    first, second = (make_score_noise(spec, one).curves for one in (data, poison))
    assert first == second
    assert {0.0, 0.5, 1.0} <= set(first.radii)
    np.testing.assert_array_equal(first.probabilities.thresholds, second.probabilities.thresholds)
    plain = make_score_noise(make_spec(CONTENT, search={"metrics": []}), data).curves
    assert plain.radii[-1] == data.metadata.input_norm / data.metadata.input_gain


def test_more_classes_have_certified_accuracy_alone():
    digits = load("digits", evaluation="private")
    noise = make_score_noise(make_spec(CONTENT, data={"name": "digits"}), digits)
    assert not noise.curves.two_classes
    assert noise.curves.mechanism.noise_multiplier == SIGMA  # all of it


def test_the_temperature_is_that_of_the_loss():
    assert temperature({"training": {"loss": {"name": "tau-cce", "temperature": 0.25}}}) == 0.25
    assert temperature({"training": {"loss": {"name": "multiclass-hinge"}}}) == 1.0


# --- the ledger


def entered(folder):
    return [row for row in map(json.loads, folder.ledger.read_text().splitlines()) if row["record"] == "test"]


def test_a_release_is_in_the_ledger_before_any_of_its_noise_is_drawn(data, folder, finished, monkeypatch):
    spec, kept = finished
    seen = []

    class Watching(RecordingSource):
        def normal(self, count, device="cpu"):
            seen.append(len(entered(folder)))
            return super().normal(count, device)

    monkeypatch.setattr("sweeper.trials.curves.SecureSource", lambda: Watching(0))
    points = len(kept.records.archive.points)
    assert list(score_front(make_trial_settings(spec, data), data, folder, kept, lambda: False)) == []
    assert sorted(set(seen)) == list(range(1, points + 1))  # each draw of the n-th point after the n-th row
    events = [PoissonGaussian.from_json(row["scores"]["event"]) for row in entered(folder)]
    assert {(event.noise_multiplier, event.steps, event.sampling_rate) for event in events} == {(SIGMA, 1, 1.0)}
    alone = price_claim(Composed(tuple(events)), DELTA).epsilon
    assert kept.front().ledger["everything"].epsilon >= alone * 0.999


def test_curves_that_are_written_down_are_not_drawn_again(data, folder, finished, monkeypatch):
    spec, kept = finished
    assert list(score_front(make_trial_settings(spec, data), data, folder, kept, lambda: False)) == []
    kept.records.close()
    written = folder.points()
    monkeypatch.setattr(
        "sweeper.driver.recording.held_out_scores.release_curves", lambda *_, **__: pytest.fail("drawn again")
    )
    again = make_recorder(spec, data, folder)
    assert list(score_front(make_trial_settings(spec, data), data, folder, again, lambda: False)) == []
    assert {key: point.curves for key, point in again.records.points.items()} == {
        key: point.curves for key, point in written.items()
    }
    again.records.close()


def test_killed_between_its_row_in_the_ledger_and_its_noise_a_release_is_paid_for_again(
    data, folder, finished, monkeypatch
):
    spec, kept = finished
    count = len(kept.records.archive.points)

    def killed(*_args, **_more):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("sweeper.driver.recording.held_out_scores.release_curves", killed)
        with pytest.raises(KeyboardInterrupt):
            list(score_front(make_trial_settings(spec, data), data, folder, kept, lambda: False))
    assert len(entered(folder)) == 1
    kept.records.close()
    again = make_recorder(spec, data, folder)
    assert list(score_front(make_trial_settings(spec, data), data, folder, again, lambda: False)) == []
    assert len(entered(folder)) == count + 1
    charged = Ledger(folder.ledger)._charges.charged.test
    assert sum(event.steps for event in charged) == count + 1
    again.records.close()


def test_a_release_beyond_the_budget_draws_nothing(data, folder, finished, monkeypatch):
    spec, kept = finished
    source = RecordingSource(0)
    monkeypatch.setattr("sweeper.trials.curves.SecureSource", lambda: source)
    kept.spending._ledger._charges.budget = Filter(epsilon=0.5, delta=DELTA)
    troubles = list(score_front(make_trial_settings(spec, data), data, folder, kept, lambda: False))
    assert len(troubles) == len(kept.records.archive.points)
    assert "has no room for it" in troubles[0]
    assert entered(folder) == source.normals == []


def test_a_ledger_that_cannot_be_written_lets_nothing_be_drawn(data, folder, finished, monkeypatch):
    spec, kept = finished

    def full(*_args):
        raise OSError("disk full")

    monkeypatch.setattr(kept.spending._ledger._file, "append", full)
    monkeypatch.setattr(
        "sweeper.driver.recording.held_out_scores.release_curves", lambda *_, **__: pytest.fail("drawn")
    )
    with pytest.raises(OSError, match="disk full"):
        list(score_front(make_trial_settings(spec, data), data, folder, kept, lambda: False))


def test_exact_scores_are_in_no_record(data, folder, finished):
    spec, kept = finished
    list(score_front(make_trial_settings(spec, data), data, folder, kept, lambda: False))
    kept.records.close()
    written = (folder.path / "points.jsonl").read_text()
    for point in folder.points().values():
        if point.curves is not None:
            assert point.test["accuracy"] == point.curves.certified[0]
            model = clipless.load(folder.path / point.model)
            truth = clipless.evaluate(model, data.test, ["0.5"], data.metadata.input_gain)
            areas = [value for name, value in truth.items() if "auroc" in name]  # shares of rows may be met by chance
            assert len(areas) == 2
            assert not any(repr(value) in written for value in areas)
            assert point.classes is None


# --- within a budget


def budget_of(**changes):
    training = {"epochs": EPOCHS, "batch_size": 128, "learning_rate": {"log": [0.01, 0.1]}}
    privacy = {"sweep_epsilon": 6.0, "delta": DELTA, "score_noise": 8.0, "curve_noise": 1.2} | changes
    return Spec.from_mapping({**CONTENT, "training": training, "privacy": privacy, "search": {"trials": 4}})


def test_a_budget_in_slots_says_beforehand_how_many_points_have_curves(data):
    budget = plan_sweep(budget_of(), data).spending
    assert budget.tests.event.noise_multiplier == 1.2
    assert budget.price <= 6.0
    spent = budget.tests.event
    assert spent.steps < 3 + EPOCHS  # noise decides, not the number of trials
    assert price_claim(spent, DELTA).epsilon <= 6.0 < price_claim(spent.with_steps(spent.steps + 1), DELTA).epsilon
    assert budget.scores.event.noise_multiplier == 8.0


def test_noise_that_does_not_fit_once_is_refused_before_anything_is_trained(data):
    with pytest.raises(SpecError, match=r"Expected noise with which the test scores or curves of one .*curve_noise"):
        plan_sweep(budget_of(curve_noise=0.1), data)


def test_points_beyond_the_slots_have_no_curves_and_the_others_are_spread_over_the_front(data, folder, finished):
    spec, kept = finished
    points = [
        Point(trial="t0001", epoch=epoch, values={"epsilon": float(epoch), "accuracy": 0.1 * epoch})
        for epoch in range(1, 10)
    ]
    order = [point.epoch for point in spread(points)]
    assert order[:3] == [1, 9, 5]
    assert sorted(order) == list(range(1, 10))
    assert [len(spread(points[:count])) for count in range(3)] == [0, 1, 2]
    budget = plan_sweep(budget_of(), data).spending
    tests = replace(budget.tests, event=budget.tests.event.with_steps(1))
    kept.spending._ledger._charges.budget = replace(budget, tests=tests)
    troubles = list(score_front(make_trial_settings(spec, data), data, folder, kept, lambda: False))
    scored = [point for point in kept.records.points.values() if point.curves is not None]
    assert len(scored) == len(entered(folder)) == 1
    assert len(troubles) == len(kept.records.archive.points) - 1
    assert all("the 1 releases of scores of private test rows in the budget are taken" in one for one in troubles)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.usefixtures("in_process", "untracked")
def test_the_whole_front_of_the_ready_spec_leaves_with_its_curves_at_the_stated_epsilon(tmp_path):
    """One command; an audit of the ledger's rows alone, without what wrote them, finds no more than that."""
    ended = run_sweep(Spec.from_yaml(READY), Options(out=tmp_path))
    folder, spec = ended.sweep.folder, Spec.from_yaml(READY)
    front = read_front(folder.front)
    assert front.front_points
    assert all(point.curves is not None and point.curves.rows > 500 for point in front.front_points)
    stated = front.ledger["everything"].epsilon
    assert stated <= spec.privacy.sweep_epsilon
    rows = list(map(json.loads, folder.ledger.read_text().splitlines()))
    trainings = [PoissonGaussian.from_json(row["event"]) for row in rows if row["record"] == "open"]
    scores = [PoissonGaussian.from_json(row["scores"]["event"]) for row in rows if row["record"] == "open"]
    curves = [PoissonGaussian.from_json(row["scores"]["event"]) for row in rows if row["record"] == "test"]
    assert len(curves) == len(front.front_points)
    assert len(trainings) == spec.trials
    for split in (trainings, scores, curves):
        assert price_claim(Composed(tuple(split)), spec.privacy.delta).epsilon <= stated
    report = (folder.path / "front.html").read_text(encoding="utf-8")
    assert "Certified accuracy at every radius" in report
    assert "<h2>ROC curves of private test rows" not in report  # of ten classes
    card = ended.sweep.pick().card
    assert card.to_json()["curves"]["noise_multiplier"] == spec.privacy.curve_noise
    assert "Each lies between its bounds everywhere at once with a confidence of 95 %" in card.to_markdown()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("size", [1, 2, 8, 9, 60])
def test_a_unit_with_all_its_rows_moves_the_curves_no_further_than_a_row(monkeypatch, model, data, relation, size):
    noise = make_score_noise(make_spec(CONTENT, privacy={"relation": relation.value}), data)
    rows, mechanism = data.test, noise.curves.mechanism
    others = len(rows.y) - size
    offsets = torch.tensor([*range(0, others, 3), others])
    without = Split(rows.x[:others], rows.y[:others], offsets)
    unit = Split(rows.x, rows.y, torch.cat([offsets, offsets.new_tensor([len(rows.y)])]))
    other = Split(rows.x[[*range(others), 0]], rows.y[[*range(others), 0]], torch.cat([offsets, offsets[-1:] + 1]))
    neighbour = without if relation is Relation.ADD_OR_REMOVE_ONE else other
    moved = 1.0 if relation is Relation.ADD_OR_REMOVE_ONE else 2.0
    before, after = (exact_counts(monkeypatch, model, one, noise, data) for one in (neighbour, unit))
    changes = change_of(relation), class_change(relation), class_change(relation)
    distance = sum(
        whitened(mechanism, len(first), change, first - second)
        for first, second, change in zip(before, after, changes, strict=True)
    )
    assert distance <= (moved / SIGMA) ** 2 * (1.0 + 1e-6)
    certified, positives, negatives = after
    assert positives[-1] + negatives[-1] == len(unit)
    assert certified[-1] <= len(unit)
