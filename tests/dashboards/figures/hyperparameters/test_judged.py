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
    said = "rank correlation of a setting with the colours of 12 lines, where it is beyond chance"
    assert correlations_in_words(judged, found).endswith(said)
    judged, found = found_of(made(12, scores=[0.5 + (5 * i % 7) / 100 for i in range(12)]))
    assert found == {}
    assert correlations_in_words(judged, found) == (
        "no setting goes with the colours beyond chance (rank correlations of 12 lines)"
    )


def test_of_few_lines_nothing_is_said(made):
    judged, found = found_of(made(7))
    assert found is None
    assert correlations_in_words(judged, found) == "7 coloured lines are too few to tell which settings matter"
    assert found_of(made(8))[1] is not None


def test_of_other_epsilons_the_most_that_are_near_each_other_are_compared(made):
    info = made(12, epsilons=dict.fromkeys(range(9, 12), 3.0))
    judged, found = found_of(info)
    assert list(judged.scores) == list(range(9))
    assert judged.title == "accuracy at own epsilon 1"
    assert found == {"rate": pytest.approx(-1.0)}
    sure = judge(replace(info, sure=(0.6, 0.9)))
    assert sure == judged, "the interval is that of the best, which is none of them"


def test_settings_that_matter_stand_next_to_the_results_with_their_correlation(made):
    drawn = configurations.plot(replace(made(12), still=True))
    names = list(drawn.layout.xaxis.ticktext)
    rho = "<br><i>\N{GREEK SMALL LETTER RHO} \N{MINUS SIGN}1.00</i>"
    assert names == ["lot", "kind", f"rate{rho}", "accuracy"]
    (terms,) = (note.text for note in drawn.layout.annotations if note.name == "terms")
    assert "with the colours of 12 lines, where it is beyond chance" in terms.replace("<br>", " ")
