import json
import math

import optuna
import pytest
from optuna.trial import TrialState

from sweeper.records import Objective
from sweeper.search import ROW, FrontSearch, read_row
from sweeper.settings import Sampler

OBJECTIVES = tuple(Objective.named(name) for name in ("epsilon", "accuracy", "certified@36/255"))
GOOD = {"epsilon": 1.0, "accuracy": 0.5, "certified@36/255": 0.25}


def space(trial):
    rate = trial.suggest_float("training.learning_rate", 1e-4, 1.0, log=True)
    loss = trial.suggest_categorical("training.loss", ["tau-cce", "hinge"])
    proposal = {"rate": rate, "loss": loss}
    if loss == "tau-cce":
        proposal["temperature"] = trial.suggest_float("training.loss.tau-cce.temperature", 0.05, 100, log=True)
    return proposal


def make(**more):
    return FrontSearch(space, OBJECTIVES, **({"seed": 0} | more))


def packed(kind, epoch=0, **values):
    return {ROW: json.dumps({"kind": kind, "epoch": epoch, "values": values}), "done": False}


def values_of(proposal):
    return {
        "epsilon": proposal["rate"],
        "accuracy": 1 - proposal["rate"],
        "certified@36/255": len(proposal) / 3,
    }


def run(search, count, start=0):
    proposals = []
    for i in range(start, start + count):
        config = search.suggest(f"ray{i}")
        proposals.append(config["proposal"])
        search.on_trial_complete(f"ray{i}", packed("epoch", 1, **values_of(config["proposal"])))
    return proposals


def test_a_proposal_carries_the_trials_number_from_one():
    search = make()
    assert [search.suggest(f"ray{i}")["trial"] for i in range(3)] == ["t0001", "t0002", "t0003"]


def test_asked_again_for_a_trial_it_proposes_the_same():
    search = make()
    assert search.suggest("ray0") == search.suggest("ray0")
    assert len(search.study.trials) == 1


@pytest.mark.parametrize("sampler", [kind for kind in Sampler if kind is not Sampler.GRID])
def test_the_seed_and_the_results_fix_the_proposals(sampler):
    count = 12 if sampler is Sampler.GP else 25
    assert run(make(sampler=sampler), count) == run(make(sampler=sampler), count)
    assert run(make(sampler=sampler), 3) != run(make(sampler=sampler, seed=1), 3)


def test_tpe_learns_from_the_results():
    late = [proposal["rate"] for proposal in run(make(), 60)[-20:]]
    uniform = [proposal["rate"] for proposal in run(make(sampler=Sampler.RANDOM), 60)[-20:]]
    assert sum(map(math.log, late)) < sum(map(math.log, uniform))


def test_first_configurations_come_first_and_their_gaps_are_sampled():
    search = make(first=[{"training.learning_rate": 0.5, "training.loss": "hinge"}, {"training.loss": "tau-cce"}])
    assert search.suggest("ray0")["proposal"] == {"rate": 0.5, "loss": "hinge"}
    assert search.suggest("ray1")["proposal"].keys() == {"rate", "loss", "temperature"}


def test_a_trial_counts_with_its_last_epoch():
    search = make()
    search.suggest("ray0")
    search.on_trial_result("ray0", packed("plan"))
    search.on_trial_result("ray0", packed("epoch", 1, **GOOD))
    search.on_trial_complete("ray0", packed("epoch", 2, **(GOOD | {"accuracy": 0.75})))
    (trial,) = search.study.trials
    assert trial.state is TrialState.COMPLETE
    assert trial.values == [1.0, 0.75, 0.25]


def test_a_trial_without_privacy_is_a_result():
    search = make()
    search.suggest("ray0")
    search.on_trial_complete("ray0", packed("epoch", 1, **(GOOD | {"epsilon": math.inf})))
    assert search.study.trials[0].values == [math.inf, 0.5, 0.25]
    run(search, 30, start=1)


@pytest.mark.parametrize(
    "last",
    [
        packed("plan"),
        packed("epoch", 1, **(GOOD | {"accuracy": math.nan})),
        packed("epoch", 1, **(GOOD | {"accuracy": None})),
        packed("epoch", 1, **(GOOD | {"accuracy": "high"})),
        packed("epoch", 1, epsilon=1.0, accuracy=0.5),
        {"done": True},
        {},
        None,
    ],
    ids=["plan only", "nan", "none", "text", "missing", "no row", "empty", "nothing"],
)
def test_what_is_no_result_fails_its_trial(last):
    search = make()
    search.suggest("ray0")
    search.on_trial_complete("ray0", last)
    assert search.study.trials[0].state is TrialState.FAIL
    run(search, 15, start=1)


def test_a_later_nan_takes_an_earlier_result_back():
    search = make()
    search.suggest("ray0")
    search.on_trial_result("ray0", packed("epoch", 1, **GOOD))
    search.on_trial_complete("ray0", packed("epoch", 2, **(GOOD | {"epsilon": math.nan})))
    assert search.study.trials[0].state is TrialState.FAIL


def test_an_error_fails_a_trial_that_had_results():
    search = make()
    search.suggest("ray0")
    search.on_trial_result("ray0", packed("epoch", 1, **GOOD))
    search.on_trial_complete("ray0", error=True)
    assert search.study.trials[0].state is TrialState.FAIL


def test_a_space_that_raises_leaves_no_running_trial():
    def broken(_trial):
        raise ValueError("no such choice")

    search = FrontSearch(broken, OBJECTIVES, seed=0)
    with pytest.raises(ValueError, match="no such choice"):
        search.suggest("ray0")
    assert search.study.trials[0].state is TrialState.FAIL


def test_abandoned_trials_fail_and_later_news_of_them_is_ignored():
    search = make()
    search.suggest("ray0")
    search.suggest("ray1")
    search.on_trial_complete("ray1", packed("epoch", 1, **GOOD))
    search.abandon()
    search.on_trial_complete("ray0", packed("epoch", 1, **GOOD))
    assert [trial.state for trial in search.study.trials] == [TrialState.FAIL, TrialState.COMPLETE]


def test_a_restored_search_goes_on_as_the_saved_one(tmp_path):
    search = make()
    run(search, 12)
    search.suggest("ray12")
    search.on_trial_result("ray12", packed("epoch", 1, **GOOD))
    search.save_to_dir(str(tmp_path), "session")
    restored = make(seed=5)
    restored.restore_from_dir(str(tmp_path))
    for each in (search, restored):
        each.on_trial_complete("ray12")
    assert restored.study.trials[12].values == [1.0, 0.5, 0.25]
    assert run(restored, 8, start=13) == run(search, 8, start=13)
    assert restored.suggest("ray21")["trial"] == "t0022"


def test_the_space_may_be_a_closure_and_is_not_saved(tmp_path):
    lock = __import__("threading").Lock()  # what pickle refuses

    def closure(trial):
        with lock:
            return space(trial)

    search = FrontSearch(closure, OBJECTIVES, seed=0)
    search.suggest("ray0")
    search.save(str(tmp_path / "search.pkl"))
    search.restore(str(tmp_path / "search.pkl"))
    assert search.suggest("ray1")["trial"] == "t0002"


def test_ray_is_shown_no_metric_that_a_result_could_miss():
    assert make().metric is None


def test_making_a_search_says_nothing(capfd):
    make()
    assert capfd.readouterr() == ("", "")


def test_a_result_without_a_row_reads_as_empty():
    assert read_row({"done": True}) == {}


def test_the_samplers_are_the_ones_asked_for():
    assert isinstance(make(sampler=Sampler.TPE).study.sampler, optuna.samplers.TPESampler)
    assert isinstance(make(sampler=Sampler.RANDOM).study.sampler, optuna.samplers.RandomSampler)
