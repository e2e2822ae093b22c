"""Which scores of configurations are compared, and which settings go with them."""

from dataclasses import replace

import pytest

from dashboards.figures.hyperparameters import configurations
from dashboards.figures.hyperparameters._content import is_setting
from dashboards.figures.hyperparameters._judged import correlations, correlations_in_words, judge
from sweeper.records import Point, Trial


@pytest.fixture
def made(small):
    """Trials whose accuracy grows with a setting, beside one that is drawn by lot and one that is a text."""

    def make(count, epsilons=None, scores=None):
        lot = [7 * i % 11 for i in range(count)]
        scores = scores or [0.5 + 0.3 * i / count for i in range(count)]
        points = [
            Point(trial=f"t{i:02}", epoch=1, values={"epsilon": (epsilons or {}).get(i, 1.0), "accuracy": scores[i]})
            for i in range(count)
        ]
        configs = [{"rate": -0.1 * i, "lot": lot[i], "kind": "ab"[i % 2]} for i in range(count)]
        trials = tuple(Trial(id=f"t{i:02}", config=config) for i, config in enumerate(configs))
        return configurations.info(small(points, objectives=("epsilon", "accuracy"), trials=trials))

    return make


def found_of(info):
    judged = judge(info)
    return judged, correlations(judged, [axis for axis in info.axes if is_setting(info, axis)])


def test_a_setting_that_goes_with_the_scores_is_named_and_one_by_lot_is_not(made):
    judged, found = found_of(made(12))
    assert found == {"rate": pytest.approx(-1.0)}
    assert judged.ends == (0.5, pytest.approx(0.775))
    said = "larger values go with better colours (rank correlations of 12 lines, where beyond chance)"
    assert correlations_in_words(judged, found, listed=False).endswith(said)
    assert correlations_in_words(judged, found, listed=True).startswith(
        "\N{GREEK SMALL LETTER RHO} of rate \N{MINUS SIGN}1.00; "
    )
    judged, found = found_of(made(12, scores=[0.5 + (5 * i % 7) / 100 for i in range(12)]))
    assert found == {}
    assert correlations_in_words(judged, found, listed=False) == (
        "no setting goes with the colours beyond chance (rank correlations of 12 lines)"
    )


def test_of_few_lines_nothing_is_said(made):
    judged, found = found_of(made(7))
    assert found is None
    assert (
        correlations_in_words(judged, found, listed=False)
        == "7 coloured lines are too few to tell which settings matter"
    )
    assert found_of(made(8))[1] is not None


def test_scores_of_other_epsilons_are_judged_by_how_far_they_are_behind_the_best_of_no_larger_ones(made):
    scores = [0.5, 0.4, 0.45, 0.7, 0.9, 0.6, 0.3, 0.8]
    epsilons = dict(enumerate([1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]))
    info = made(8, epsilons=epsilons, scores=scores)
    assert info.behind == pytest.approx([0.0, 0.1, 0.25, 0.0, 0.0, 0.3, 0.6, 0.1])
    judged, _ = found_of(info)
    assert judged.title == "accuracy behind the best of no larger own epsilon"
    assert (judged.scores, judged.ends) == (dict(enumerate(info.behind)), (pytest.approx(0.6), 0.0))
    assert [judged.share(i) for i in range(8)] == pytest.approx([1.0, 5 / 6, 1 - 0.25 / 0.6, 1.0, 1.0, 0.5, 0.0, 5 / 6])
    assert judge(replace(info, sure=(0.4, 0.95))).ends == (pytest.approx(1.0), 0.0), "half of it is within the interval"
    near = made(8, epsilons={i: 1.0 + one / 4.0 for i, one in epsilons.items()}, scores=scores)
    assert near.behind == (), "2 is not far from 1.25"
    assert judge(near).title == "accuracy"


def test_points_that_few_trials_have_reached_are_not_compared(made):
    """A first epoch at a small epsilon is the best one there whatever it is."""
    info = made(9, epsilons={i: 0.1 * 2.0**i for i in range(9)}, scores=[0.9 - 0.1 * i for i in range(9)])
    judged = judge(info)
    assert sorted(judged.scores) == list(range(2, 9)), "one in four have reached the third"
    assert [gap != gap for gap in info.behind] == [True] * 2 + [False] * 7
    assert judged.scores[8] == pytest.approx(0.8), "but it is what others are compared with"


def test_a_setting_without_an_order_goes_with_scores_if_it_has_two_values_and_all_trials_have_it(made):
    scores = [0.5 + 0.2 * (i % 2) + i / 1000 for i in range(12)]
    info = made(12, scores=scores)
    kind = next(axis for axis in info.axes if axis.name == "kind")
    judged = judge(info)
    (found,) = correlations(judged, [kind]).values()
    assert found > 0.8, "the upper one, b, is the better one"
    of_three = replace(kind, values=(*kind.values[:-1], "c"))
    of_a_choice = replace(kind, values=tuple({"a": None}.get(one, one) for one in kind.values))
    assert correlations(judged, [of_three]) == correlations(judged, [of_a_choice]) == {}


def test_settings_that_matter_stand_next_to_the_results_with_their_correlation(made):
    drawn = configurations.plot(replace(made(12), still=True))
    names = list(drawn.layout.xaxis.ticktext)
    rho = "<br><i>\N{GREEK SMALL LETTER RHO} \N{MINUS SIGN}1.00</i>"
    assert names == ["lot", "kind", f"rate{rho}", "accuracy"]
    scores = [0.5 + 0.2 * (i % 2) + i / 1000 for i in range(12)]
    assert (
        "kind<br><i>b better</i>"
        in configurations.plot(replace(made(12, scores=scores), still=True)).layout.xaxis.ticktext
    )
    other = made(12, scores=[1.0 - score for score in scores])
    assert "kind<br><i>a better</i>" in configurations.plot(replace(other, still=True)).layout.xaxis.ticktext
    (terms,) = (note.text for note in drawn.layout.annotations if note.name == "terms")
    assert "with better colours (rank correlations of 12 lines" in terms.replace("<br>", " ")
