"""Sweeps whose validation and test rows are private: what leaves, how noisy it is, and that all of it is charged.

Exact scores are searched for in whatever is written; noise is counted at its source, not where it is said to be drawn.
"""

import json
import struct
from dataclasses import replace
from fractions import Fraction
from math import isclose, sqrt
from pathlib import Path

import pytest
import ray
import torch

import clipless
from clipless.certificates.certify import float64_features
from clipless.certificates.outputs import Outputs
from clipless.datasets import Evaluation, Split, load
from clipless.privacy.events import Relation
from clipless.privacy.noisy_counts import scores_event
from dashboards.data import read as read_sweep
from sweeper.adapters import dump
from sweeper.driver.options import Options
from sweeper.driver.recording.held_out_scores import score_front
from sweeper.driver.runner import run_sweep
from sweeper.errors import SpecError
from sweeper.planning.make import make_score_noise, make_trial_settings
from sweeper.privacy.evaluation.paid_scores import planned_scores, spread_epochs
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.spending.filter import Filter
from sweeper.records import SweepStatus, TrialStatus
from sweeper.specification.spec import Spec
from sweeper.trials.scores import answers_of_rows
from sweeper.trials.stream import row_from_text, row_to_text
from sweeper.trials.trial import TrialRun
from tests.clipless.factories import RecordingSource
from tests.factories import FakeTracker, begin, complete, make_recorder, make_run, make_spec, small_content

pytestmark = pytest.mark.slow

EPOCHS, SIGMA, DELTA = 4, 20.0, 1e-4
NAMES = ("accuracy", "certified@1/4", "certified@1/2")
CONTENT = small_content(
    data={"evaluation": "private"},
    training={"epochs": EPOCHS, "sensitivity_fraction": 0.1},
    privacy={"noise_multiplier": 1.0, "delta": DELTA, "score_noise": SIGMA},
    search={"objectives": ["epsilon", "accuracy", "certified@1/4"], "metrics": ["certified@1/2"], "trials": 1},
)


@pytest.fixture(scope="module")
def digits():
    return load("digits", evaluation="private")


def released(source):
    """How many vectors of scores were drawn, told by their length: no parameter has so few entries."""
    return sum(len(noise) == len(NAMES) for noise in source.normals)


def exact(model, rows, gain):
    hits_BM = answers_of_rows(Outputs.of(model, rows), rows, NAMES, gain)
    return dict(zip(NAMES, hits_BM.double().mean(dim=0).tolist(), strict=True))


def traces(value):
    """How a number looks in texts and in binary columns."""
    texts = {repr(value), f"{value:.12g}", f"{value:.9g}", f"{value:.7g}"}
    return [*(text.encode() for text in texts if len(text) > 7), struct.pack(">d", value), struct.pack("<d", value)]


def all_bytes(path):
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


# --- a trial


@pytest.mark.usefixtures("exact_sums")
def test_every_score_of_an_epoch_is_its_count_with_the_declared_noise(digits):
    spec, source = make_spec(CONTENT), RecordingSource(3)
    run = make_run(digits, spec, source=source)
    gain, std = digits.metadata.input_gain, make_score_noise(spec, digits).stds["validation"]
    assert std == pytest.approx(SIGMA * sqrt(3) / 2 / len(digits.validation))
    for row in run.epoch_rows():
        truth = exact(run.model, digits.validation, gain)
        noise = dict(zip(NAMES, source.normals[-1].tolist(), strict=True))
        for name in NAMES:
            assert row.values[name] == pytest.approx(truth[name] + std * noise[name], abs=1e-6)
            assert row.values[name] != truth[name]
    assert released(source) == EPOCHS


def test_epochs_that_the_plan_does_not_name_release_nothing(digits):
    """Their rows have the epsilon alone, and no noise was drawn for scores."""
    source = RecordingSource(3)
    run = make_run(digits, make_spec(CONTENT), source=source, most_scores=2)
    scored = run.plan_row().plan.scores.epochs
    rows = list(run.epoch_rows())
    assert scored == spread_epochs(EPOCHS, 2) == (1, EPOCHS)
    assert [row.epoch for row in rows if set(row.values) == {"epsilon"}] == [2, 3]
    assert all(row.model is None for row in rows if row.epoch not in scored)
    assert planned_scores(run.plan_row().plan).event.steps == released(source) == 2


@pytest.mark.long
@pytest.mark.usefixtures("in_process")
def test_a_sweep_in_slots_scores_the_ends_of_explorers_and_chosen_epochs_of_finals(tmp_path):
    content = CONTENT | {
        "training": CONTENT["training"] | {"learning_rate": {"log": [0.02, 0.1]}},
        "privacy": {"sweep_epsilon": 8.0, "delta": DELTA, "final_scores": 2},
        "search": {"objectives": ["epsilon", "accuracy"], "trials": 3},
    }
    ended = run_sweep(Spec.from_mapping(content), Options(out=tmp_path / "out"))
    front, folder = ended.front, ended.sweep.folder
    assert sorted((point.trial, point.epoch) for point in front.points) == [
        ("t0001", EPOCHS),
        ("t0002", EPOCHS),
        ("t0003", 1),
        ("t0003", EPOCHS),
    ]
    assert all(point.interval("accuracy") is not None for point in front.points)
    finals = [point for point in front.points if point.trial == "t0003"]
    assert all(point.is_final and (folder.path / str(point.model)).is_file() for point in finals)
    most = max(point.interval("accuracy")[1] for point in finals)
    is_beaten = any(point.interval("accuracy")[0] > most for point in front.points if not point.is_final)
    assert is_beaten or any(point.key in front.on_front for point in finals)
    assert all(point.test_interval("accuracy") is not None for point in front.front_points if point.is_final)
    rows = [json.loads(line) for line in folder.ledger.read_text().splitlines()]
    assert sum(row["scores"]["event"]["steps"] for row in rows if row["record"] == "open") == 4
    assert front.price.epsilon <= 8.0
    folder.write_manifest(replace(folder.read_manifest(), status=SweepStatus.RUNNING))
    pages = read_sweep(folder.path)  # as the report is drawn, before the sweep is said to have ended
    assert {point.key for point in pages.points} == {point.key for point in front.points}
    assert all(point.interval("accuracy") is not None for point in pages.points)


@pytest.mark.long
def test_the_noise_of_the_scores_has_the_declared_deviation(digits):
    """Many releases of one untrained model, whose exact scores are far from 0 and 1."""
    spec = make_spec(CONTENT, privacy={"score_noise": 5.0})
    run = make_run(digits, spec, source=RecordingSource(1))
    rows, features = digits.validation, float64_features(run.model, digits.validation.x)
    y = run.model(rows.x).argmax(dim=1)
    y[::2] = (y[::2] + 1) % 10  # half of the rows are decided correctly
    rows = Split(rows.x, y)
    found = torch.tensor([run._score(run.model, rows, features)["accuracy"] for _ in range(400)])
    std = make_score_noise(spec, digits).stds["validation"]
    assert float(found.std()) == pytest.approx(std, rel=0.15)
    assert float(found.mean()) == pytest.approx(exact(run.model, rows, 1.0)["accuracy"], abs=4 * std / 20)


def test_a_neighbouring_validation_set_moves_what_the_noise_is_added_to_by_no_more_than_the_sensitivity(digits):
    """Same source, one row less: the released vectors differ by sqrt(m)/2 counts at most, and in no other way."""
    spec = make_spec(CONTENT, privacy={"score_noise": 1.0})
    noise = make_score_noise(spec, digits)
    rows, worst = digits.validation, 0.0
    for left_out in (0, 17, len(rows) - 1):
        others = torch.arange(len(rows)) != left_out
        less = replace(digits, validation=Split(rows.x[others], rows.y[others]))
        vectors = []
        for data in (digits, less):
            run = make_run(data, spec, source=RecordingSource(5), noise=noise)
            vectors.append([[row.values[name] for name in NAMES] for row in run.epoch_rows()])
        moved = (torch.tensor(vectors[0]) - torch.tensor(vectors[1])) * len(rows)
        worst = max(worst, float(moved.double().norm(dim=1).max()))
        assert worst <= sqrt(3) / 2 * (1 + 1e-4)
    assert worst > 0.9 * sqrt(3) / 2


def test_scores_by_class_of_an_epoch_are_one_release(digits):
    spec = make_spec(CONTENT, training={"epochs": 2}, search={"objectives": ["epsilon", "balanced_accuracy"]})
    noise, source = make_score_noise(spec, digits), RecordingSource(5)
    run = make_run(digits, spec, source=source, noise=noise)
    rows = list(run.epoch_rows())
    drawn = sum(len(normals) == noise.form.numbers for normals in source.normals)
    assert drawn == planned_scores(run.plan_row().plan).event.steps == 2
    assert {"balanced_accuracy", "recall@9"} < rows[0].errors.keys() == rows[0].values.keys() - {"epsilon"}
    assert row_from_text(row_to_text(rows[0])) == rows[0]


def test_validation_rows_move_nothing_of_a_trial_but_through_released_scores(digits):
    """Whatever the rows are, the noise drawn and the weights are the same: scores are all that they decide."""
    spec, count = make_spec(CONTENT), len(digits.validation)
    poison = Split(torch.full((count, 1, 8, 8), 0.5), torch.zeros(count, dtype=torch.int64))
    runs = []
    for data in (digits, replace(digits, validation=poison)):
        source = RecordingSource(2)
        run = make_run(data, spec, source=source)
        rows = list(run.epoch_rows())
        runs.append((source.normals, [p.detach().clone() for p in run.model.parameters()], rows, run.plan_row()))
    for first, second in zip(runs[0][0] + runs[0][1], runs[1][0] + runs[1][1], strict=True):
        assert torch.equal(first, second)
    assert runs[0][3].plan == runs[1][3].plan
    assert [row.values.keys() for row in runs[0][2]] == [row.values.keys() for row in runs[1][2]]


def test_a_certified_accuracy_above_the_accuracy_stops_nothing(digits):
    """At such noise the order of scores is that of the noise."""
    rows = list(
        make_run(digits, make_spec(CONTENT, privacy={"score_noise": 1e5}), source=RecordingSource(8)).epoch_rows()
    )
    assert [row.epoch for row in rows] == list(range(1, EPOCHS + 1))
    assert any(row.values["certified@1/4"] > row.values["accuracy"] for row in rows)


def test_a_trial_on_private_rows_without_noise_is_refused(digits):
    spec = make_spec(CONTENT)
    given = {"config": spec.space.resolve({}), "data": digits, "objectives": spec.objectives, "seed": 0}
    with pytest.raises(SpecError, match="Expected noise for scores of the private rows of digits"):
        TrialRun(trial="t0001", **given)


def test_the_plan_says_what_scores_are_released_and_how_noisy_they_are(digits):
    spec, source = make_spec(CONTENT), RecordingSource(0)
    row = make_run(digits, spec, source=source).plan_row()
    assert dump(row.plan)["scores"] == make_score_noise(spec, digits).plan(range(1, EPOCHS + 1))
    assert (row.scores_kept, source.normals) == (0, [])
    public = load("digits")
    free = Spec.from_mapping(
        CONTENT | {"data": {"name": "digits"}, "privacy": {"noise_multiplier": 1.0, "delta": 1e-4}}
    )
    row = make_run(public, free, source=source).plan_row()
    assert (row.plan.scores, row.scores_kept) == (None, 0)
    assert "scores" not in dump(row.plan)


# --- kills


def take(kept, rows, count):
    """Let the driver take so many rows of a trial."""
    for _ in range(count):
        kept.on_epoch("t0001", next(rows))


def charged(folder):
    return [event.steps for entry in Ledger(folder.ledger).entries() for event in entry.charged_scores]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("repeats", [1, 2])
def test_scores_that_were_lost_with_a_process_are_drawn_and_charged_again(digits, folder, repeats):
    """The worker has released scores of the second epoch, the driver dies before it takes them."""
    spec, first, second = make_spec(CONTENT, search={"repeats": repeats}), RecordingSource(1), RecordingSource(2)
    kept, run = make_recorder(spec, digits, folder), make_run(digits, spec, folder, source=first)
    begin(kept, run.plan_row())
    rows = run.epoch_rows()
    take(kept, rows, 1)
    lost = next(rows)
    assert charged(folder) == [repeats * EPOCHS]  # while nobody goes on, everything that was planned
    kept.records.close()

    again = make_recorder(spec, digits, folder)
    run = make_run(digits, spec, folder, source=second, recorded=1)
    plan_row = run.plan_row()
    assert plan_row.scores_kept == repeats
    begin(again, plan_row)
    rows = run.epoch_rows()
    row = next(rows)
    assert row.epoch == lost.epoch == 2
    assert row.values != lost.values  # another release, not the same one for free
    again.on_epoch("t0001", row)
    take(again, rows, EPOCHS - 2)
    again.on_end("t0001", TrialStatus.COMPLETED, "", EPOCHS)
    again.records.close()
    drawn = released(first) + released(second)
    assert charged(folder) == [2 * repeats, (EPOCHS - 1) * repeats]
    assert sum(charged(folder)) == drawn == (EPOCHS + 1) * repeats
    assert set(folder.points()) == {("t0001", epoch, "") for epoch in range(1, EPOCHS + 1)}


def test_a_training_that_begins_anew_does_not_score_recorded_epochs_again(digits, folder):
    spec, first, second = make_spec(CONTENT), RecordingSource(1), RecordingSource(2)
    kept, run = make_recorder(spec, digits, folder), make_run(digits, spec, folder, source=first)
    begin(kept, run.plan_row())
    take(kept, run.epoch_rows(), 2)
    kept.on_restart("t0001", 3)
    folder.forget_checkpoints("t0001")
    run = make_run(digits, spec, folder, source=second, recorded=2)
    begin(kept, run.plan_row())
    take(kept, run.epoch_rows(), EPOCHS - 2)
    kept.records.close()
    assert (released(first), released(second)) == (2, EPOCHS - 2)
    assert charged(folder) == [EPOCHS, EPOCHS - 2]


def test_out_of_memory_while_scoring_is_charged_too(digits, folder):
    """The plan comes again in the same process: what may have been scored of the epoch that was cut off is charged."""
    spec, first, second = make_spec(CONTENT), RecordingSource(1), RecordingSource(2)
    kept, run = make_recorder(spec, digits, folder), make_run(digits, spec, folder, source=first)
    begin(kept, run.plan_row())
    rows = run.epoch_rows()
    take(kept, rows, 1)
    next(rows)
    run = make_run(digits, spec, folder, source=second, recorded=1)
    kept.on_plan("t0001", run.plan_row())
    kept.on_draw("t0001")
    take(kept, run.epoch_rows(), EPOCHS - 1)
    kept.records.close()
    assert sum(charged(folder)) == released(first) + released(second) == EPOCHS + 1


def test_a_budget_of_the_sweep_counts_scores_before_they_are_drawn(digits, folder):
    """Training costs far less than that; the scores of one trial fit, those of a second one do not."""
    one, two = (price_of(count * EPOCHS, 3.0) for count in (1, 2))
    budget = (one + two) / 2
    privacy = {"score_noise": 3.0, "noise_multiplier": 50.0, "sweep_epsilon": budget, "accounting": "filter"}
    spec = make_spec(CONTENT, privacy=privacy)
    kept, source = make_recorder(spec, digits, folder), RecordingSource(1)
    kept.spending._ledger.set_budget(Filter(epsilon=budget, delta=DELTA))
    row = make_run(digits, spec, source=source).plan_row()
    begin(kept, row)
    kept.on_start("t0002", {"proposal": {}})
    assert "privacy.sweep_epsilon" in kept.on_plan("t0002", row)
    assert charged(folder) == [EPOCHS]
    kept.records.close()


def price_of(releases, noise=SIGMA):
    from sweeper.privacy.pricing import price

    return price([scores_event(noise, releases, Relation.ADD_OR_REMOVE_ONE)], DELTA).epsilon


# --- the front


@pytest.fixture
def finished(digits, folder):
    """A recorder that has taken a whole trial, with the run and what it told the tracker."""
    spec = make_spec(CONTENT)
    tracker, source = FakeTracker(), RecordingSource(4)
    kept, run = make_recorder(spec, digits, folder, tracker), make_run(digits, spec, folder, source=source)
    complete(kept, run)
    yield spec, kept, tracker
    kept.records.close()


def test_test_scores_are_entered_in_the_ledger_before_their_noise_is_drawn(digits, folder, finished, monkeypatch):
    spec, kept, _ = finished
    seen = []

    class Watching(RecordingSource):
        def normal(self, count, device="cpu"):
            seen.append(sum('"test"' in line for line in folder.ledger.read_text().splitlines()))
            return super().normal(count, device)

    monkeypatch.setattr("sweeper.trials.scores.SecureSource", lambda: Watching(0))
    points = len(kept.records.archive.points)
    assert list(score_front(make_trial_settings(spec, digits), digits, folder, kept, lambda: False)) == []
    assert seen == list(range(1, points + 1))
    assert all(kept.records.points[point.key].test is not None for point in kept.records.archive.points)
    assert all(point.classes is None for point in kept.records.points.values())  # counts by class are not paid for
    cost = kept.front().ledger["everything"].epsilon
    assert cost >= price_of(points)
    assert (
        list(score_front(make_trial_settings(spec, digits), digits, folder, kept, lambda: False)) == []
    )  # nothing is drawn a second time
    assert len(seen) == points


def test_test_scores_that_were_lost_are_charged_again(digits, folder, finished, monkeypatch):
    spec, kept, _ = finished
    monkeypatch.setattr(kept.records, "add_test", lambda *_, **__: None)  # killed before they were written
    for count in (1, 2):
        list(score_front(make_trial_settings(spec, digits), digits, folder, kept, lambda: False))
        lines = folder.ledger.read_text().splitlines()
        assert sum('"record":"test"' in line.replace(" ", "") for line in lines) == count * len(
            kept.records.archive.points
        )


def test_test_scores_beyond_the_budget_are_not_drawn(digits, folder, finished, monkeypatch):
    spec, kept, _ = finished
    source = RecordingSource(0)
    monkeypatch.setattr("sweeper.trials.scores.SecureSource", lambda: source)
    kept.spending._ledger._charges.budget = Filter(epsilon=1.0, delta=DELTA)
    troubles = list(score_front(make_trial_settings(spec, digits), digits, folder, kept, lambda: False))
    assert len(troubles) == len(kept.records.archive.points)
    assert "has no room for it" in troubles[0]
    assert '"test"' not in folder.ledger.read_text()
    assert source.normals == []


def test_front_scores_end_when_they_are_asked_to(digits, folder, finished):
    spec, kept, _ = finished
    assert list(score_front(make_trial_settings(spec, digits), digits, folder, kept, lambda: True)) == []
    assert all(point.test is None for point in kept.records.archive.points)


def test_a_model_that_cannot_be_read_costs_no_test_scores(digits, folder, finished):
    spec, kept, _ = finished
    for point in kept.records.archive.points:
        (folder.path / point.model).write_bytes(b"broken")
    troubles = list(score_front(make_trial_settings(spec, digits), digits, folder, kept, lambda: False))
    assert len(troubles) == len(kept.records.archive.points)
    assert '"test"' not in folder.ledger.read_text()


def test_the_tracker_is_told_how_noisy_scores_are_and_never_their_truth(digits, folder, finished):
    spec, kept, tracker = finished
    assert list(score_front(make_trial_settings(spec, digits), digits, folder, kept, lambda: False)) == []
    (tags,) = [call[2] for call in tracker.calls if call[0] == "tag" and "sweeper.privacy.score_noise" in call[2]]
    stds = make_score_noise(spec, digits).stds
    assert tags == {"sweeper.privacy.score_noise": "20"} | {
        f"sweeper.score_std.{split}": f"{stds[split]:.3g}" for split in stds
    }
    told = repr(tracker.calls)
    for point in kept.records.archive.points:
        model = clipless.load(folder.path / point.model)
        for rows in (digits.validation, digits.test):
            truths = [repr(value) for value in exact(model, rows, 1.0).values() if value not in (0.0, 1.0)]
            assert not any(truth in told for truth in truths if len(truth) > 7)


@pytest.fixture(params=["in_process", pytest.param("ray_running", marks=pytest.mark.long)])
def logs(request):
    """The cluster that trains, and folders of logs that it writes beside the sweep's."""
    request.getfixturevalue(request.param)
    if request.param == "in_process":
        return None, []
    return "auto", [Path(ray._private.worker._global_node.get_logs_dir_path())]


@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")
def test_exact_scores_are_in_nothing_that_a_sweep_leaves_behind(digits, tmp_path, capfd, logs):
    """Rows, ledger, decisions, front, report, MLflow's store, Ray's folder and logs, the screen: no true score."""
    content = CONTENT | {
        "training": CONTENT["training"] | {"learning_rate": {"log": [0.02, 0.1]}},
        "search": CONTENT["search"] | {"trials": 2, "scheduler": "hyperband"},
    }
    cluster, folders_of_logs = logs
    ended = run_sweep(Spec.from_mapping(content), Options(out=tmp_path / "out", cluster=cluster))
    folder, said = ended.sweep.folder, "".join(capfd.readouterr()).encode()
    points = [point for point in folder.points().values() if point.model is not None]
    assert points
    written = all_bytes(tmp_path)
    for folder_of_logs in folders_of_logs:
        written |= all_bytes(folder_of_logs)
    kinds = {"points.jsonl", "ledger.jsonl", "decisions.jsonl", "front.json", "front.html", "front.csv", "mlflow.db"}
    assert kinds <= {file.name for file in written}
    shown = b"".join(written.values())
    noisy = {
        value for point in folder.points().values() for value in (*point.values.values(), *(point.test or {}).values())
    }
    for point in points:
        assert repr(point.values["accuracy"]).encode() in shown  # a noisy score is found where it is looked for
        model = clipless.load(folder.path / point.model)
        for rows in (digits.validation, digits.test):
            for name, truth in exact(model, rows, digits.metadata.input_gain).items():
                if float(Fraction(truth).limit_denominator(10)) == truth or any(isclose(truth, one) for one in noisy):
                    continue  # such as 1/3, also the average of Ray's three reports on whether a trial is done; or luck
                for trace in traces(truth):
                    assert trace not in said
                    for file, content in written.items():
                        assert trace not in content, (file, name, truth)
    front = ended.front
    assert front.claim.evaluation == Evaluation.PRIVATE.value
    assert not front.claim.exploratory
    assert any("carry Gaussian noise" in condition for condition in front.claim.conditions)
    rows = [json.loads(line) for line in folder.ledger.read_text().splitlines()]
    tested = sum(row["record"] == "test" for row in rows)
    assert tested == sum(point.test is not None for point in front.points) == len(front.on_front)
    assert sum(row["scores"]["event"]["steps"] for row in rows if row["record"] == "open") == 2 * EPOCHS
    picked = ended.sweep.pick()
    card = picked.card.to_json()
    assert card["score_noise"]["noise_multiplier"] == SIGMA
    assert card["score_noise"]["of_the_trial"]["steps"] == EPOCHS
