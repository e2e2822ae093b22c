"""Copies are flips, shifts and noise of their own row, and together contribute no more than one row may."""

from dataclasses import replace
from math import exp, inf, nan

import pytest
import torch

from clipless import SGD, TauCCE, make_plan, zoo
from clipless.datasets import Split
from clipless.layers import ClipGradient
from clipless.network import Network
from clipless.plans.clipping import AdaptiveClipping
from clipless.plans.method import Method
from clipless.testing import SeededSource, broken_weights
from clipless.training.augmentation import Augmentation
from clipless.training.trainer import PrivateTrainer

BOTH = Augmentation(copies=4, flip=True, shift=1)
NOISY = Augmentation(copies=4, noise=0.5, input_norm=2.0)


def images(count=6, seed=0):
    return torch.rand(count, 2, 3, 4, generator=torch.Generator().manual_seed(seed))


def moved(image, flip, down, right):
    """The image mirrored, then moved, by loops."""
    source = torch.flip(image, (2,)) if flip else image
    out = torch.zeros_like(image)
    for i in range(3):
        for j in range(4):
            if 0 <= i - down < 3 and 0 <= j - right < 4:
                out[:, i, j] = source[:, i - down, j - right]
    return out


def every_copy(image, shift):
    steps = range(-shift, shift + 1)
    return [moved(image, flip, down, right) for flip in (False, True) for down in steps for right in steps]


@pytest.mark.parametrize("shift", [0, 1, 2])
def test_copies_are_flips_and_shifts_of_their_row(shift):
    x = images()
    copies = Augmentation(copies=40, flip=True, shift=shift).apply(x, SeededSource(0)).unflatten(0, (6, 40))
    for image, own in zip(x, copies, strict=True):
        known = torch.stack(every_copy(image, shift))
        matches = (own[:, None] == known[None]).flatten(2).all(dim=2)
        assert matches.any(dim=1).all()
        if shift < 2:
            assert matches.any(dim=0).sum() > len(known) / 2  # each is drawn sometimes


def test_no_copy_has_a_larger_norm():
    x = images(50)
    copies = BOTH.apply(x, SeededSource(1)).unflatten(0, (50, 4))
    assert (copies.flatten(2).norm(dim=2) <= x.flatten(1).norm(dim=1)[:, None] * (1 + 1e-6)).all()


def test_noise_has_its_deviation_and_is_anew_in_each_entry():
    copies = Augmentation(copies=400, noise=0.5, input_norm=1e6).apply(torch.ones(2, 5, 5), SeededSource(0))
    noise = (copies - 1.0).view(2, 400, 25)
    assert noise.std() == pytest.approx(0.5, rel=0.02)
    assert noise.mean().abs() < 0.02
    flat = noise.transpose(1, 2).flatten(0, 1)
    assert torch.corrcoef(flat).sub(torch.eye(50)).abs().max() < 0.25


@pytest.mark.parametrize("value", [0.01, 1.0, 1e20])
def test_noisy_copies_lie_in_the_ball_of_the_rows(value):
    """Noise of norm 10 on rows of norm at most 2; what lies inside it is moved by the noise alone."""
    x = torch.full((30, 400), value)
    copies = NOISY.apply(x, SeededSource(2))
    assert (copies.double().norm(dim=1) <= 2.0 * (1 + 1e-6)).all()
    assert copies.norm(dim=1).min() > 1.9
    inside = Augmentation(copies=1, noise=1e-3, input_norm=2.0).apply(torch.full((3, 4), 0.1), SeededSource(2))
    assert (inside - 0.1).abs().max() < 1e-2


def test_noise_comes_on_top_of_flips_and_shifts():
    x = images()
    both = Augmentation(copies=3, flip=True, shift=1, noise=1e-5, input_norm=9.0).apply(x, SeededSource(3))
    plain = Augmentation(copies=3, flip=True, shift=1).apply(x, SeededSource(3))
    assert 0.0 < (both - plain).abs().max() < 1e-3


@pytest.mark.parametrize("value", [5.0, nan, inf])
@pytest.mark.parametrize("copied", [BOTH, NOISY], ids=["moved", "noisy"])
def test_copies_depend_on_their_own_row_alone(value, copied):
    x, changed = images(), images()
    changed[2] = value
    before, after = (copied.apply(rows, SeededSource(3)).unflatten(0, (6, 4)) for rows in (x, changed))
    others = [0, 1, 3, 4, 5]
    assert torch.equal(before[others], after[others])


@pytest.mark.parametrize("place", [0, 1, 1200, 2399])
def test_no_short_seed_decides_what_happens_to_the_copies(place):
    """Every word decides: of 2^32 streams each could be told by the copies, and with it the places of the rows."""

    class Changed(SeededSource):
        def random_bytes(self, count):
            made = super().random_bytes(count)
            words = memoryview(made).cast("q")
            words[place] = ~words[place]
            return made

    x = images(200)
    augmentation = Augmentation(copies=4, flip=True, shift=2)
    before, after = (augmentation.apply(x, source(5)) for source in (SeededSource, Changed))
    assert (before != after).flatten(1).any(dim=1).nonzero().flatten().tolist() == [place % 800]
    assert len(augmentation.apply(x[:0], SeededSource(5))) == 0


def test_each_step_draws_anew():
    source = SeededSource(0)
    assert not torch.equal(BOTH.apply(images(), source), BOTH.apply(images(), source))


def network(name="convnet", clip=None):
    options = {"convnet": {"width": 2, "depth": 1, "hidden": 4}, "scattering": {"scales": 1, "orientations": 2}}
    generator = torch.Generator().manual_seed(0)
    model = zoo.build(name, (2, 4, 4), 3, input_norm=2.0, generator=generator, **options[name])
    return model if clip is None else Network([*model.layers, ClipGradient(clip)], model.input_shape)


def trainer(model, data, augmentation, **options):
    numbers = {"batch_size": 5, "delta": 1e-6, "noise_multiplier": 1e-6, "epochs": 1}
    plan = make_plan(model, TauCCE(), population=len(data), **(numbers | options))
    return plan, PrivateTrainer(
        model, TauCCE(), data, plan, SGD(1e-30), 512, SeededSource(0), augmentation=augmentation
    )


def rows(value=None, count=20):
    x = torch.rand(count, 2, 4, 4, generator=torch.Generator().manual_seed(1))
    if value is not None:
        x[0] = value
    return Split(x, torch.zeros(count, dtype=torch.int64))


METHODS = [
    {"method": Method.CLIPLESS, "sensitivity_fraction": 0.01},
    {"method": Method.LIP_DP_SGD, "sensitivity_fraction": 0.01},
    {"method": Method.DP_SGD, "clip_norm": 1e-3},
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("options", METHODS, ids=lambda o: o["method"].value)
@pytest.mark.parametrize("value", [None, 1e20, nan])
@pytest.mark.parametrize("copied", [BOTH, replace(NOISY, noise=30.0)], ids=["moved", "noisy"])
def test_the_copies_of_one_row_contribute_at_most_what_one_row_may(options, value, copied):
    model, data = network(), rows(value)
    plan, training = trainer(model, data, copied, **options)
    with broken_weights(model):
        training.step(torch.tensor([0]))
    norms = {name: p.grad.norm() * plan.batch_size for name, p in model.named_parameters()}
    for name, delta in plan.sensitivities.items():
        assert norms[name] <= delta
    if value is None:
        total = torch.stack(list(norms.values())).norm()
        assert total > 0.2 * max(plan.sensitivities.values())


def test_one_copy_that_is_the_row_itself_changes_nothing(monkeypatch):
    monkeypatch.setattr(Augmentation, "apply", lambda self, x, _: x.repeat_interleave(self.copies, dim=0))
    gradients = []
    for augmentation in (None, BOTH):
        model = network()
        trainer(model, rows(), augmentation)[1].step(torch.arange(10))
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("value", [None, nan])
def test_the_copies_of_one_row_move_an_adaptive_count_by_at_most_a_half(value):
    clipping = AdaptiveClipping(quantile=0.9, rate=0.1)
    model = network(clip=1e-6)  # every copy is above it
    plan, training = trainer(model, rows(value), BOTH, clipping=clipping)
    training.clip_norms.factor, training.clip_norms._count_std = 0.5, 0.0
    training.step(torch.tensor([0]))
    share = 0.5 - 0.5 / plan.batch_size
    assert training.clip_norms.factor == pytest.approx(0.5 * exp(-clipping.rate * (share - clipping.quantile)))


def test_a_fixed_front_is_not_computed_beforehand():
    model, data = network("scattering"), rows()
    _, training = trainer(model, data, BOTH)
    assert training._trained is model
    assert training._data is data


def test_an_empty_batch_is_a_step():
    model = network()
    _, training = trainer(model, rows(), BOTH)
    training.step(torch.tensor([], dtype=torch.int64))
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize(
    "numbers",
    [
        {"copies": 0, "flip": True},
        {"copies": 2.0, "flip": True},
        {"shift": -1},
        {"copies": 2},
        {"noise": -0.1, "input_norm": 1.0},
        {"noise": inf, "input_norm": 1.0},
        {"noise": 0.1},
        {"noise": 0.1, "input_norm": nan},
    ],
)
def test_settings_without_a_meaning_are_refused(numbers):
    with pytest.raises(ValueError, match=r"\(Augmentation\)"):
        Augmentation(**numbers)


def test_rows_that_are_no_images_are_refused():
    with pytest.raises(ValueError, match="images"):
        BOTH.apply(torch.zeros(3, 5), SeededSource(0))
