"""What rehearsals show decides what is trained, and is seen; they are never taken for trials."""

import json
from functools import partial
from types import SimpleNamespace

import pytest

from clipless.privacy.events import PoissonGaussian, Relation
from sweeper.backend.endings import RunResult
from sweeper.backend.trainable import CliplessTrial, Rehearsal
from sweeper.driver import driver, stages
from sweeper.driver import rehearsals as module
from sweeper.driver.options import Options
from sweeper.driver.rehearsals import Rehearsals
from sweeper.driver.runner import resume, run
from sweeper.privacy.claims import REHEARSED
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.spending.slots import Slots
from sweeper.records import RehearsalSource, SweepStatus, TrialStatus
from sweeper.search.finalists import choose_finalists
from sweeper.search.space import sample
from sweeper.specification.spec import Spec
from sweeper.store.sweep_folder import SweepFolder
from sweeper.trials.stream import EpochRow, FirstDrawRow, FreeRow, PlanRow
from tests.factories import plan_sweep

from ...factories import FakeTracker
from ..in_process import fake_backend

TRIAL = PoissonGaussian(noise_multiplier=0.0, sampling_rate=0.2, steps=10, relation=Relation.ADD_OR_REMOVE_ONE)


@pytest.fixture
def spec(content):
    content["model"] |= {"width": 16}
    content["training"] |= {"epochs": 2, "batch_size": 256, "learning_rate": {"log": [0.001, 0.1]}}
    content["privacy"] = {"sweep_epsilon": 3.0, "delta": 1e-4}
    content["search"] = {"objectives": ["epsilon", "accuracy"], "trials": 3}
    return Spec.from_mapping(content)


def rehearsals(spec, path, tracker=None, *, has_prior=False):
    slot = Slots.of_plans(3.0, 1e-4, spec.stages, TRIAL).final_slot
    told = {"source": RehearsalSource.PUBLIC, "tracker": tracker or FakeTracker(), "has_prior": has_prior}
    return Rehearsals(spec.space, spec.rehearsals, SweepFolder(path), slot, **told)


def play(made, plan, accuracies, status=TrialStatus.COMPLETED):
    """Let the next trainings report these accuracies, one epoch each."""
    queue, states = made.queue(), made.states()
    for accuracy in accuracies:
        name, proposal = queue.start()
        states.start(name, {"proposal": proposal})
        states.receive(name, PlanRow(attempt=name, plan=plan))
        states.receive(name, FirstDrawRow())
        free = FreeRow(made_from="slow-midpoint", values={"accuracy": accuracy / 2})
        states.receive(name, EpochRow(epoch=1, values={"epsilon": 9.0, "accuracy": accuracy}, free=(free,)))
        states.end(name, status)
        queue.end(name)


def test_a_configuration_is_judged_by_the_mean_of_both_halves(spec, tmp_path, plan):
    made = rehearsals(spec, tmp_path)
    assert made.total == 6
    play(made, plan, [0.2, 0.4, 0.9, 0.7, 0.9, 0.1])
    points = [one.points for one in made.explored()]
    assert [best["accuracy"] for best, _ in points] == pytest.approx([0.3, 0.8, 0.5])
    assert [free["accuracy"] for _, free in points] == pytest.approx([0.15, 0.4, 0.25])
    assert all("epsilon" not in point for several in points for point in several)
    (best,) = choose_finalists(made.explored(), spec.space, spec.objectives, count=1, signal=made.explored()[0].signal)
    assert best == made.explored()[1].proposal


def test_the_first_configuration_of_a_prior_wins_unless_another_is_better_by_more_than_the_error(spec, tmp_path, plan):
    play(rehearsals(spec, tmp_path), plan, [0.5, 0.6, 0.7, 0.5, 0.1, 0.2])
    for has_prior, winner in ((True, "c0001"), (False, "c0002")):
        made = rehearsals(spec, tmp_path, has_prior=has_prior)
        (best,) = choose_finalists(made.explored(), spec.space, spec.objectives, count=1, signal=1.0)
        shown = made.progress(spec.objectives, (), {}).ranked[0]
        assert (shown.id, dict(shown.configuration.proposal)) == (winner, best)


def test_rehearsals_that_have_ended_are_not_trained_again(spec, tmp_path, plan):
    play(rehearsals(spec, tmp_path), plan, [0.2, 0.4])
    play(rehearsals(spec, tmp_path), plan, [0.9], status=TrialStatus.INTERRUPTED)
    again = rehearsals(spec, tmp_path)
    assert (again.done, again.total) == (2, 6)
    play(again, plan, [0.5, 0.7, 0.1, 0.1])
    assert again.queue().finished
    assert [one.points[0]["accuracy"] for one in again.explored()] == pytest.approx([0.3, 0.6, 0.1])


def test_each_configuration_is_told_of_once_when_both_halves_have_ended(spec, tmp_path, plan):
    tracker = FakeTracker()
    play(rehearsals(spec, tmp_path, tracker), plan, [0.2])
    assert tracker.calls == []
    play(rehearsals(spec, tmp_path, tracker), plan, [0.4, 0.9])
    ((told,),) = tracker.of("rehearsal")
    assert (told.id, told.source) == ("c0001", RehearsalSource.PUBLIC)
    assert [epoch.values for epoch in told.epochs] == [
        {"accuracy": pytest.approx(0.3)},
        {"accuracy": pytest.approx(0.15)},
    ]
    assert {name for name, *_ in tracker.calls} == {"rehearsal"}


def test_no_epsilon_of_a_rehearsal_is_kept(spec, tmp_path, plan):
    """It is that of a training on few public rows: whoever took it for a price would be wrong."""
    made = rehearsals(spec, tmp_path)
    play(made, plan, [0.2, 0.4])
    assert "epsilon" not in made.progress(spec.objectives, (), {}).ranked[0].best.values
    assert '"epsilon"' not in SweepFolder(tmp_path).rehearsals.read_text()


def test_progress_ranks_what_has_been_shown_so_far(spec, tmp_path, plan):
    made = rehearsals(spec, tmp_path)
    look = partial(made.progress, spec.objectives, (), {"t0001": spec.space.resolve(made.proposals["r0003"]).to_json()})
    assert (look().fraction, look().done, look().total, look().leader) == (0.0, 0, 3, None)
    play(made, plan, [0.2, 0.4])
    queue, states = made.queue(), made.states()
    for accuracy in (0.9, 0.7):
        name, _ = queue.start()
        states.start(name, {})
        states.receive(name, PlanRow(attempt=name, plan=plan))
        states.receive(name, EpochRow(epoch=1, values={"epsilon": 9.0, "accuracy": accuracy}))
    said = look()
    assert said.done == 1
    assert said.fraction == pytest.approx((2 + 2 / plan.epochs) / 6)
    assert [(one.id, one.volume, one.trials) for one in said.ranked[:2]] == [
        ("c0002", pytest.approx(0.8), ("t0001",)),
        ("c0001", pytest.approx(0.3), ()),
    ]


@pytest.mark.long
def test_configurations_to_try_first_are_rehearsed_and_trained_only_if_they_win(spec, digits):
    first = spec.with_search(first=[{"training": {"learning_rate": 0.001}}])
    plan = plan_sweep(first, digits)
    assert plan.enqueued == ()
    assert sample(plan.shared.space, 1) == [{"training.learning_rate": 0.001}]
    trained = first.with_search(rehearse=False)
    assert plan_sweep(trained, digits).enqueued == ({"training.learning_rate": 0.001},)


def test_a_configuration_that_failed_on_one_half_is_not_taken(spec, tmp_path, plan):
    play(rehearsals(spec, tmp_path), plan, [0.9])
    play(rehearsals(spec, tmp_path), plan, [0.9], status=TrialStatus.FAILED)
    play(rehearsals(spec, tmp_path), plan, [0.2, 0.2, 0.1, 0.1])
    assert [len(one.points) for one in rehearsals(spec, tmp_path).explored()] == [0, 2, 2]


@pytest.mark.usefixtures("bare", "untracked")
@pytest.mark.slow
def test_rehearsals_and_trials_share_one_clock(spec, tmp_path, monkeypatch):
    """Rehearsals take more than half of the time; the trials have what is left of it, and a resumed run all again."""
    began, now = [], [1000.0]

    def train(kind, _queue, _states, settings):
        began.append(kind)
        now[0] += 0.6 * 3600
        return settings.should_stop() or RunResult()

    monkeypatch.setattr(driver, "open_backend", fake_backend(train))
    monkeypatch.setattr(driver, "time", SimpleNamespace(monotonic=lambda: now[0]))
    made = run(spec.with_search(hours=1.0), Options(out=tmp_path))
    assert began == [Rehearsal, CliplessTrial]
    assert made.manifest().reason == "the 1 hours are used up"
    again = resume(made.directory)
    assert began[2:] == [Rehearsal, CliplessTrial]
    assert again.manifest().status is SweepStatus.STOPPED


@pytest.mark.usefixtures("bare", "untracked")
@pytest.mark.slow
def test_finalists_are_judged_beside_a_constant_prediction(spec, tmp_path, monkeypatch):
    seen = []

    def train(kind, queue, *_):
        if kind is CliplessTrial:
            queue.start()
        return RunResult()

    monkeypatch.setattr(driver, "open_backend", fake_backend(train))
    monkeypatch.setattr(stages, "choose_finalists", lambda *_, constant, **__: seen.append(constant) or [])
    claim = run(spec, Options(out=tmp_path)).front().claim
    assert seen == [{"accuracy": claim.baselines.constant("accuracy")}]
    assert seen[0]["accuracy"] > 0.1


def test_how_rehearsals_stand_is_judged_beside_a_constant_prediction(spec, tmp_path, plan, monkeypatch):
    made, judged = rehearsals(spec, tmp_path), []
    play(made, plan, [0.2, 0.4, 0.9, 0.7, 0.9, 0.1])
    monkeypatch.setattr(module, "judge_rehearsal", lambda *given: judged.append(given[3]))
    made.progress(spec.objectives, (), {}, {"accuracy": 0.3})
    assert judged == [{"accuracy": 0.3}] * 3


@pytest.mark.long
@pytest.mark.usefixtures("bare", "in_process", "untracked")
@pytest.mark.slow
def test_a_sweep_trains_aloud_what_was_rehearsed_best(spec, tmp_path):
    spec = spec.with_search(first=[{"training": {"learning_rate": 0.001}}])  # which is rehearsed, and does not win
    made = run(spec, Options(out=tmp_path))
    folder, ledger = made.folder, Ledger(made.folder.ledger)
    rows = [json.loads(row) for row in folder.rehearsals.read_text().splitlines()]
    assert sorted(row["rehearsal"] for row in rows) == [f"r{number:04d}" for number in range(1, 7)]
    assert all(row["points"] for row in rows)
    (trial,) = folder.trials().values()
    best = choose_finalists(rehearsals(spec, folder.path).explored(), spec.space, spec.objectives, count=1, signal=1.0)
    assert trial.config["training"]["learning_rate"] == best[0]["training.learning_rate"]
    assert [one.trials for one in made.rehearsals()] == [("t0001",), (), ()]
    assert len(made.rehearsals().to_dataframe()) == 3
    assert [entry.trial for entry in ledger.entries()] == ["t0001"]
    assert trial.plan.event == ledger.budget.stages[0].slot
    assert {point.trial for point in made.front().points} == {"t0001"}
    assert {name.name for name in (folder.path / "models").iterdir()} == {
        point.model.removeprefix("models/") for point in made.front().front_points
    }
    assert made.front().ledger["everything"].epsilon <= 1.25 * max(p.values["epsilon"] for p in made.front().points)
    assert REHEARSED in made.front().claim.public
    before = folder.rehearsals.read_text()
    resume(made.directory)
    assert folder.rehearsals.read_text() == before
