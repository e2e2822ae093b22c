import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer

from clipless.datasets import load
from clipless.datasets.sources.breast_cancer import MEASUREMENT_RANGES


def test_breast_cancer_is_scaled_by_published_ranges():
    dataset = load("breast_cancer")
    facts = dataset.metadata
    assert (facts.input_shape, facts.classes) == ((30,), ("benign", "malignant"))
    assert facts.input_norm == pytest.approx(30**0.5)
    y = torch.cat([dataset.train.y, dataset.validation.y, dataset.test.y])
    assert torch.bincount(y).tolist() == [357, 212]


def test_the_published_ranges_clamp_nothing():
    data = load_breast_cancer().data
    low, high = np.array([MEASUREMENT_RANGES[name][kind] for kind in range(3) for name in MEASUREMENT_RANGES]).T
    assert (low <= data.min(axis=0)).all()
    assert (data.max(axis=0) <= high).all()
