"""The trials of one worker, lone and stacked: what is told before what is drawn, and whose row is whose."""

from collections import Counter
from typing import ClassVar

import pytest
import torch

import clipless
from clipless.errors import PlanError
from clipless.privacy.randomness import SecureSource
from clipless.training import checkpoint
from sweeper.backend.placed_data import PlacedDataset
from sweeper.backend.trainable import CliplessTrial
from sweeper.backend.workers import stacking
from sweeper.backend.workers.messages import Assignment, Failure
from sweeper.backend.workers.trial_group import TrialGroup
from sweeper.planning.make import make_trial_settings
from sweeper.privacy.spending._composition import Composition
from sweeper.specification.spec import Spec
from sweeper.trials.stream import EpochRow, FirstDrawRow, PlanRow

EPOCHS = 3


class CountedSource(SecureSource.__mro__[1]):
    """A secure source that counts draws of noise under the name of its trial."""

    drawn: ClassVar[Counter] = Counter()

    def __init__(self, trial):
        self._trial, self._secure = trial, SecureSource()

    @property
    def secure(self):
        return True

    def random_bytes(self, count):
        return self._secure.random_bytes(count)

    def normal(self, count, device="cpu"):
        self.drawn[self._trial] += 1
        return super().normal(count, device)


class Counted(CliplessTrial):
    """A trial whose draws are counted."""

    def source(self):
        return CountedSource(self._config["trial"])


@pytest.fixture(autouse=True)
def nothing_drawn():
    CountedSource.drawn.clear()
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def group(tmp_path):
    """A worker's trials, and how it is driven."""
    (tmp_path / "models").mkdir()
    digits = clipless.datasets.load("digits")
    placed = PlacedDataset.of(digits)

    def make(most=4, kind=Counted, **changes):
        content = {
            "name": "stacked",
            "data": {"name": "digits"},
            "model": {"architecture": "mlp", "width": [8, 12]},
            "training": {
                "epochs": EPOCHS,
                "batch_size": 256,
                "learning_rate": {"log": [0.0001, 0.1]},
                "sensitivity_fraction": 0.1,
            },
            "privacy": {"noise_multiplier": 3.0, "delta": 1e-4},
            "search": {"trials": 9},
            **changes,
        }
        constants = {
            "settings": make_trial_settings(Spec.from_mapping(content), digits),
            "spending": Composition(),
            "folder": str(tmp_path),
            "data": placed,
            "storage": None,
        }
        return TrialGroup(kind, constants, most)

    return make


def config(trial, rate=0.05, width=8, recorded=0):
    proposal = {"training.learning_rate": rate, "model.width": width}
    return {"trial": trial, "proposal": proposal, "recorded": recorded, "front": []}


def orders(*trials, stopped=(), more=0):
    return Assignment(frozenset(stopped), tuple(trials), more=more)


def kinds(told):
    return [(trial, row.epoch if isinstance(row, EpochRow) else type(row).__name__) for trial, row in told]


def to_end(group, told):
    """Let the trials of a group go on to their end, and return all that is told from now on."""
    rows = []
    while told:
        told = group.follow(orders())
        rows += told
    return rows


PLANNED = [("t1", "PlanRow"), ("t2", "PlanRow"), ("t1", "FirstDrawRow"), ("t2", "FirstDrawRow")]


def test_plans_and_draws_are_told_before_anything_is_drawn_and_rows_are_those_of_each_trial(group):
    made = group()
    told = made.follow(orders(config("t1", 0.01), config("t2", 0.1)))
    assert kinds(told) == PLANNED
    assert CountedSource.drawn == {}
    steps = told[0][1].plan.steps_per_epoch
    for epoch in range(1, EPOCHS + 1):
        told = made.follow(orders())
        assert kinds(told) == [("t1", epoch), ("t2", epoch)]
        assert CountedSource.drawn == {"t1": epoch * steps, "t2": epoch * steps}, "nothing runs ahead of its answer"
    assert all(row.done for _, row in told)
    assert made.follow(orders()) == []


def test_every_trial_of_a_process_has_a_source_of_its_own(group):
    made = group(kind=CliplessTrial)
    made.follow(orders(config("t1"), config("t2")))
    made.follow(orders())
    sources = [trainee.source for trainee in made._stack._stack._places]
    assert [type(source) for source in sources] == [SecureSource, SecureSource]
    assert sources[0] is not sources[1]


def test_a_stacked_trial_reports_what_its_own_model_reaches(group, tmp_path):
    """Of two learning rates a thousandfold apart, each row is of the model that it names."""
    made, validation = group(), clipless.datasets.load("digits").validation
    rows = to_end(made, made.follow(orders(config("t1", 0.0001), config("t2", 0.1))))
    for trial, row in rows:
        if isinstance(row, EpochRow) and row.model:
            assert trial in row.model
            model = clipless.load(tmp_path / row.model)
            assert clipless.evaluate(model, validation, [])["accuracy"] == row.values["accuracy"]
    last = {trial: row.values["accuracy"] for trial, row in rows if isinstance(row, EpochRow) and row.done}
    assert last["t2"] > last["t1"] + 0.2


def test_a_member_that_is_stopped_draws_no_more_and_the_others_train_on(group):
    made = group()
    told = made.follow(orders(config("t1"), config("t2")))
    made.follow(orders())
    before = CountedSource.drawn["t1"]
    told = made.follow(orders(stopped=["t1"]))
    assert kinds(told) == [("t2", 2)]
    rows = to_end(made, told)
    assert {trial for trial, _ in rows} == {"t2"}
    assert CountedSource.drawn["t1"] == before
    assert CountedSource.drawn["t2"] == EPOCHS * before


def test_a_trial_whose_first_draw_was_refused_draws_nothing(group):
    made = group()
    made.follow(orders(config("t1"), config("t2"), config("t3")))
    rows = to_end(made, made.follow(orders(stopped=["t2"])))
    assert {trial for trial, _ in rows} == {"t1", "t3"}
    assert CountedSource.drawn["t2"] == 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("most", [2, 4])
def test_who_has_announced_its_draws_trains_next_though_its_leader_was_refused(group, most):
    """It was mixed with trials of another shape, and failed after it was charged."""
    made = group(most)
    told = made.follow(orders(config("t1"), config("t2", width=12), config("t3")))
    assert [trial for trial, row in told if isinstance(row, FirstDrawRow)] == ["t1", "t3"]
    rows = to_end(made, made.follow(orders(stopped=["t1"])))
    assert not [row for _, row in rows if isinstance(row, Failure)]
    assert {trial for trial, row in rows if isinstance(row, EpochRow) and row.done} == {"t2", "t3"}


@pytest.mark.long
def test_an_empty_place_is_filled_while_the_others_train(group):
    made = group(most=2)
    made.follow(orders(config("t1"), config("t2")))
    made.follow(orders())
    assert made.free == 0
    told = made.follow(orders(config("t3"), stopped=["t1"]))
    assert kinds(told) == [("t3", "PlanRow"), ("t3", "FirstDrawRow")]
    told = made.follow(orders())
    assert sorted(kinds(told)) == [("t2", 2), ("t3", 1)]
    told = made.follow(orders())
    assert sorted(kinds(told)) == [("t2", 3), ("t3", 2)]
    assert made.free == 1
    assert kinds(made.follow(orders())) == [("t3", 3)]


def test_trials_of_another_shape_wait_and_have_drawn_nothing_until_they_say_so(group):
    made = group()
    told = made.follow(orders(config("t1"), config("t2"), config("t3", width=12), config("t4", width=12)))
    assert [one for one in kinds(told) if one[1] == "FirstDrawRow"] == [("t1", "FirstDrawRow"), ("t2", "FirstDrawRow")]
    seen = []
    while told:
        said = {trial for trial, row in seen if isinstance(row, FirstDrawRow)}
        assert set(CountedSource.drawn) <= said
        seen += told
        told = made.follow(orders())
    assert {trial for trial, row in seen if isinstance(row, EpochRow) and row.done} == {"t1", "t2", "t3", "t4"}


def test_one_that_cannot_be_stacked_is_trained_alone(group):
    made = group(search={"trials": 9, "repeats": 2})
    told = made.follow(orders(config("t1"), config("t2")))
    assert kinds(told) == [("t1", "PlanRow"), ("t2", "PlanRow"), ("t1", "FirstDrawRow")]
    assert kinds(made.follow(orders())) == [("t1", 1)]


@pytest.mark.long
def test_members_of_a_killed_stack_go_on_from_their_own_checkpoints(group):
    made = group()
    made.follow(orders(config("t1"), config("t2")))
    made.follow(orders())
    made.follow(orders())  # the driver has taken the second epoch of a, and not that of b
    again = group()
    told = again.follow(orders(config("t1", recorded=2), config("t2", recorded=1)))
    assert [row.kept for _, row in told if isinstance(row, PlanRow)] == [10, 10]
    CountedSource.drawn.clear()
    told = again.follow(orders())
    assert kinds(told) == [("t2", 2)], "what its checkpoint holds is told, and answered, before anything is drawn"
    assert CountedSource.drawn == {}
    told = again.follow(orders())
    assert kinds(told) == [("t1", 3), ("t2", 3)]
    assert CountedSource.drawn == {"t1": 5, "t2": 5}


def test_a_member_whose_state_is_lost_after_its_plan_draws_nothing_and_fails_alone(group, monkeypatch):
    made = group()
    made.follow(orders(config("t1"), config("t2")))
    made.follow(orders())
    again, real = group(), checkpoint.read_tensors
    told = again.follow(orders(config("t1", recorded=1), config("t2", recorded=1)))
    assert [row.kept for _, row in told if isinstance(row, PlanRow)] == [5, 5]
    monkeypatch.setattr(checkpoint, "read_tensors", lambda path: _unreadable("t1", path) or real(path))
    CountedSource.drawn.clear()
    told = again.follow(orders())
    assert [trial for trial, row in told if isinstance(row, Failure)] == ["t1"]
    assert kinds(told)[1:] == [("t2", 2)]
    assert CountedSource.drawn == {"t2": 5}, "what others draw is answered after each epoch"


def _unreadable(trial, path):
    if trial in str(path):
        raise OSError(5, "Input/output error")


@pytest.mark.long
def test_out_of_memory_half_as_many_are_trained_as_one(group, monkeypatch):
    made, real = group(), stacking.Stack.__iter__
    stacks = []

    def short(stack):
        stacks.append(sum(place is not None for place in stack._places))
        if stacks[-1] > 2:
            raise MemoryError
        yield from real(stack)

    monkeypatch.setattr(stacking.Stack, "__iter__", short)
    names = ["t1", "t2", "t3", "t4"]
    told = made.follow(orders(*map(config, names)))
    monkeypatch.setattr(stacking.TrialStack, "round", _noting(stacking.TrialStack.round, sizes := []))
    rows = told + to_end(made, told)
    assert Counter(trial for trial, row in rows if isinstance(row, PlanRow)) == dict.fromkeys(names, 2)
    assert len({row.attempt for _, row in rows if isinstance(row, PlanRow)}) == 8
    assert sizes[0] == 4
    assert max(sizes[1:]) == 2
    assert Counter(trial for trial, row in rows if isinstance(row, EpochRow)) == dict.fromkeys(names, EPOCHS)


def _noting(real, sizes):
    def round_(stack):
        sizes.append(sum(place is not None for place in stack._places.values()))
        real(stack)

    return round_


@pytest.mark.long
def test_an_error_of_a_step_is_found_in_the_trial_that_has_it(group, monkeypatch):
    """What no member can be blamed for lets each train alone; only who fails there has failed."""
    made = group()
    monkeypatch.setattr(stacking.TrialStack, "round", lambda _stack: (_ for _ in ()).throw(PlanError("odd")))
    told = made.follow(orders(config("t1"), config("t2")))
    rows = told + to_end(made, told)
    assert not [row for _, row in rows if isinstance(row, Failure)]
    assert Counter(trial for trial, row in rows if isinstance(row, EpochRow)) == {"t1": EPOCHS, "t2": EPOCHS}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("where", ["begin", "round", "scores", "alone"])
def test_a_process_that_loses_its_device_ends_and_burns_no_further_trial(where, group, monkeypatch):
    def end(code):
        raise SystemExit(code)

    def lost(*_):
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr("sweeper.backend.trainable.os._exit", end)
    made = group(most=1 if where == "alone" else 4)
    if where != "begin":
        made.follow(orders(config("t1"), config("t2")))
    place = {
        "begin": (CliplessTrial, "_build"),
        "round": (stacking.TrialStack, "round"),
        "scores": (CliplessTrial, "epoch_row"),
        "alone": (CliplessTrial, "_note_report"),
    }
    monkeypatch.setattr(*place[where], lost)
    with pytest.raises(SystemExit):
        made.follow(orders(config("t3")) if where == "begin" else orders())


def test_a_member_whose_scores_fail_fails_alone(group, monkeypatch):
    made, real = group(), CliplessTrial.epoch_row

    def fails(trial, epoch):
        if trial._config["trial"] == "t1" and epoch.epoch == 2:
            raise ValueError("row 7 is 0.25")
        return real(trial, epoch)

    monkeypatch.setattr(CliplessTrial, "epoch_row", fails)
    told = made.follow(orders(config("t1"), config("t2")))
    rows = to_end(made, told)
    assert [trial for trial, row in rows if isinstance(row, Failure)] == ["t1"]
    assert [epoch for trial, epoch in kinds(rows) if trial == "t2"] == [1, 2, 3]
    assert CountedSource.drawn["t1"] == 10


def test_as_many_as_pay_are_asked_for_once_that_is_known(group, monkeypatch):
    monkeypatch.setattr("sweeper.backend.workers.trial_group.size_that_pays", lambda _work, there: min(there, 3))
    made = group(most=None)
    assert made.free == 1
    made.follow(orders(config("t1"), more=8))
    assert made.free == 2
    made.follow(orders(config("t2"), config("t3")))
    assert made.free == 0
    assert kinds(made.follow(orders())) == [("t1", 1), ("t2", 1), ("t3", 1)]


def test_where_stacks_do_not_pay_trials_are_trained_one_at_a_time(group, monkeypatch):
    monkeypatch.setattr("sweeper.backend.workers.trial_group.size_that_pays", lambda _work, _there: 1)
    made = group(most=None)
    made.follow(orders(config("t1"), more=8))
    assert made.free == 0
    assert kinds(made.follow(orders())) == [("t1", 1)]


@pytest.mark.long
def test_out_of_memory_one_that_is_a_stack_of_its_own_is_trained_without_one(group, monkeypatch):
    made, tried = group(), []

    def short(_stack):
        tried.append(1)
        raise MemoryError

    monkeypatch.setattr(stacking.TrialStack, "round", short)
    told = made.follow(orders(config("t1")))
    rows = told + to_end(made, told)
    assert tried == [1]
    assert [row.epoch for _, row in rows if isinstance(row, EpochRow)] == [1, 2, 3]


def test_nothing_is_measured_for_a_trial_that_will_have_no_company(group, monkeypatch):
    asked = []
    monkeypatch.setattr(stacking, "stack_size", lambda _member, _rows, most: asked.append(most) or 1)
    made = group(most=None)
    made.follow(orders(config("t1"), config("t2", width=12)))
    assert asked == []
    made.follow(orders(config("t3"), more=2))
    assert set(asked) <= {3, 4}, "those that are there and those that may come"
