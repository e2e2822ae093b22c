"""Averages of iterates: what they weigh, how they are shown, and that training does not notice them."""

import math

import pytest
import torch
from torch import nn

from clipless import Adam, Network, TauCCE, fit, make_plan
from clipless.layers import Dense, GroupSort, InputBall
from clipless.norms import spectral_norm_upper
from clipless.projections import FixedNorm, SpectralBall
from clipless.training.averaging import ExponentialAverage, FollowedAverages, PolynomialAverage, RunningAverage
from clipless.training.checkpoint import load_state
from tests.clipless.factories import RecordingSource, rows

LOSS = TauCCE(0.5)
BOTH = {"short": PolynomialAverage(8, share=0.5), "long": PolynomialAverage(1)}


def followed(averaging, values):
    parameter = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    average = RunningAverage([parameter], averaging)
    for step, value in enumerate(values, start=1):
        parameter.data.fill_(value)
        average.update(step)
    return parameter, average


def test_a_moving_average_is_shown_and_taken_back():
    parameter, average = followed(ExponentialAverage(0.75), [4.0, 8.0, 0.0])
    with average.applied():
        assert parameter.tolist() == [0.75 * (0.75 * 4.0 + 0.25 * 8.0)]
    assert parameter.tolist() == [0.0]
    with average.applied(keep=True):
        pass
    assert parameter.tolist() == [3.75]


@pytest.mark.parametrize("power", [0, 1, 3, 8])
def test_a_step_weighs_in_a_polynomial_average_like_a_power_of_its_number(power):
    """Exactly like the rising factorial i (i + 1) ... (i + p - 1), which grows like i^p."""
    values = torch.randn(30, generator=torch.Generator().manual_seed(0), dtype=torch.float64).tolist()
    parameter, average = followed(PolynomialAverage(power), values)
    weights = [math.prod(range(i, i + power)) for i in range(1, 31)]
    expected = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
    with average.applied():
        assert parameter.item() == pytest.approx(expected)


def test_a_share_of_the_average_leaves_the_rest_to_the_last_iterate():
    parameter, average = followed(PolynomialAverage(0, share=0.25), [4.0, 8.0, 0.0])
    with average.applied():
        assert parameter.item() == pytest.approx(0.25 * 4.0)
    assert parameter.item() == 0.0


def test_before_the_first_step_an_average_is_the_weights():
    parameter, average = followed(PolynomialAverage(3), [])
    with average.applied():
        assert parameter.tolist() == [0.0]


def test_an_average_is_taken_back_after_an_error():
    parameter, average = followed(PolynomialAverage(0), [1.0, 3.0])
    with pytest.raises(RuntimeError), average.applied():
        raise RuntimeError
    assert parameter.tolist() == [3.0]


@pytest.mark.parametrize("decay", [0.0, 1.0, -0.5, math.nan])
def test_decays_outside_of_zero_and_one_are_refused(decay):
    with pytest.raises(ValueError, match="averaging"):
        ExponentialAverage(decay)


@pytest.mark.parametrize(
    "wrong", [{"power": -1}, {"power": math.nan}, {"power": 1, "share": 0.0}, {"power": 1, "share": 2}]
)
def test_averages_of_no_weights_are_refused(wrong):
    with pytest.raises(ValueError, match="power >= 0 and 0 < share <= 1"):
        PolynomialAverage(**wrong)


def network(**more):
    g = torch.Generator().manual_seed(0)
    layers = [Dense(6, 8, generator=g, **more), GroupSort(), Dense(8, 3, generator=g, **more)]
    return Network([InputBall(4.0), *layers], (6,))


def weights_of(model):
    return torch.cat([p.detach().flatten().clone() for p in model.parameters()])


def test_an_average_has_a_name():
    with pytest.raises(ValueError, match=r"Expected a name for each of averages, got \['', 'slow'\]"):
        FollowedAverages(network(), None, {"": PolynomialAverage(1), "slow": PolynomialAverage(1)})


def train(source, checkpoint=None, *, epochs=4, model=None, averages=BOTH, **more):
    """Train; return the weights of each epoch, and those of each average by name."""
    model = network() if model is None else model
    plan = make_plan(model, LOSS, population=60, batch_size=20, delta=1e-4, noise_multiplier=1.0, epochs=4)
    own, shown = [], []
    options = {"averages": averages, "source": source, "checkpoint": checkpoint, "optimizer": Adam(0.05)}
    for epoch in fit(model, LOSS, rows(60), plan, **options, **more):
        own.append(weights_of(model))
        shown.append({})
        for name, show in epoch.averages.items():
            with show():
                shown[-1][name] = weights_of(model)
        assert torch.equal(weights_of(model), own[-1])
        if epoch.epoch == epochs:
            break
    return own, shown


def test_training_does_not_notice_that_averages_are_followed_and_shown():
    plain, nothing = train(RecordingSource(), averages=None)
    own, shown = train(RecordingSource())
    assert all(torch.equal(one, other) for one, other in zip(plain, own, strict=True))
    assert nothing == [{}] * 4
    assert all(one.keys() == BOTH.keys() for one in shown)


def test_each_epoch_shows_the_averages_of_the_steps_so_far_and_of_no_later_one():
    """Of an epoch of one step: the average is recomputed from the weights of the epochs up to it."""
    model = network()
    plan = make_plan(model, LOSS, population=60, batch_size=60, delta=1e-4, noise_multiplier=1.0, epochs=5)
    iterates = []
    for epoch in fit(model, LOSS, rows(60), plan, averages={"all": PolynomialAverage(0)}, source=RecordingSource()):
        iterates.append(weights_of(model))
        with epoch.averages["all"]():
            torch.testing.assert_close(weights_of(model), torch.stack(iterates).mean(0), atol=1e-3, rtol=1e-3)


def test_what_is_shown_lies_in_its_constraint_set_where_that_is_not_convex_too():
    model = network(constraint=FixedNorm(1.0))
    plan = make_plan(model, LOSS, population=60, batch_size=20, delta=1e-4, noise_multiplier=0.1, epochs=3)
    for epoch in fit(model, LOSS, rows(60), plan, averages=BOTH, source=RecordingSource(), optimizer=Adam(0.3)):
        for show in epoch.averages.values():
            with show():
                assert [spectral_norm_upper(layer.weight) for layer in model.layers if isinstance(layer, Dense)] == (
                    pytest.approx([1.0, 1.0], abs=1e-4)
                )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("averaging", [None, 0.5])
@pytest.mark.parametrize("killed_after", [1, 3])
def test_a_killed_training_goes_on_with_the_averages_it_had(killed_after, averaging, tmp_path):
    whole, expected = train(RecordingSource(), averaging=averaging)
    source = RecordingSource()
    train(source, tmp_path / "t", epochs=killed_after, averaging=averaging)
    own, shown = train(source, tmp_path / "t", averaging=averaging)
    assert all(torch.equal(one, other) for one, other in zip(own, whole[killed_after - 1 :], strict=True))
    for one, other in zip(shown, expected[killed_after - 1 :], strict=True):
        assert all(torch.equal(one[name], other[name]) for name in BOTH)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("names", [("a", "a.b"), ("a", "a.0"), ("a.0", "a")])
def test_an_average_may_be_called_by_the_name_of_another_and_a_dot(names, tmp_path):
    averages = dict(zip(names, BOTH.values(), strict=True))
    _, expected = train(RecordingSource(), averages=averages)
    source = RecordingSource()
    train(source, tmp_path / "t", epochs=2, averages=averages)
    _, shown = train(source, tmp_path / "t", averages=averages)
    assert all(torch.equal(shown[-1][name], expected[-1][name]) for name in names)


def test_a_checkpoint_without_averages_lets_them_begin_where_it_was_made(tmp_path):
    source, ball = RecordingSource(), SpectralBall(1.0)
    train(source, tmp_path / "t", epochs=2, averages=None, model=network(constraint=ball))
    own, shown = train(source, tmp_path / "t", model=network(constraint=ball))
    torch.testing.assert_close(shown[0]["long"], own[0])
    assert not torch.equal(shown[-1]["long"], own[-1])


def test_the_checkpoint_holds_the_averages_by_name(tmp_path):
    train(RecordingSource(), tmp_path / "t", epochs=1)
    model = network()
    plan = make_plan(model, LOSS, population=60, batch_size=20, delta=1e-4, noise_multiplier=1.0, epochs=4)
    state = load_state(tmp_path / "t", plan)
    assert all(set(state.under(f"averages.{name}")) == {"0", "1"} for name in BOTH)
