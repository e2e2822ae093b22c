"""Units of several rows: whatever they hold and however many they are, a unit moves a step as far as one row does."""

import pytest
import torch

from clipless import SGD, Method, Network, TauCCE, fit
from clipless.datasets import Split
from clipless.layers import ClipGradient, Dense, GroupSort, InputBall, Standardise
from clipless.plans.clipping import AdaptiveClipping, ClipNorms
from clipless.stacks import Member, member_training
from clipless.stacks.member_training import FixedFeatures, MemberTraining
from clipless.stacks.stack import RunningStack
from clipless.training import trainer
from tests.clipless.factories import RecordingSource, plan_for

NAN, INF = float("nan"), float("inf")
STILL = SGD(1e-30)  # weights stay where they are
SIZES = (1, 2, 7, 8, 9, 1000)

METHODS = {
    "clipless": ({}, {}),
    "clipless by exact norms": ({}, {"exact_norms": True}),
    "lip-dp-sgd": ({"method": Method.LIP_DP_SGD}, {}),
    "dp-sgd": ({"method": Method.DP_SGD, "clip_norm": 0.01, "sensitivity_fraction": 1.0}, {}),
    "ghost": ({"method": Method.DP_SGD, "clip_norm": 0.01, "sensitivity_fraction": 1.0}, {"ghost_clipping": True}),
}


def network(*last, front=()):
    g = torch.Generator().manual_seed(0)
    hidden = [Dense(6, 8, generator=g), GroupSort(), *last, Dense(8, 3, generator=g)]
    return Network([*front, InputBall(2.0), *hidden], (6,))


def rows(count, seed=1, scale=1.0):
    g = torch.Generator().manual_seed(seed)
    return scale * torch.randn(count, 6, generator=g), torch.randint(0, 3, (count,), generator=g)


def with_unit(x, y):
    """Eleven units of 1 to 20 rows, and one more in front of the last two; its place is kept where it has no content."""
    sizes = [1, 20, 3, 1, 2, 8, 9, 1, 4, 5, 6]
    others = rows(sum(sizes))
    cut = sum(sizes[:9])
    offsets = torch.tensor([0, *sizes[:9], len(y), *sizes[9:]]).cumsum(0)
    return Split(*(torch.cat([a[:cut], b, a[cut:]]) for a, b in zip(others, (x, y), strict=True)), offsets)


ABSENT = with_unit(torch.zeros(1, 6), torch.zeros(1, dtype=torch.int64))  # zeros contribute nothing


def sums(data, planned, options, model=None):
    """The sums of one step, without noise, by parameter."""
    (found,), plan = sums_of_steps(data, planned, options, model)
    return found, plan


def sums_of_steps(data, planned, options, model=None):
    """The sums of each step, without noise, by parameter; the weights stay."""
    model = model or network()
    plan = plan_for(model, data, **{"batch_size": 12, "sensitivity_fraction": 0.01} | planned)
    source = RecordingSource(3, scale=0.0)
    epochs = fit(model, TauCCE(0.1), data, plan, optimizer=STILL, source=source, **options)
    found = [{name: p.grad.double() * plan.batch_size for name, p in model.named_parameters()} for _ in epochs]
    return found, plan


@pytest.mark.usefixtures("exact_sums")
@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("size", SIZES)
def test_a_unit_moves_the_sum_by_at_most_the_sensitivity_of_one_row(name, size):
    planned, options = METHODS[name]
    without, plan = sums(ABSENT, planned, options)
    for scale in (1.0, 1e4, INF, NAN):
        x, y = rows(size, seed=size)
        found, _ = sums(with_unit(x * scale, y), planned, options)
        moved = {one: (found[one] - without[one]).norm() for one in found}
        if planned.get("method") is Method.DP_SGD:
            assert torch.stack([*moved.values()]).norm() <= plan.clip_norm * (1 + 1e-5)
        else:
            for one, distance in moved.items():
                assert distance <= plan.sensitivities[one] * (1 + 1e-5)
        assert all(total.isfinite().all() for total in found.values())


@pytest.mark.sampled(4)
@pytest.mark.parametrize("size", SIZES)
def test_a_unit_whose_rows_are_alike_is_one_row(size):
    x, _ = rows(1, seed=5)
    y = network()(x).argmin(dim=1)  # wrong: the largest gradient
    one, _ = sums(with_unit(x, y), {}, {})
    several, plan = sums(with_unit(x.expand(size, -1), y.expand(size)), {}, {})
    without, _ = sums(ABSENT, {}, {})
    assert all(torch.equal(one[name], several[name]) for name in one)
    assert max((one[name] - without[name]).norm() / plan.sensitivities[name] for name in one) > 0.99


@pytest.mark.long
@pytest.mark.parametrize("method", [Method.CLIPLESS, pytest.param(Method.NON_PRIVATE, marks=pytest.mark.long)])
def test_in_expectation_a_unit_contributes_the_mean_of_its_rows(method):
    planned = {"method": method} if method is Method.CLIPLESS else {"method": method, "noise_multiplier": None}
    if method is Method.NON_PRIVATE:
        planned["sensitivity_fraction"] = 1.0
    x, y = rows(4, seed=7)
    data = Split(x, y, torch.tensor([0, 3, 4]))
    alone = [sums(Split(x[i : i + 1], y[i : i + 1]), planned | {"batch_size": 1}, {})[0] for i in range(4)]
    found, _ = sums_of_steps(data, planned | {"batch_size": 2, "epochs": 400}, {})
    for name in alone[0]:
        mean = sum(one[name] for one in alone[:3]) / 3 + alone[3][name]
        spread = torch.stack([one[name] for one in alone[:3]]).std(dim=0).norm()
        assert (torch.stack([one[name] for one in found]).mean(dim=0) - mean).norm() <= 4.5 * spread / 20


@pytest.mark.usefixtures("exact_sums")
@pytest.mark.parametrize("size", SIZES)
def test_a_stacked_member_draws_units_as_a_training_alone_does(size):
    data, model = with_unit(*rows(size, seed=size)), network()
    expected, plan = sums(data, {}, {})
    member = Member(model=model, loss=TauCCE(0.1), plan=plan, source=RecordingSource(3, scale=0.0))
    stack = RunningStack([MemberTraining(member, data, 12, FixedFeatures(data))], 12)
    (draws,) = stack.draw(1)
    assert len(draws[0]) == len(data) == 12
    for name, total in stack.sums(draws).items():
        assert (total[0] - expected[name]).norm() <= 1e-5 * plan.sensitivities[name]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("size", SIZES)
def test_a_unit_moves_private_statistics_as_far_as_one_row(size, monkeypatch):
    released = []
    monkeypatch.setattr(Standardise, "settle", lambda _, mean_M, *_shape: released.append(mean_M * 12))
    for data in (ABSENT, with_unit(*rows(size, seed=size, scale=100.0))):
        sums(data, {}, {}, network(front=[Standardise(6, 3.0, 0.01)]))
    without, found = released
    assert 0.5 < (found - without).norm() <= 1 + 1e-6


@pytest.mark.sampled(4)
@pytest.mark.parametrize("size", SIZES)
def test_a_unit_moves_the_count_of_an_adaptive_norm_as_far_as_one_row(size, monkeypatch):
    counts = []
    advance = ClipNorms.advance

    def watched(self, normal):
        counts.append(float(self._centred_count))
        advance(self, normal)

    monkeypatch.setattr(ClipNorms, "advance", watched)
    for data in (ABSENT, with_unit(*rows(size, seed=size, scale=100.0))):
        sums(data, {"clipping": AdaptiveClipping()}, {}, network(ClipGradient(1e-4)))
    without, found = counts
    assert abs(found - without) <= 1  # a half that leaves, and a half that comes
    assert all(abs(count) <= len(ABSENT) / 2 for count in counts)


def test_features_are_not_computed_in_places_that_other_units_decide(monkeypatch):
    """A kernel may round by the place of a row in the data, which the rows of the units before it move."""
    data, model = with_unit(*rows(9)), network()
    for module in (trainer, member_training):
        monkeypatch.setattr(module, "precompute", lambda *_: pytest.fail("computed features"))
    expected, plan = sums(data, {}, {})
    member = Member(model=model, loss=TauCCE(0.1), plan=plan, source=RecordingSource(3, scale=0.0))
    MemberTraining(member, data, 12, FixedFeatures(data))
    assert all(total.any() for total in expected.values())
