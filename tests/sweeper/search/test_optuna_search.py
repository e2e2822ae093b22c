import json
import math

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.trial import TrialState

from sweeper.records import Objective, Point
from sweeper.search.observation import Observation
from sweeper.search.optuna_search import Search
from sweeper.search.samplers import TOLD_EPOCHS
from sweeper.specification.constraints import parse_constraint
from sweeper.specification.search import Sampler

OBJECTIVES = tuple(Objective.named(name) for name in ("epsilon", "accuracy", "certified@36/255"))
GOOD = {"epsilon": 1.0, "accuracy": 0.5, "certified@36/255": 0.25}


def space(trial):
    rate = trial.suggest_float("training.learning_rate", 1e-4, 1.0, log=True)
    loss = trial.suggest_categorical("training.loss", ["tau-cce", "hinge"])
    proposal = {"rate": rate, "loss": loss}
    if loss == "tau-cce":
        proposal["temperature"] = trial.suggest_float("training.loss.tau-cce.temperature", 0.05, 100, log=True)
    return proposal


def grid(trial):
    return {"a": trial.suggest_int("a", 1, 6), "b": trial.suggest_categorical("b", ["x", "y"])}


def make(**more):
    return Search(**({"space": space, "objectives": OBJECTIVES, "seed": 0} | more))


def point(trial, epoch, **values):
    return Point(trial=trial, epoch=epoch, values=values)


def run(search, count):
    """Run trials of one epoch; what is good about a configuration is a small learning rate."""
    proposals = []
    for _ in range(count):
        trial = search.ask()
        proposal = search.open[trial]
        proposals.append(proposal)
        rate = proposal.get("rate", 0.1)
        search.report(point(trial, 1, epsilon=rate, accuracy=1 - rate, **{"certified@36/255": len(proposal) / 3}))
        search.finish(trial)
    return proposals


def outcomes(search):
    return [trial.values for trial in search.study.trials]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("sampler", [kind for kind in Sampler if kind is not Sampler.GRID])
def test_the_seed_and_the_results_fix_the_proposals(sampler):
    count = 12 if sampler is Sampler.GP else 25
    assert run(make(sampler=sampler), count) == run(make(sampler=sampler), count)
    assert run(make(sampler=sampler), 3) != run(make(sampler=sampler, seed=1), 3)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("sampler", list(Sampler))
def test_a_search_rebuilt_from_its_journal_goes_on_as_if_it_had_not_ended(sampler, tmp_path):
    count = 11 if sampler in (Sampler.GP, Sampler.GRID) else 19
    more = {"sampler": sampler, "space": grid if sampler is Sampler.GRID else space, "first": [{}]}
    whole = make(**more)
    expected = [*run(whole, count), whole.open[whole.ask()]]
    run(make(journal=tmp_path / "p.jsonl", **more), count - 4)
    again = make(journal=tmp_path / "p.jsonl", **more)
    assert [*run(again, 4), again.open[again.ask()]] == expected[-5:]
    assert again.asked == count + 1


def test_a_trial_that_was_open_is_open_again_with_its_proposal(tmp_path):
    search = make(journal=tmp_path / "p.jsonl")
    run(search, 2)
    trial = search.ask()
    again = make(journal=tmp_path / "p.jsonl")
    assert again.open == search.open
    again.report(point(trial, 1, **GOOD))
    again.finish(trial)
    assert again.study.trials[2].state is TrialState.COMPLETE
    assert make(journal=tmp_path / "p.jsonl").open == {}


@settings(max_examples=15, deadline=None)
@given(order=st.permutations(range(6)), cut=st.integers(0, 12))
def test_whenever_it_is_killed_the_journal_holds_what_was_asked_and_told(order, cut, tmp_path_factory):
    """Six trials are open at once and end in any order; the journal is cut anywhere."""
    path = tmp_path_factory.mktemp("search") / "p.jsonl"
    search = make(journal=path)
    trials = [search.ask() for _ in range(6)]
    for number in order:
        search.report(point(trials[number], 1, **GOOD | {"accuracy": number / 6}))
        search.finish(trials[number], failed=number == 3)
    rows = path.read_text().splitlines(keepends=True)
    path.write_text("".join(rows[:cut]))
    again = make(journal=path)
    told = {json.loads(row)["trial"] for row in rows[6:cut]}
    assert set(again.open) == set(trials[:cut]) - told
    assert all(again.open[trial] == space(again._trials[trial]) for trial in again.open)
    assert [t.params for t in again.study.trials] == [t.params for t in search.study.trials[: min(cut, 6)]]


def gaussian(**more):
    return make(sampler=Sampler.GP, **more)


def journalled(path):
    return [(row["event"], row["trial"]) for row in map(json.loads, path.read_text().splitlines())]


@pytest.mark.long
def test_a_slow_proposal_is_worked_out_when_the_one_before_it_is_handed_out(tmp_path):
    ahead, plain = gaussian(trials=14, journal=tmp_path / "j"), gaussian()
    found = run(ahead, 14)
    expected, waiting = [], plain.ask()
    for number in range(2, 16):  # the same, with nothing in a thread
        trial, waiting = waiting, plain.ask() if number <= 14 else ""
        expected.append(plain.open[trial])
        rate = expected[-1].get("rate", 0.1)
        values = {"epsilon": rate, "accuracy": 1 - rate, "certified@36/255": len(expected[-1]) / 3}
        plain.report(Point(trial=trial, epoch=1, values=values))
        plain.finish(trial)
    assert found == expected
    told = journalled(tmp_path / "j")
    assert told[:4] == [("ask", "t0001"), ("ask", "t0002"), ("tell", "t0001"), ("ask", "t0003")]
    assert [trial for event, trial in told if event == "ask"] == [f"t{number:04d}" for number in range(1, 15)]


@pytest.mark.long
@pytest.mark.parametrize("killed_after", [1, pytest.param(12, marks=pytest.mark.long)])
def test_a_proposal_that_nobody_was_handed_is_the_next_one_after_a_kill(killed_after, tmp_path):
    whole = run(gaussian(trials=14), 14)
    run(gaussian(trials=14, journal=tmp_path / "j"), killed_after)
    search = gaussian(trials=14, journal=tmp_path / "j")
    (waiting,) = search.open
    assert search.open[waiting] == whole[killed_after]
    assert search.asked == killed_after + 1
    assert journalled(tmp_path / "j")[-1] == ("tell", f"t{killed_after:04d}")


def test_there_are_as_many_as_were_asked_for_while_one_is_prepared():
    search = gaussian(trials=2)
    first = search.ask()
    search.finish(first, failed=True)
    assert search.asked == 1
    assert search.ask() == "t0002"
    assert search.asked == 2


def test_what_goes_wrong_in_a_proposal_that_is_prepared_is_not_lost():
    def space_of_one(trial):
        if trial.number:
            raise ValueError("no second trial")
        return space(trial)

    search = gaussian(space=space_of_one, trials=2)
    search.ask()
    with pytest.raises(ValueError, match="no second trial"):
        search.ask()


@pytest.mark.parametrize("sampler", [Sampler.TPE, Sampler.RANDOM])
def test_quick_samplers_know_of_every_trial_that_has_ended(sampler, tmp_path):
    search = make(sampler=sampler, trials=5, journal=tmp_path / "j")
    search.finish(search.ask(), failed=True)
    assert journalled(tmp_path / "j") == [("ask", "t0001"), ("tell", "t0001")]


@pytest.mark.long
def test_tpe_learns_from_the_results():
    late = [proposal["rate"] for proposal in run(make(), 60)[-20:]]
    uniform = [proposal["rate"] for proposal in run(make(sampler=Sampler.RANDOM), 60)[-20:]]
    assert sum(map(math.log, late)) < sum(map(math.log, uniform))


def test_first_configurations_come_first_and_their_gaps_are_sampled():
    search = make(first=[{"training.learning_rate": 0.5, "training.loss": "hinge"}, {"training.loss": "tau-cce"}])
    assert search.open[search.ask()] == {"rate": 0.5, "loss": "hinge"}
    assert search.open[search.ask()].keys() == {"rate", "loss", "temperature"}


def test_what_is_enqueued_comes_next(tmp_path):
    search = make(journal=tmp_path / "p.jsonl")
    run(search, 2)
    search.enqueue({"training.learning_rate": 0.5, "training.loss": "hinge"})
    assert search.open[search.ask()] == {"rate": 0.5, "loss": "hinge"}
    again = make(journal=tmp_path / "p.jsonl", first=[{"training.learning_rate": 0.5, "training.loss": "hinge"}])
    assert again.open[again.ask()] != {"rate": 0.5, "loss": "hinge"}  # that one was tried


@pytest.mark.parametrize("sampler", [Sampler.TPE, Sampler.NSGA2])  # one that remembers nothing, and one that does
def test_what_is_enqueued_still_waits_after_a_kill_behind_what_a_stage_has_promoted(sampler, tmp_path):
    waits = {"training.learning_rate": 0.5, "training.loss": "hinge"}
    promoted = {"training.learning_rate": 0.25, "training.loss": "hinge"}
    search = make(sampler=sampler, journal=tmp_path / "p.jsonl")
    run(search, 1)
    for same in (promoted, waits):  # what is promoted may even be what somebody asks for
        search.enqueue(same, comes_again=False)
        search.ask()
    search.enqueue(waits)
    again = make(sampler=sampler, journal=tmp_path / "p.jsonl", first=[waits])
    assert again.waiting == (waits,)
    assert again.proposals == search.proposals
    assert again.open[again.ask()] == {"rate": 0.5, "loss": "hinge"}
    assert make(sampler=sampler, journal=tmp_path / "p.jsonl", first=[waits]).waiting == ()


def test_a_trial_counts_with_its_epochs_on_the_front():
    search = make()
    trial = search.ask()
    for epoch in range(1, 7):
        search.report(point(trial, epoch, epsilon=epoch / 4, accuracy=min(epoch, 4) / 8, **{"certified@36/255": 0.1}))
    search.finish(trial)
    assert len(outcomes(search)) == TOLD_EPOCHS
    assert {tuple(values) for values in outcomes(search)} < {(e / 4, e / 8, 0.1) for e in range(1, 5)}
    assert len({str(trial.params) for trial in search.study.trials}) == 1


def test_a_trial_without_an_epoch_on_the_front_counts_with_its_last():
    search = make()
    best, worse = search.ask(), search.ask()
    search.report(point(best, 1, epsilon=0.1, accuracy=0.9, **{"certified@36/255": 0.9}))
    for epoch in (1, 2):
        search.report(point(worse, epoch, epsilon=float(epoch), accuracy=0.1 * epoch, **{"certified@36/255": 0.1}))
    search.finish(worse)
    assert search.study.trials[1].values == [2.0, 0.2, 0.1]


@pytest.mark.parametrize("sampler", [Sampler.NSGA2, Sampler.RANDOM, Sampler.GP])
def test_other_samplers_are_told_the_epoch_that_adds_most(sampler):
    search = make(sampler=sampler)
    trial = search.ask()
    for epoch, accuracy in ((1, 0.1), (2, 0.8), (3, 0.81)):
        search.report(point(trial, epoch, epsilon=float(epoch), accuracy=accuracy, **{"certified@36/255": 0.5}))
    search.finish(trial)
    assert outcomes(search) == [[2.0, 0.8, 0.5]]


def test_a_trial_without_privacy_is_a_result(tmp_path):
    search = make(journal=tmp_path / "p.jsonl")
    trial = search.ask()
    search.report(point(trial, 1, **(GOOD | {"epsilon": math.inf})))
    search.finish(trial)
    assert outcomes(make(journal=tmp_path / "p.jsonl")) == outcomes(search) == [[math.inf, 0.5, 0.25]]
    run(search, 30)


@pytest.mark.parametrize(
    "values",
    [GOOD | {"accuracy": math.nan}, GOOD | {"accuracy": None}, GOOD | {"accuracy": "high"}, {"epsilon": 1.0}, None],
    ids=["nan", "none", "text", "missing", "no epoch"],
)
def test_what_is_no_result_fails_its_trial(values):
    search = make()
    trial = search.ask()
    if values is not None:
        search.report(point(trial, 1, **values))
    search.finish(trial)
    assert search.study.trials[0].state is TrialState.FAIL
    run(search, 15)


def test_a_trial_fails_with_its_error_and_ends_once():
    search = make()
    trial = search.ask()
    search.report(point(trial, 1, **GOOD))
    search.finish(trial, failed=True)
    assert search.study.trials[0].state is TrialState.FAIL
    search = make()
    trial = search.ask()
    search.finish(trial, failed=True)
    search.report(point(trial, 2, **GOOD))
    search.finish(trial)
    assert [trial.state for trial in search.study.trials] == [TrialState.FAIL]
    search = make()
    search.finish(search.ask(), failed=True)
    search.steer(REGION)
    assert [trial.state for trial in search.study.trials] == [TrialState.FAIL]


def test_a_space_that_raises_leaves_no_running_trial():
    def broken(_trial):
        raise ValueError("no such choice")

    search = make(space=broken)
    with pytest.raises(ValueError, match="no such choice"):
        search.ask()
    assert search.study.trials[0].state is TrialState.FAIL
    assert search.asked == 0


def test_constraints_are_told_with_each_outcome(tmp_path):
    constraint = parse_constraint("accuracy >= 0.6", ["accuracy"])
    search = make(constraints=[constraint], journal=tmp_path / "p.jsonl")
    trial = search.ask()
    for epoch, accuracy in ((1, 0.5), (2, 0.7)):
        search.report(point(trial, epoch, epsilon=float(epoch), accuracy=accuracy, **{"certified@36/255": 0.5}))
    search.finish(trial)
    for one in (search, make(constraints=[constraint], journal=tmp_path / "p.jsonl")):
        told = {trial.values[1]: trial.constraints for trial in one.study.trials}
        assert {a: violation["accuracy >= 0.6"] for a, violation in told.items()} == pytest.approx(
            {0.5: 0.1, 0.7: -0.1}
        )


def test_outcomes_of_earlier_sweeps_are_learned_from_and_are_no_trials(tmp_path):
    params = {"training.learning_rate": 0.01, "training.loss": "hinge"}
    first = make(earlier=[Observation(params, (1.0, 0.9, 0.5), {"epsilon <= 2": -1.0})], journal=tmp_path / "p.jsonl")
    for search in (first, make(journal=tmp_path / "p.jsonl")):
        (told,) = search.study.trials
        assert (told.params, told.values, told.constraints) == (params, [1.0, 0.9, 0.5], {"epsilon <= 2": -1.0})
        assert search.asked == 0
    assert first.ask() == "t0001"


def test_ids_that_are_taken_are_left_out():
    search = make()
    search.skip(4)
    assert search.ask() == "t0005"


def test_the_samplers_are_the_ones_asked_for():
    for sampler, kind in ((Sampler.TPE, optuna.samplers.TPESampler), (Sampler.GRID, optuna.samplers.BruteForceSampler)):
        search = make(sampler=sampler, space=grid)
        search.ask()
        assert isinstance(search.study.sampler, kind)


REGION = [parse_constraint("epsilon <= 0.01", ["epsilon"])]


@pytest.mark.parametrize("sampler", [Sampler.TPE, Sampler.NSGA2, Sampler.GP])
def test_a_region_is_told_with_every_outcome_of_before_and_after_and_survives_the_journal(sampler, tmp_path):
    known = parse_constraint("accuracy >= 0.6", ["accuracy"])
    options = {"sampler": sampler, "constraints": [known], "journal": tmp_path / "p.jsonl"}
    search = make(**options)
    run(search, 5)
    open_ = search.ask()
    proposal = search.open[open_]
    search.steer(REGION)
    search.report(point(open_, 1, **GOOD))
    search.finish(open_)
    run(search, 3)
    again = make(**options)
    for one in (search, again):
        assert one.region == tuple(REGION)
        told = [trial for trial in one.study.trials if trial.state is TrialState.COMPLETE]
        assert len(told) == 9
        for trial in told:
            assert trial.constraints == pytest.approx(
                {"accuracy >= 0.6": 0.6 - trial.values[1], "epsilon <= 0.01": trial.values[0] - 0.01}
            )
    assert again.proposals == search.proposals
    assert search.proposals[open_] == proposal, "what runs goes on as it was"
    assert again.ask() == search.ask()
    assert again.open == search.open


@pytest.mark.long
def test_the_search_goes_where_it_is_steered_and_back():
    def near(search):
        return sum(abs(math.log(proposal["rate"] / 0.2)) < 0.7 for proposal in run(search, 40))

    free, steered = make(), make()
    run(free, 20), run(steered, 20)
    region = [parse_constraint(text, ["epsilon"]) for text in ("epsilon >= 0.1", "epsilon <= 0.4")]
    steered.steer(region)
    assert near(steered) > 2 * near(free)
    steered.steer([])
    assert all(trial.constraints == {} for trial in steered.study.trials)


def test_a_region_that_is_asked_for_again_changes_nothing(tmp_path):
    search = make(journal=tmp_path / "p.jsonl")
    run(search, 2)
    search.steer(REGION)
    before, study = (tmp_path / "p.jsonl").read_text(), search.study
    search.steer(list(REGION))
    assert ((tmp_path / "p.jsonl").read_text(), search.study) == (before, study)
