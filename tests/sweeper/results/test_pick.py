import math

import pytest

from sweeper.errors import PickError
from sweeper.privacy.pricing import Price
from sweeper.results.display import front_in_html, front_in_words, picked_in_words
from sweeper.results.pick import pick


@pytest.fixture
def front(make_front, make_point):
    rows = (
        (0.5, 0.70, 0.6),
        (1.0, 0.80, 0.5),
        (2.0, 0.90, 0.2),
        (2.5, 0.90, 0.3),
        (9.0, 0.85, 0.1),
        (math.inf, 0.95, 0.0),
    )
    return make_front([make_point("t0001", epoch, *row) for epoch, row in enumerate(rows, start=1)])


@pytest.mark.parametrize(
    ("max_epsilon", "minimum", "epoch"),
    [
        (None, None, 6),
        (10, None, 3),
        (1.5, None, 2),
        (0.5, None, 1),
        (10, {"certified@1/4": 0.3}, 4),
        (10, {"certified@0.25": 0.3}, 4),
        (10, {"certified@1/4": 0.3, "accuracy": 0.85}, 4),
        (None, {"certified@1/4": 0.4}, 2),
    ],
)
def test_the_best_utility_within_the_conditions_is_picked(front, max_epsilon, minimum, epoch):
    assert pick(front, max_epsilon, minimum).epoch == epoch


@pytest.mark.parametrize(
    ("max_epsilon", "minimum", "said"),
    [
        (0.4, None, r"No point of the front has own epsilon <= 0.4; the nearest is trial t0001, epoch 1: own epsilon=0.5"),
        (2.1, {"certified@1/4": 0.55, "accuracy": 0.75}, r"epsilon <= 2.1 and certified@1/4 >= 0.55 and accuracy >= 0.75; the nearest is trial t0001, epoch 1|epoch 2"),
        (None, {"accuracy": 0.99}, r"accuracy >= 0.99; the nearest is trial t0001, epoch 6"),
        (None, {"accuracy": 90}, r"a share from 0 to 1 as the minimum of accuracy, got 90; did you mean 0\.9\?$"),
        (None, {"certified@0.25": 101}, r"a share from 0 to 1 as the minimum of certified@1/4, got 101$"),
        (math.nan, None, "Expected a finite number for max_epsilon, got nan"),
        (1.0, {"accuracy": math.inf}, "Expected a finite number for accuracy, got inf"),
        (1.0, {"acuracy": 0.5}, "Expected an objective.*got 'acuracy'"),
        (1.0, {"auroc": 0.5}, "Expected an objective of digits to put a minimum on, got 'auroc'; choose among accuracy, certified@1/4"),
        (1.0, {"epsilon": 0.5}, "got 'epsilon'"),
    ],
)  # fmt: skip
def test_what_cannot_be_picked_names_the_nearest(front, max_epsilon, minimum, said):
    with pytest.raises(PickError, match=said):
        pick(front, max_epsilon, minimum)


def test_a_point_whose_model_was_removed_is_not_picked_where_another_meets_the_conditions(make_front, make_point):
    """Of noisy scores the best can come back to the front after its model was removed."""
    best, second = (
        make_point("t0001", 5, 2.0, 0.9),
        make_point("t0001", 2, 1.0, 0.8, model="models/t0001-2.safetensors"),
    )
    front = make_front([best, second])
    assert pick(front).epoch == 2
    assert pick(front, minimum={"accuracy": 0.85}).epoch == 5
    sentence = "Not picked, for they came back to the front when their models had been removed: t0001, epoch 5."
    assert sentence in picked_in_words(second, {}, front)
    assert sentence in " ".join(front_in_words(front).split())
    assert sentence in front_in_html(front)
    assert "Not picked" not in front_in_words(make_front([best]))


def test_a_price_above_the_largest_that_is_accepted_is_refused_whatever_a_points_own_epsilon(make_front, make_point):
    ledger = {"winner": Price(epsilon=5.9921, delta=1e-4, events=3)}
    front = make_front([make_point("t0001", 1, 0.5, 0.70, 0.6)], ledger=ledger)
    assert pick(front, max_price=6.0).epoch == 1
    with pytest.raises(
        PickError, match=r"costs its price, epsilon 5\.993, more than max_price = 3; accept 5\.993, or run"
    ):
        pick(front, max_price=3.0)
    with pytest.raises(PickError, match="Expected a finite number for max_price"):
        pick(front, max_price=math.nan)
    with pytest.raises(PickError, match="The price of digits is not known"):
        pick(make_front(front.points), max_price=3.0)
    unknown = make_front(front.points, ledger={"winner": Price(epsilon=math.nan, delta=1e-4, events=3)})
    with pytest.raises(PickError, match="costs its price"):
        pick(unknown, max_price=3.0)


def test_the_nearest_is_not_said_to_cost_less_than_it_does(make_front, make_point):
    with pytest.raises(PickError, match=r"epsilon=3\.275"):
        pick(make_front([make_point("t0001", 1, 3.27449, 0.70, 0.6)]), 0.1)


def test_an_empty_front_has_nothing_to_pick(make_front):
    with pytest.raises(PickError, match="The front of digits has no point yet"):
        pick(make_front(trials=[]))
