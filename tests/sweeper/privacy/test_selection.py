"""Private selection while candidates run: conditions, the winner, and a prior that no seed gives away."""

import json
import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from clipless.datasets import Evaluation
from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.events import PoissonGaussian, Relation
from clipless.privacy.randomness import SecureSource
from clipless.testing import SeededSource
from sweeper.privacy.selection import Ending, IndependentProposer, PrivateSelection, Terms, same_event
from sweeper.records import Objective, Point
from sweeper.specification.constraints import parse_constraint
from sweeper.specification.spec import Spec

GEOMETRIC = Repetitions(mean=5.0)


class Bytes(SecureSource):
    """Counts as secure and draws the same byte again and again: byte 128 makes ``GEOMETRIC`` draw 4."""

    def random_bytes(self, count):
        return bytearray([128]) * count


class Zeros(SecureSource):
    """Counts as secure and makes every law draw its least number."""

    def random_bytes(self, count):
        return bytearray(count)


@pytest.fixture
def begin(event, objectives):
    """Make a private selection of four candidates."""

    def make(**changes):
        given = {"terms": Terms(event=event, repetitions=GEOMETRIC), "objectives": objectives, "source": Bytes()}
        return PrivateSelection(**(given | changes))

    return make


@pytest.fixture
def run(begin, event, make_point):
    """Run candidates of the given accuracies, the first of which are those of the first."""

    def go(accuracies, **changes):
        selection = begin(**changes)
        for i, epochs in enumerate(accuracies):
            name = f"t{i + 1:04d}"
            selection.begin(name)
            selection.plan(name, event, selection.terms.scores)
            selection.draw(name)
            for epoch, accuracy in enumerate(epochs, start=1):
                selection.score(make_point(name, epoch, float(epoch), accuracy))
            selection.end(name, Ending.COMPLETED)
        return selection

    return go


FOUR = [[0.5, 0.7], [0.9, 0.2], [0.1, 0.1], [0.9, 0.9]]


def test_four_are_drawn_here(begin):
    assert begin().number == 4


def test_the_best_epoch_of_the_best_candidate_wins_when_all_went_well(run):
    selection = run(FOUR)
    assert selection.broken() == ()
    assert selection.settled() == selection.terms
    assert selection.winner().key == ("t0002", 1, "")


def test_ties_go_to_the_candidate_proposed_first_whenever_it_ended(begin, event, make_point):
    selection = begin()
    names = ["t0001", "t0002", "t0003", "t0004"]
    for name in names:
        selection.begin(name)
        selection.plan(name, event)
    for name in reversed(names):
        selection.score(make_point(name, 1, 1.0 / int(name[-1]), 0.5))
        selection.end(name, Ending.COMPLETED)
    assert (selection.winner().trial, selection.broken()) == ("t0001", ())


def test_points_made_from_iterates_are_scores_of_their_candidate_and_no_candidates(begin, event, make_point):
    """A candidate is as good as the best of its points; of equal candidates the first wins, whichever point it was."""
    selection = begin()
    for number, scores in enumerate([{"": 0.5, "slow": 0.8}, {"": 0.8}, {"": 0.1}, {"": 0.7, "slow": 0.75}], start=1):
        name = f"t000{number}"
        selection.begin(name)
        selection.plan(name, event)
        for made_from, accuracy in scores.items():
            selection.score(replace(make_point(name, 1, 1.0, accuracy), made_from=made_from))
        selection.end(name, Ending.COMPLETED)
    assert selection.broken() == ()
    assert selection.winner().key == ("t0001", 1, "slow")


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(st.permutations(range(4)), st.lists(st.sampled_from([0.2, 0.5, 0.9, math.nan]), min_size=4, max_size=4))
def test_the_order_in_which_candidates_end_decides_nothing(order, accuracies):
    event = PoissonGaussian(noise_multiplier=2.0, sampling_rate=0.2, steps=5, relation=Relation.ADD_OR_REMOVE_ONE)
    objectives = tuple(map(Objective.named, ("epsilon", "accuracy")))

    def winner(order):
        selection = PrivateSelection(
            terms=Terms(event=event, repetitions=GEOMETRIC), objectives=objectives, source=Bytes()
        )
        for i in range(4):
            selection.begin(f"t{i}")
            selection.plan(f"t{i}", event)
        for i in order:
            selection.score(Point(trial=f"t{i}", epoch=1, values={"epsilon": 1.0, "accuracy": accuracies[i]}))
            selection.end(f"t{i}", Ending.COMPLETED)
        found = selection.winner()
        return None if found is None else found.key

    assert winner(order) == winner(range(4))


def test_ties_in_the_order_of_proposals_win_like_a_fair_coin():
    """Candidates are exchangeable: the first of equals has the law of a uniformly chosen one, also of its other values."""
    event = PoissonGaussian(noise_multiplier=2.0, sampling_rate=0.2, steps=5, relation=Relation.ADD_OR_REMOVE_ONE)
    objectives = tuple(map(Objective.named, ("epsilon", "accuracy")))
    terms, proposer, found = Terms(event=event, repetitions=GEOMETRIC), IndependentProposer(SeededSource(0)), Counter()
    for _ in range(400):
        selection = PrivateSelection(terms=terms, objectives=objectives, source=Bytes())
        for i in range(4):
            selection.begin(f"t{i}")
            selection.plan(f"t{i}", event)
            mark = proposer.suggest_int("mark", 0, 3, step=1, log=False)
            values = {"epsilon": 1.0, "accuracy": 0.5, "mark": mark}
            selection.score(Point(trial=f"t{i}", epoch=1, values=values))
            selection.end(f"t{i}", Ending.COMPLETED)
        found[selection.winner().values["mark"]] += 1
    assert stats.chisquare([found[mark] for mark in range(4)]).pvalue > 1e-4


def test_the_winner_meets_the_constraints_or_misses_them_least(begin, event, make_point):
    constraints = [parse_constraint("certified@1/4 >= 0.3", ["certified@1/4"])]

    def winner(*outcomes):
        selection = begin(constraints=constraints)
        for i, (accuracy, certified) in enumerate(outcomes):
            selection.begin(f"t{i}")
            selection.plan(f"t{i}", event)
            selection.score(make_point(f"t{i}", 1, 1.0, accuracy, certified))
            selection.end(f"t{i}", Ending.COMPLETED)
        return selection.winner().trial

    assert winner((0.9, 0.2), (0.6, 0.3), (0.7, 0.5), (0.5, 0.9)) == "t2"
    assert winner((0.9, 0.1), (0.6, 0.29), (0.95, 0.2), (0.5, 0.0)) == "t1"


def test_a_nan_is_the_worst_outcome_and_no_broken_condition(begin, event, make_point):
    selection = begin()
    for i, ending in enumerate([Ending.UNDEFINED, Ending.REFUSED, Ending.COMPLETED, Ending.UNDEFINED]):
        selection.begin(f"t{i}")
        if ending is not Ending.REFUSED:
            selection.plan(f"t{i}", event)
            selection.score(make_point(f"t{i}", 1, 1.0, 0.9 - 0.2 * i))
        selection.end(f"t{i}", ending)
    assert (selection.winner().trial, selection.broken()) == ("t2", ())


def test_without_any_score_nobody_wins(run):
    assert run([[math.nan]] * 4).winner() is None


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        (Ending.STOPPED, "Candidate t0004 was ended before its planned steps were done."),
        (Ending.CRASHED, "Candidate t0004 crashed, and what made it crash may have been the data."),
        (Ending.REFUSED, "Candidate t0004 was refused after it had been planned."),
    ],
)
def test_any_other_end_breaks_the_conditions(run, ending, said):
    selection = run(FOUR)
    selection.end("t0004", ending)
    assert selection.broken() == (said,)
    assert selection.settled().broken == (said,)
    assert selection.winner().key == ("t0002", 1, "")


def test_another_event_breaks_the_conditions(run, event):
    for other in (
        event.with_steps(51),
        PoissonGaussian(noise_multiplier=1.9, sampling_rate=0.2, steps=50, relation=event.relation),
    ):
        selection = run(FOUR[:2])
        selection.begin("t0003")
        selection.plan("t0003", other)
        assert selection.broken_so_far() == ("Candidate t0003 planned another event than the one that is priced.",)


def test_a_candidate_that_starts_again_breaks_the_conditions_once(run):
    selection = run(FOUR)
    selection.begin("t0001")
    selection.begin("t0001")
    (said,) = selection.broken()
    assert said.startswith("Candidate t0001 was started again")


def test_a_second_plan_after_the_first_noise_breaks_the_conditions(run, event):
    selection = run(FOUR)
    selection.plan("t0001", event)
    assert selection.broken() == ("Candidate t0001 planned anew after its first noise.",)


def test_a_lost_candidate_has_the_worst_outcome_and_breaks_nothing(run):
    """The best epoch of all is that of t0002; once lost it never wins, and the next best candidate does."""
    selection = run(FOUR)
    selection.end("t0002", Ending.LOST)
    assert (selection.broken(), selection.winner().key) == ((), ("t0004", 1, ""))
    for name in ("t0001", "t0003", "t0004"):
        selection.end(name, Ending.LOST)
    assert (selection.broken(), selection.winner()) == ((), None)


def test_a_candidate_that_drew_nothing_may_start_again_or_leave_its_place(run, event):
    selection = run(FOUR[:3])
    selection.begin("t0004")
    selection.plan("t0004", event)
    selection.begin("t0004")
    selection.plan("t0004", event)
    assert (selection.left, selection.is_over, selection.broken_so_far()) == (0, False, ())
    selection.withdraw("t0004")
    assert (selection.left, selection.is_over) == (1, False)


def test_a_candidate_that_drew_never_leaves_its_place(run, event):
    """Otherwise more candidates would draw than the one number that was drawn."""
    selection = run(FOUR[:3])
    selection.begin("t0004")
    selection.plan("t0004", event)
    selection.draw("t0004")
    selection.withdraw("t0004")
    assert (selection.left, selection.is_over, selection.broken()) == (0, True, ())


def test_an_earlier_number_is_not_drawn_again(begin):
    assert begin(earlier=7).number == 7
    assert begin(earlier=0).number == 0


@pytest.mark.parametrize("candidates", [FOUR[:3], [*FOUR, [0.1]], []])
def test_another_number_than_was_drawn_breaks_the_conditions(run, candidates):
    (said,) = run(candidates).broken()
    assert said.startswith(f"4 candidates were drawn, but {len(candidates)} began")


def test_a_candidate_that_has_not_ended_breaks_the_conditions(run):
    selection = run(FOUR[:3])
    selection.begin("t0004")
    assert selection.broken() == ("4 candidates were drawn, but 4 began and 3 ended.",)


def test_a_score_without_a_plan_breaks_the_conditions(run, make_point):
    selection = run(FOUR[:3])
    selection.begin("t0004")
    selection.score(make_point("t0004", 1, 1.0, 0.9))
    selection.end("t0004", Ending.COMPLETED)
    assert selection.broken() == ("Candidate t0004 was scored without a plan.",)


def test_scores_of_private_rows_have_to_be_paid(run, event):
    assert "without paying" in run(FOUR, evaluation=Evaluation.EXPLORATORY).broken()[0]
    assert "private rows without noise" in run(FOUR, evaluation=Evaluation.PRIVATE).broken()[0]
    paid = Terms(event=event, repetitions=GEOMETRIC, scores=event)
    assert run(FOUR, evaluation=Evaluation.PRIVATE, terms=paid).broken() == ()


@pytest.mark.parametrize("planned", [None, 49, 51])
def test_other_releases_of_scores_than_those_that_are_priced_break_the_conditions(begin, event, planned):
    selection = begin(evaluation=Evaluation.PRIVATE, terms=Terms(event=event, repetitions=GEOMETRIC, scores=event))
    selection.begin("t0001")
    selection.plan("t0001", event, None if planned is None else event.with_steps(planned))
    assert selection.trouble == "Candidate t0001 planned other releases of scores than those that are priced."


def test_an_injected_generator_breaks_the_conditions(begin):
    assert "injected generator" in begin(source=SeededSource(0)).broken()[-1]


def test_a_relation_without_a_price_breaks_the_conditions(run):
    other = PoissonGaussian(noise_multiplier=2.0, sampling_rate=0.2, steps=50, relation=Relation.REPLACE_ONE)
    assert any(
        "add-or-remove-one" in said for said in run(FOUR, terms=Terms(event=other, repetitions=GEOMETRIC)).broken()
    )


def test_noise_may_differ_in_its_last_digits_and_the_price_counts_the_least(event):
    nearly = PoissonGaussian(noise_multiplier=2.0 * (1 - 9e-10), sampling_rate=0.2, steps=50, relation=event.relation)
    far = PoissonGaussian(noise_multiplier=2.0 * (1 - 2e-9), sampling_rate=0.2, steps=50, relation=event.relation)
    assert same_event(event, nearly)
    assert not same_event(event, far)
    terms = Terms(event=event, repetitions=GEOMETRIC)
    assert terms.priced.noise_multiplier < nearly.noise_multiplier


def test_terms_travel_as_json_and_hold_no_number_of_candidates(run, event):
    terms = run(FOUR).settled()
    assert Terms.from_json(json.loads(json.dumps(terms.to_json()))) == terms
    alone = run(FOUR[:1], source=Zeros())
    assert (alone.number, alone.settled().to_json()) == (1, terms.to_json())
    other = Terms(event=event, repetitions=GEOMETRIC, scores=event.with_steps(3), breaks=("One.", "Two."))
    assert Terms.from_json(other.to_json()) == other


def test_the_number_is_not_shown(begin):
    selection = begin()
    assert "number" not in repr(selection)
    assert "candidates" not in repr(selection)


# --- the prior


def test_every_candidate_asks_fresh_randomness_within_the_search_space(content):
    content["training"] |= {
        "learning_rate": {"log": [1e-3, 1.0]},
        "momentum": {"uniform": [0.0, 0.75], "step": 0.25},
        "optimizer": ["adam", "sgd"],
        "loss": ["tau-bce", {"name": "tau-cce", "temperature": {"uniform": [0.5, 2.0]}}],
    }
    content["model"] |= {"depth": {"int": [1, 3]}, "width": [8, 16, 24], "input_clip": {"uniform": [1, 2]}}
    content["search"] = {"selection": "private", "sampler": "random"}
    spec = Spec.from_mapping(content)
    proposals = [spec.space.suggest(IndependentProposer()) for _ in range(40)]
    assert len({str(proposal) for proposal in proposals}) == 40
    for proposal in proposals:
        spec.space.resolve(proposal)
    assert len({proposal["training.optimizer"] for proposal in proposals}) == 2
    assert {proposal["training.momentum"] for proposal in proposals if "training.momentum" in proposal} <= {
        0,
        0.25,
        0.5,
        0.75,
    }


@pytest.mark.parametrize(
    ("ask", "law"),
    [
        (lambda p: p.suggest_float("x", 2.0, 4.0, step=None, log=False), stats.uniform(2.0, 2.0)),
        (lambda p: p.suggest_float("x", 1e-3, 10.0, step=None, log=True), stats.loguniform(1e-3, 10.0)),
        (lambda p: p.initial_seed(), stats.uniform(0.0, 2.0**63)),
    ],
)
def test_numbers_are_uniform_on_their_scale(ask, law):
    proposer = IndependentProposer(SeededSource(5))
    drawn = [ask(proposer) for _ in range(1500)]
    assert stats.kstest(drawn, law.cdf).pvalue > 1e-4
    assert law.support()[0] <= min(drawn) <= max(drawn) <= law.support()[1]


@pytest.mark.parametrize(
    ("ask", "shares"),
    [
        (lambda p: p.suggest_int("n", 3, 9, step=2, log=False), dict.fromkeys((3, 5, 7, 9), 0.25)),
        (lambda p: p.suggest_float("x", 0.0, 0.3, step=0.1, log=False), dict.fromkeys((0, 1, 2, 3), 0.25)),
        (lambda p: p.suggest_categorical("c", ["a", "b", "c"]), dict.fromkeys("abc", 1 / 3)),
        (
            lambda p: p.suggest_int("n", 1, 3, step=1, log=True),
            {n: math.log((n + 0.5) / (n - 0.5)) / math.log(7.0) for n in (1, 2, 3)},
        ),
    ],
)
def test_each_value_of_a_grid_has_its_share(ask, shares):
    proposer, found = IndependentProposer(SeededSource(6)), Counter()
    for _ in range(1500):
        value = ask(proposer)
        found[round(value * 10) if isinstance(value, float) else value] += 1
    assert set(found) == set(shares)
    assert stats.chisquare([found[v] for v in shares], [1500 * share for share in shares.values()]).pvalue > 1e-4
