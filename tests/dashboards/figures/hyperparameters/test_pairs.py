"""Slices, contours and ranks: which hyperparameters they show, and what of them."""

import math

import numpy as np
import pytest

from dashboards.figures.hyperparameters import contours, ranks, slices
from dashboards.figures.hyperparameters._axes import measure_explained
from dashboards.figures.hyperparameters._axes import ranks as places


def test_what_explains_most_comes_first(sweep):
    info = slices.info(sweep)
    assert info.slices[0].name == "privacy.epsilon"
    shares = [measure_explained(axis.positions, info.colors) for axis in info.slices]
    assert shares == sorted(shares, reverse=True)
    assert not {axis.name for axis in info.slices} & {"epsilon", "accuracy", "certified@0.25"}
    assert contours.info(sweep).shown[0][0].name == "privacy.epsilon"


def test_explained_is_between_none_and_all_and_equal_values_share_their_place():
    assert measure_explained([1, 2, 3, 4, 5, 6, 7], [2, 4, 9, 16, 25, 36, 49]) == pytest.approx(1.0)
    assert measure_explained([0, 0, 1, 1], [1.0, 1.0, 2.0, 2.0]) == pytest.approx(1.0)
    assert measure_explained([0, 0, 1, 1], [1.0, 2.0, 1.0, 2.0]) == pytest.approx(0.0)
    assert measure_explained([1, 1], [1, 2]) == measure_explained([1, 2], [1, 1]) == 0.0
    assert places([3.0, 1.0, 3.0, 2.0]).tolist() == [2.5, 0.0, 2.5, 1.0]


def test_every_trial_has_its_mark_in_every_slice(sweep):
    info = slices.info(sweep)
    figure = slices.plot(info)
    assert len(figure.data) == len(info.slices) == 4
    for trace in figure.data:
        assert tuple(trace.y) == info.colors
        assert [text.startswith(f"<b>{id_}</b>") for text, id_ in zip(trace.text, info.trials, strict=True)]
    assert len(slices.rows(info)) == len(info.trials)


def test_a_contour_goes_through_what_trials_reached():
    x, y, heights = contours.fill_grid([0.0, 1.0, 0.0], [0.0, 0.0, 2.0], [0.1, 0.9, 0.5])
    assert (x[0], x[-1], y[0], y[-1]) == (0.0, 1.0, 0.0, 2.0)
    assert heights[0][0] == pytest.approx(0.1, abs=0.01)
    assert heights[0][-1] == pytest.approx(0.9, abs=0.01)
    assert heights[-1][0] == pytest.approx(0.5, abs=0.01)
    assert np.all((np.array(heights) > 0.1 - 1e-9) & (np.array(heights) < 0.9 + 1e-9))


def test_a_trial_without_a_value_is_in_no_pair_of_it(sweep):
    info = ranks.info(sweep)
    for x, y in info.shown:
        both = sum(a is not None and b is not None for a, b in zip(x.values, y.values, strict=True))
        trace = next(t for t, pair in zip(ranks.plot(info).data, info.shown, strict=True) if pair == (x, y))
        assert len(trace.x) == both
    assert (min(info.shares), max(info.shares)) == (0.0, 1.0)
    best = max(range(len(info.trials)), key=lambda i: info.colors[i])
    assert math.isclose(info.shares[best], 1.0)


@pytest.mark.parametrize("kind", [slices, contours, ranks])
def test_few_trials_say_so(kind, with_configs):
    figure = kind.plot(kind.info(with_configs({"a": 1}, {"a": 2})))
    assert len(figure.data) == 0
    assert [one.text for one in figure.layout.annotations] == ["fewer than 4 trials with different hyperparameters"]


@pytest.mark.parametrize("kind", [slices, contours, ranks])
def test_names_cannot_be_markup(kind, with_configs):
    configs = [{"<b>x": float(i % 5), "y": float(i * i % 7), "z": "<i>" if i % 2 else "b"} for i in range(12)]
    info = kind.info(with_configs(*configs))
    text = kind.plot(info).to_json()
    assert "<i>" not in text
    assert "\\u003cb\\u003ex" not in text
