"""Commands on a sweep that is there, as functions."""

import warnings

import pandas as pd
import pytest

import clipless
import sweeper
from sweeper.audits import sweep_audit
from sweeper.errors import RecordError
from sweeper.results.comparison import ComparisonError
from sweeper.store.notes import read_notes
from sweeper.store.requests import steered
from tests.factories import make_evidence

pytestmark = pytest.mark.slow


@pytest.fixture
def levels(digits):
    """Images of digits as a camera has them."""
    return (digits.test.x[:3, 0] * 16).round().numpy().astype("uint8")


def test_what_is_asked_of_a_sweep_is_refused_as_by_the_commands(sweep_copy):
    sweep = sweeper.load(sweep_copy)
    with pytest.raises(RecordError, match=r"^Nothing to stop: .* has ended, it is completed$"):
        sweeper.stop(sweep)
    with pytest.raises(sweeper.errors.SpecError, match=r"training\.width"):
        sweeper.enqueue(sweep, {"training.width": 3})
    with pytest.raises(RecordError, match=r"the 3 trials of .*, got trials=1; .* in all: for 1 more, trials=4"):
        sweeper.extend(sweep, 1)
    with pytest.warns(UserWarning, match="does not run: the configuration waits for sweeper.resume or extend"):
        assert sweeper.enqueue(sweep_copy, {"training.learning_rate": 0.05}) == {"training.learning_rate": 0.05}
    with pytest.warns(UserWarning, match="does not run: the search goes there after sweeper.resume or extend"):
        assert sweeper.steer(sweep, "accuracy >= 0.5") == steered(sweep_copy) == ("accuracy >= 0.5",)


def test_predictions_of_a_sweep_of_its_folder_and_of_what_is_picked_are_alike(ran, levels):
    sweep = sweeper.load(ran.folder)
    frames = [sweeper.predict(model, levels) for model in (ran.folder, sweep, sweep.pick())]
    for frame in frames:
        pd.testing.assert_frame_equal(frame, frames[0])
    assert len(frames[0]) == 3
    for error in (sweeper.SweeperError, clipless.errors.DataError):
        with pytest.raises(error, match="got columns"):
            sweeper.predict(sweep, pd.DataFrame({"a": [1]}))
    with pytest.raises(sweeper.InputError, match=r"got float64 \(3, 8, 8\) with values up to 200\.0"):
        sweeper.predict(sweep, levels * 0 + 200.0)
    with pytest.raises(RecordError, match="Expected a column 'b' to keep"):
        sweeper.predict(sweep, pd.DataFrame({"a": [1]}), ids=["b"])


def test_sweeps_are_listed_noted_tagged_and_a_picked_one_is_verified(sweep_copy, tmp_path):
    sweep = sweeper.load(sweep_copy)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        sweeper.note(sweep, "t0001", "looks  good")
        sweeper.tag(sweep_copy, "t0001", "reviewed", "yes")
    assert all("Kept in the sweep's folder; " in str(one.message) for one in said)
    kept = read_notes(sweep_copy)["t0001"]
    assert [one.text for one in kept.texts] == ["looks good"]
    with pytest.raises(RecordError, match="Expected a trial of"):
        sweeper.note(sweep, "t0099", "no such trial")
    (row,) = sweeper.list(sweep_copy.parent).to_dict("records")
    front = sweep.front()
    assert (row["sweep"], row["status"], row["trials"]) == (str(sweep_copy), "completed", 3)
    assert row["price"] == front.price.epsilon
    found = max(front.front_points, key=lambda point: point.values[row["objective"]])
    assert (row["best"], row["rows"]) == (found.test[row["objective"]], "test"), "which the console lists too"
    assert row["best_low"] < row["best"] < row["best_high"]
    assert sweeper.list(tmp_path / "nothing").empty
    picked = tmp_path / "picked"
    sweep.pick().write(picked)
    assert sweeper.verify(picked).holds.all()
    (picked / "config.json").write_text("{}")
    found = sweeper.verify(picked)
    assert not found.holds.all()
    assert found.found.str.len().min() > 0
    with pytest.raises(RecordError, match="key"):
        sweeper.verify(picked, key="xyz")


def test_an_audit_is_a_table_and_refuses_what_it_contradicts(sweep_copy, monkeypatch):
    told = []

    def audit_sweep(folder, point, *, effort, price, tell):
        told.append((folder, point, effort, price))
        tell("the price cannot be attacked")
        return (make_evidence(),)

    monkeypatch.setattr(sweep_audit, "audit_sweep", audit_sweep)
    monkeypatch.setattr(sweep_audit, "rewrite", lambda folder: [f"{folder} was written again"])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        frame = sweeper.audit(sweep_copy, "t0001", price=False)
    assert [str(one.message) for one in said] == ["the price cannot be attacked", f"{sweep_copy} was written again"]
    assert told == [(sweep_copy, "t0001", clipless.audits.audited_training.Effort.CHEAP, False)]
    assert frame.to_dict("records")[0]["contradicted"]
    assert frame["attained"].tolist() == [4.0]


def test_sweeps_are_compared_as_objects_folders_or_labelled_fronts(ran, sweep_copy):
    other = sweep_copy
    found = sweeper.compare(sweeper.load(ran.folder), other)
    assert [run.label for run in found.runs] == [str(ran.folder), str(other)]
    pairs = [("a", sweeper.load(ran.folder).front()), ("b", sweeper.load(other).front())]
    assert [run.hypervolume for run in sweeper.compare(pairs).runs] == [run.hypervolume for run in found.runs]
    assert [run.label for run in sweeper.compare(*pairs, anyway=True).runs] == ["a", "b"]
    with pytest.raises(ComparisonError, match="Expected at least two different sweeps, got 1"):
        sweeper.compare(ran.folder)
    with pytest.raises(ComparisonError, match=r"or pairs of a label and a front, got Front; for a front alone give"):
        sweeper.compare(pairs[0][1], pairs[1][1])


def test_a_model_is_registered_as_it_is_picked(ran, monkeypatch):
    taken = []
    monkeypatch.setattr("sweeper.results.models.registry.register", lambda picked, *_, **__: taken.append(picked))
    sweep = sweeper.load(ran.folder)
    sweeper.register(sweep.pick(), "digits")
    sweeper.register(ran.folder, "digits", minimum={"accuracy": 0.0})
    assert [picked.point for picked in taken] == [sweep.pick().point] * 2
