"""Stages of a sweep: explorers first, then the best of them with less noise."""

import json
from types import SimpleNamespace

import pytest

from clipless.privacy.events import PoissonGaussian, Relation
from sweeper.backend.queue import TrialQueue
from sweeper.driver.options import Options
from sweeper.driver.runner import resume, run
from sweeper.driver.stages import StagedSearch
from sweeper.errors import RecordError
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.pricing import signal_of
from sweeper.privacy.spending.slots import Slots
from sweeper.records import Point
from sweeper.search.finalists import Explored
from sweeper.search.optuna_search import Search
from sweeper.specification.constraints import parse_constraint
from sweeper.specification.search import Sampler
from sweeper.specification.spec import Spec

STAGES = [{"trials": 3, "share": 0.1}, {"trials": 2, "share": 0.3}, {"trials": 1}]
TRIAL = PoissonGaussian(noise_multiplier=0.0, sampling_rate=0.2, steps=50, relation=Relation.ADD_OR_REMOVE_ONE)


@pytest.fixture
def spec(content):
    content["model"] |= {"width": 16}
    content["training"] |= {"epochs": 2, "batch_size": 256, "learning_rate": {"log": [0.001, 0.1]}}
    content["privacy"] = {"sweep_epsilon": 3.0, "delta": 1e-4, "stages": STAGES}
    content["search"] = {"objectives": ["epsilon", "accuracy"]}
    return Spec.from_mapping(content)


class Sweep:
    """A search in stages, and the records that it looks at."""

    def __init__(self, spec, journal, rehearsed=(), first=(), constant=None):
        self.budget = Slots.of_plans(3.0, 1e-4, spec.stages, TRIAL)
        self.records = SimpleNamespace(points={}, objectives=spec.objectives)
        self.records.estimated = lambda: self.records.points
        options = {"sampler": Sampler.RANDOM, "seed": 0, "journal": journal, "trials": spec.stages[0].trials}
        self.search = Search(spec.space.suggest, spec.objectives, first=first, **options)
        shown = [
            Explored(
                proposal={"training.learning_rate": rate},
                signal=signal_of(self.budget.final_slot),
                stage=-1,
                points=[{"accuracy": accuracy}],
            )
            for rate, accuracy in zip(rehearsed[::2], rehearsed[1::2], strict=True)
        ]
        given = self.search, self.budget, spec.space, self.records
        self.staged = StagedSearch(*given, rehearsed=shown, constant=constant)

    def train(self, accuracy=None):
        trial = self.staged.ask()
        if accuracy is not None:
            point = Point(trial=trial, epoch=1, values={"epsilon": 1.0, "accuracy": accuracy})
            self.records.points[point.key] = point
            self.search.report(point)
        self.search.finish(trial, failed=accuracy is None)
        return self.search.proposals[trial]["training.learning_rate"]


@pytest.fixture
def sweep(spec, tmp_path):
    return Sweep(spec, tmp_path / "proposals.jsonl")


def test_the_best_of_a_stage_are_the_next_one(sweep):
    rates = [sweep.train(accuracy) for accuracy in (0.2, 0.6, 0.4)]
    assert len(set(rates)) == 3
    assert [sweep.train(0.7), sweep.train(0.8)] == [rates[1], rates[2]]
    assert sweep.train(0.9) == rates[2]


def test_explorers_that_failed_are_not_taken_further(sweep):
    rates = [sweep.train(accuracy) for accuracy in (None, 0.1, None)]
    assert sweep.train(0.5) == rates[1]
    assert sweep.train(0.5) not in rates  # nothing else has scores: the search proposes
    assert sweep.staged.asked == 5


def test_both_ends_of_a_front_are_trained_by_what_rehearsals_showed(content, tmp_path):
    """The low end has seen one configuration only, with next to no signal: its scores choose nothing."""
    content["training"] |= {"epochs": 2, "batch_size": 256, "learning_rate": {"log": [0.001, 0.1]}}
    content["privacy"] = {"sweep_epsilon": 3.0, "delta": 1e-4, "finals": "auto"}
    content["search"] = {"objectives": ["epsilon", "accuracy"]}
    spec = Spec.from_mapping(content)
    sweep = Sweep(spec, tmp_path / "proposals.jsonl", [0.01, 0.3, 0.02, 0.7, 0.03, 0.6])
    assert [sweep.train(0.1), sweep.train(0.8)] == [0.02, 0.02]
    assert sweep.budget.stage_trials == (1, 1)
    low, final = map(signal_of, sweep.budget.named_slots.values())
    assert low / final == pytest.approx((0.003 / 0.997) ** 0.5, rel=1e-3)
    assert sweep.budget.price <= 3.0
    user = Sweep(spec, tmp_path / "others.jsonl", [0.01, 0.3, 0.02, 0.7])
    user.search.enqueue({"training.learning_rate": 0.05})  # of a user: the final is that of the rehearsals all the same
    assert [user.train(0.9), user.train(0.8)] == [0.05, 0.02]


def test_what_a_user_enqueues_comes_first(sweep):
    rates = [sweep.train(accuracy) for accuracy in (0.2, 0.6, 0.4)]
    sweep.search.enqueue({"training.learning_rate": 0.05})
    assert [sweep.train(0.5), sweep.train(0.5)] == [0.05, rates[1]]


def test_a_region_decides_which_explorers_are_taken_further(spec, sweep, tmp_path):
    rates = [sweep.train(accuracy) for accuracy in (0.2, 0.6, 0.4)]
    region = [parse_constraint("accuracy <= 0.45", ["accuracy"])]
    sweep.search.steer(region)
    again = Sweep(spec, tmp_path / "proposals.jsonl")
    again.records.points.update(sweep.records.points)
    assert again.search.region == tuple(region)
    assert [again.train(0.5), again.train(0.5)] == [rates[2], rates[0]]


def test_a_sweep_that_resumes_in_a_stage_chooses_the_same(spec, sweep, tmp_path):
    rates = [sweep.train(accuracy) for accuracy in (0.2, 0.6, 0.4)]
    sweep.train(0.1)
    again = Sweep(spec, tmp_path / "proposals.jsonl")
    again.records.points.update(sweep.records.points)
    assert again.staged.asked == 4
    assert again.train(0.9) == rates[2]


def test_what_a_user_enqueued_in_a_stage_is_tried_after_a_kill(spec, sweep, tmp_path):
    for accuracy in (0.2, 0.6, 0.4, 0.1):  # three explorers, and the first that the stage has promoted
        sweep.train(accuracy)
    again = Sweep(spec, tmp_path / "proposals.jsonl", first=[{"training.learning_rate": 0.05}])
    again.records.points.update(sweep.records.points)
    assert again.train(0.9) == 0.05


def test_a_stage_begins_when_every_trial_before_it_has_ended(sweep):
    queue = TrialQueue(sweep.staged, 6, barriers=(3, 5, 6))
    begun = [queue.start()[0] for _ in range(3)]
    assert queue.start() is None
    for trial in begun[:2]:
        queue.end(trial)
        assert queue.start() is None
    queue.put_back(begun[2])  # its process died: it comes before the next stage
    assert queue.start()[0] == begun[2]
    queue.end(begun[2])
    assert queue.start()[0] == "t0004"


def test_a_trial_waits_while_there_is_no_room_for_it_beside_those_that_run(sweep):
    queue = TrialQueue(sweep.staged, 6, is_full=lambda running: running > 1)
    begun = [queue.start()[0] for _ in range(2)]
    assert queue.left == 0
    assert queue.start() is None
    queue.end(begun[0])
    assert queue.start()[0] == "t0003"
    for trial in (begun[1], "t0003"):
        queue.end(trial)
    queue._is_full = lambda running: running < 9  # nothing runs that could give room back: it is tried
    assert queue.start()[0] == "t0004"


def test_the_signal_of_a_training_grows_with_its_share_of_the_budget(sweep):
    first, *_, last = (signal_of(stage.slot) for stage in sweep.budget.stages)
    assert last / first == pytest.approx((6.0 * 3.0) ** 0.5, rel=1e-9)


@pytest.mark.usefixtures("bare", "in_process", "untracked")
@pytest.mark.slow
def test_a_sweep_with_a_budget_costs_what_it_said_before_it_began(spec, tmp_path):
    made = run(spec, Options(out=tmp_path))
    ledger, front = Ledger(made.folder.ledger), made.front()
    budget, trials = ledger.budget, made.folder.trials()
    assert json.loads(made.folder.ledger.read_text().splitlines()[0])["record"] == "budget"
    assert [trial.plan.event for trial in trials.values()] == [
        stage.slot for stage in budget.stages for _ in range(stage.trials)
    ]
    assert [entry.stage for entry in ledger.entries()] == [0, 0, 0, 1, 1, 2]
    rates = [trial.config["training"]["learning_rate"] for trial in trials.values()]
    assert set(rates[3:5]) <= set(rates[:3])
    assert rates[5] in rates[3:5]
    assert {price.epsilon for price in front.ledger.values()} == {budget.price}
    assert budget.price <= 3.0
    assert max(point.values["epsilon"] for point in front.points) < budget.price
    for trials in (1, 7):
        with pytest.raises(RecordError, match=rf"was cut into 6 trials before .*, got trials={trials}; start another"):
            resume(made.directory, trials=trials)
    assert resume(made.directory).front().ledger == front.ledger
