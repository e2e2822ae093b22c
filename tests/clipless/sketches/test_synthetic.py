"""Synthetic rows: what a sketch tells of each class, and rows that are like it."""

import numpy as np
import pytest
import torch

from clipless.datasets import Split
from clipless.privacy.events import PoissonGaussian, Relation
from clipless.sketches.release import SketchForm, release_sketch
from clipless.sketches.synthetic import draw_rows, estimate_moments
from clipless.testing import SeededSource

FORM = SketchForm(classes=2, norm=3**0.5, widths=(1, 3, 1), bounded=True)


def private_rows(count, seed=0):
    """Two classes, the first of one row in four, that differ in a number and in their categories."""
    chance = np.random.default_rng(seed)
    labels = (chance.random(count) < 0.75).astype(np.int64)
    x = np.zeros((count, 5), dtype=np.float32)
    x[:, 0] = chance.normal(np.where(labels == 1, 0.4, -0.4), 0.2).clip(-1, 1)
    x[:, 4] = 0.3
    x[np.arange(count), 1 + np.where(labels == 1, 0, chance.integers(1, 3, count))] = 1.0
    return Split(torch.from_numpy(x), torch.from_numpy(labels))


def sketch_of(rows, form=FORM, noise=1e-3, seed=0):
    event = PoissonGaussian(noise_multiplier=noise, sampling_rate=1.0, steps=1, relation=Relation.ADD_OR_REMOVE_ONE)
    return release_sketch(form, rows, event, SeededSource(seed))


def test_without_noise_moments_are_those_of_the_rows():
    rows = private_rows(4000)
    moments = estimate_moments(FORM, sketch_of(rows), len(rows))
    assert moments.shares.tolist() == pytest.approx([0.25, 0.75], abs=0.02)
    for label in (0, 1):
        own = rows.x[rows.y == label].double()
        assert moments.means[label].tolist() == pytest.approx(own.mean(dim=0).tolist(), abs=0.01)
        assert float(moments.variances[label, 0]) == pytest.approx(float(own[:, 0].var()), rel=0.1)
    assert float(moments.variances[:, 1].max()) < 0.01  # a constant column


def test_synthetic_rows_are_like_the_rows_and_within_what_is_declared():
    rows = private_rows(4000)
    drawn = draw_rows(FORM, estimate_moments(FORM, sketch_of(rows), len(rows)), 4000, np.random.default_rng(0))
    assert float(drawn.y.double().mean()) == pytest.approx(0.75, abs=0.02)
    assert float(torch.linalg.vector_norm(drawn.x.double(), dim=1).max()) <= FORM.norm * (1 + 1e-6)
    assert float(drawn.x.abs().max()) <= 1.0
    assert set(drawn.x[:, 1:4].sum(dim=1).tolist()) == {1.0}
    for label in (0, 1):
        own, made = rows.x[rows.y == label], drawn.x[drawn.y == label]
        assert made.mean(dim=0).tolist() == pytest.approx(own.mean(dim=0).tolist(), abs=0.03)
        assert float(made[:, 0].std()) == pytest.approx(float(own[:, 0].std()), rel=0.1)


def test_rows_are_drawn_again_from_the_same_seed():
    moments = estimate_moments(FORM, sketch_of(private_rows(100)), 100)
    one, two = (draw_rows(FORM, moments, 50, np.random.default_rng(3)) for _ in range(2))
    assert torch.equal(one.x, two.x)
    assert torch.equal(one.y, two.y)


@pytest.mark.parametrize("noise", [1.0, 100.0, 1e6])
@pytest.mark.parametrize("bounded", [True, False])
def test_noise_of_any_size_gives_rows_of_the_declared_form(noise, bounded):
    """A class that the noise hides is there all the same, twice at least, and no moment is undefined."""
    form = SketchForm(classes=3, norm=3**0.5, widths=(1, 3, 1), bounded=bounded)
    for seed in range(5):
        moments = estimate_moments(form, sketch_of(private_rows(60), form, noise, seed), 60)
        drawn = draw_rows(form, moments, 60, np.random.default_rng(seed))
        assert bool(drawn.x.isfinite().all())
        assert float(torch.linalg.vector_norm(drawn.x.double(), dim=1).max()) <= form.norm * (1 + 1e-6)
        assert all((drawn.y == label).sum() >= 2 for label in range(3))


def test_means_of_a_class_that_noise_hides_stay_near_those_of_all():
    """Shrinking halves the error of means, at least, where the noise is as large as what it hides."""
    form = SketchForm(classes=2, norm=20**0.5, widths=(1,) * 20, bounded=True)
    errors, plain = [], []
    for seed in range(20):
        chance = np.random.default_rng(seed)
        x = torch.from_numpy(chance.normal(0.1, 0.2, (300, 20)).clip(-1, 1).astype(np.float32))
        rows = Split(x, torch.arange(300) % 2)
        moments = estimate_moments(form, sketch_of(rows, form, 30.0, seed), 300)
        errors.append(float((moments.means - x.double().mean(dim=0)).square().mean()))
        plain.append((30.0 * form.norm / form.weights[1] / 150) ** 2)
    assert np.mean(errors) < 0.5 * np.mean(plain)


def test_rows_of_categories_alone_have_a_sketch():
    form = SketchForm(classes=2, norm=1.0, widths=(3,), bounded=True)
    x = torch.eye(3)[torch.arange(300) % 3]
    rows = Split(x, (torch.arange(300) % 3 == 0).long())
    drawn = draw_rows(form, estimate_moments(form, sketch_of(rows, form, 0.1), 300), 300, np.random.default_rng(0))
    assert float(drawn.x[drawn.y == 1][:, 0].mean()) > 0.9
