"""Points made from iterates: what they are, which are reported, and that none is scored where scores are paid for."""

from dataclasses import replace

import pytest
import torch

import clipless
from clipless.datasets import Evaluation, load
from clipless.evaluation import evaluate
from sweeper.errors import SpecError
from sweeper.pareto.dominance import dominates
from sweeper.planning.make import make_score_noise
from sweeper.records import MADE_FROM, described
from sweeper.store.sweep_folder import SweepFolder
from sweeper.trials.free_points import FAMILY, free_points
from tests.clipless.factories import RecordingSource
from tests.factories import make_run, make_spec, small_content

EPOCHS = 6
CONTENT = small_content(
    training={"epochs": EPOCHS, "learning_rate": 0.1, "sensitivity_fraction": 0.1},
    privacy={"noise_multiplier": 2.0, "delta": 1e-4},
    search={"objectives": ["epsilon", "accuracy", "certified@1/4"], "trials": 1},
)
SCORES = ("accuracy", "certified@1/4")


def trial(data, spec, **more):
    return make_run(data, spec, **{"source": RecordingSource(3), "free": None} | more)


@pytest.fixture(scope="module")
def ran(digits, tmp_path_factory):
    """A trial: its folder, and its rows."""
    folder = tmp_path_factory.mktemp("free")
    (folder / "models").mkdir()
    return folder, list(trial(digits, make_spec(CONTENT), folder=folder).epoch_rows())


def points(rows):
    """Every row of a trial as (made_from, values with epsilon), in order."""
    for row in rows:
        yield "", row.values
        for one in row.free:
            yield one.made_from, {**one.values, "epsilon": row.values["epsilon"]}


def costs(values):
    return (values["epsilon"], *(-values[name] for name in SCORES))


def test_every_member_of_the_family_is_told_in_words():
    assert FAMILY.keys() == MADE_FROM.keys()
    assert "8th power" in described("quick-midpoint")
    assert described("median") == "the median of the iterates"


def test_training_and_its_epochs_are_the_same_with_free_points_and_without(digits, ran):
    plain = list(trial(digits, make_spec(CONTENT), free=False).epoch_rows())
    assert [row.values for row in plain] == [row.values for row in ran[1]]
    assert not any(row.free for row in plain)


def test_what_is_reported_adds_to_the_front_of_the_trial(ran):
    rows = ran[1]
    assert {one.made_from for row in rows for one in row.free} == set(FAMILY)
    seen = []
    for made_from, values in points(rows):
        if made_from:
            assert not any(dominates(costs(other), costs(values)) for other in seen)
            assert costs(values) not in [costs(other) for other in seen]
        seen.append(values)


def test_a_model_is_saved_unless_a_point_of_the_front_is_better(digits, ran, tmp_path):
    """The same training beside a front that some of its points reach, some equal and some miss."""
    saved = {(row.epoch, made): model for row in ran[1] for made, model in models_of(row).items()}
    front = [ran[1][2].values, ran[1][4].values | {"epsilon": ran[1][3].values["epsilon"]}]
    (tmp_path / "models").mkdir()
    rows = list(trial(digits, make_spec(CONTENT), folder=tmp_path, front=front).epoch_rows())
    assert [row.values for row in rows] == [row.values for row in ran[1]]
    assert [[one.values for one in row.free] for row in rows] == [[one.values for one in row.free] for row in ran[1]]
    outdone = set()
    for row in rows:
        for (made, values), model in zip(points([row]), models_of(row).values(), strict=True):
            is_outdone = any(dominates(costs(other), costs(values)) for other in front)
            assert model == (None if is_outdone else saved[row.epoch, made])
            outdone |= {(row.epoch, made)} if is_outdone else set()
    assert outdone & {key for key, model in saved.items() if model is not None}
    assert rows[2].model is not None, "what equals a point of the front is kept beside it"


def models_of(row):
    return {"": row.model} | {one.made_from: one.model for one in row.free}


def test_a_row_of_a_free_point_states_no_epsilon_of_its_own(ran):
    assert all(set(one.values) == set(SCORES) for row in ran[1] for one in row.free)


def test_each_saved_model_is_what_its_name_says(digits, ran):
    """The family again, from the iterates of the same training, whose steps are all recorded."""
    folder, rows = ran
    kept = [(row.epoch, one) for row in rows for one in row.free if one.model]
    assert {one.made_from for _, one in kept} == set(FAMILY)
    for epoch, one in kept:
        assert one.model == SweepFolder.model_name("t0001", epoch, one.made_from)
        scores = evaluate(clipless.load(folder / one.model), digits.validation, ["1/4"])
        assert scores == pytest.approx(dict(one.values))
    run = trial(digits, make_spec(CONTENT))
    for row, epoch in zip(rows, run._training(run._repeats[0]), strict=True):
        for one in row.free:
            with epoch.averages[one.made_from]():
                own = torch.cat([p.detach().flatten() for p in run.model.parameters()])
            saved = clipless.load(folder / one.model)
            assert torch.equal(own, torch.cat([p.detach().flatten() for p in saved.parameters()])), one.made_from


@pytest.mark.long
def test_free_points_of_repeats_are_means_of_what_is_made_from_each(digits):
    rows = list(trial(digits, make_spec(CONTENT), repeats=2).epoch_rows())
    found = [one for row in rows for one in row.free]
    assert found
    for one in found:
        assert all(len(one.repeats[name]) == 2 for name in SCORES)
        assert {name: sum(one.repeats[name]) / 2 for name in SCORES} == pytest.approx(dict(one.values))


@pytest.mark.parametrize(
    ("wanted", "names", "follows"),
    [
        (None, ["epsilon", "accuracy", "auroc", "certified@36/255", "certified-auroc@0.1"], True),
        (None, ["epsilon", "accuracy", "attacked@1"], False),
        (None, ["epsilon", "accuracy", "membership-auroc"], False),
        (True, ["epsilon", "accuracy", "attacked@1"], True),
        (False, ["epsilon", "accuracy"], False),
    ],
)
def test_they_are_scored_where_that_is_cheap_or_asked_for(digits, wanted, names, follows):
    assert bool(free_points(wanted, digits.metadata, None, names)) is follows


@pytest.mark.long
def test_attacks_that_are_asked_for_are_run_on_every_point_that_is_kept(digits):
    spec = make_spec(CONTENT, search={"metrics": ["attacked@1/4"]}, training={"epochs": 2})
    rows = list(trial(digits, spec, free=True).epoch_rows())
    assert all("attacked@1/4" in one.values for row in rows for one in row.free)


# --- where scores are paid for


@pytest.fixture(scope="module")
def hidden():
    return load("digits", evaluation="private")


def private_spec(**search):
    return make_spec(CONTENT, data={"evaluation": "private"}, privacy={"score_noise": 20.0}, search=search)


def test_where_scores_are_paid_for_there_is_no_family(hidden, digits):
    noise = make_score_noise(private_spec(), hidden)
    for declared, paid in ((hidden.metadata, noise), (hidden.metadata, None), (digits.metadata, noise)):
        assert free_points(None, declared, paid, ["accuracy"]) == {}
        assert free_points(False, declared, paid, ["accuracy"]) == {}
        with pytest.raises(SpecError, match=r"Expected no search\.free_points with evaluation: private"):
            free_points(True, declared, paid, ["accuracy"])


def test_a_trial_on_private_rows_draws_noise_for_its_epochs_and_for_nothing_else(hidden):
    source = RecordingSource(3)
    rows = list(trial(hidden, private_spec(), source=source).epoch_rows())
    assert not any(row.free for row in rows)
    assert sum(len(noise) == len(SCORES) for noise in source.normals) == EPOCHS


def test_exploratory_rows_are_marked_and_cost_nothing_more(digits):
    exploratory = replace(digits.metadata, evaluation=Evaluation.EXPLORATORY)
    assert free_points(None, exploratory, None, ["accuracy"]) == FAMILY


def test_a_spec_cannot_ask_for_them_on_private_rows():
    with pytest.raises(SpecError, match=r"no free_points with evaluation: private, .*got free_points=True"):
        private_spec(free_points=True)
    assert private_spec(free_points=False).search.free_points is False
    assert make_spec(CONTENT).search.free_points is None


@pytest.mark.parametrize("wrong", [1, "yes", [True]])
def test_a_spec_says_true_or_false(wrong):
    with pytest.raises(SpecError, match="free_points"):
        make_spec(CONTENT, search={"free_points": wrong})
