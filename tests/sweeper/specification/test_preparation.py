"""The spec says what is done to each example; it reaches the data and comes back unchanged."""

import pytest

import clipless
from clipless.datasets import ColourSpace, Preparation
from sweeper.errors import SpecError
from sweeper.specification.spec import Spec


def content(**data):
    return {
        "name": "prepared",
        "data": {"name": "digits"} | data,
        "model": {"architecture": "mlp"},
        "training": {"epochs": 2},
        "privacy": {"epsilon": 3, "delta": 1e-4},
    }


def test_nothing_is_done_by_default_and_what_is_asked_for_is_done():
    assert "preparation" not in Spec.from_mapping(content()).data_options()
    assert "preparation" not in Spec.from_mapping(content(colour="rgb")).data_options()
    options = Spec.from_mapping(content(centre=0.5, normalise=2)).data_options()
    dataset = clipless.datasets.load(**options)
    assert dataset.metadata.radius_unit == "examples scaled to norm 2"
    assert dataset.train.x.flatten(1).norm(dim=1).max().item() == pytest.approx(2.0, rel=1e-5)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"colour": "yiq"}, Preparation(colour=ColourSpace.YIQ)),
        ({"centre": 0.5}, Preparation(centre=(0.5,))),
        ({"centre": [0.5, 0, -1]}, Preparation(centre=(0.5, 0.0, -1.0))),
        ({"colour": "hsv", "normalise": 10}, Preparation(colour=ColourSpace.HSV, normalise=10.0)),
    ],
)
def test_what_is_asked_for_is_handed_to_the_loader(data, expected):
    spec = Spec.from_mapping(content(**data))
    assert spec.data_options()["preparation"] == expected
    again = Spec.from_mapping(spec.to_plain())
    assert again.data_options() == spec.data_options()
    assert again.to_plain() == spec.to_plain()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"colour": "cmyk"}, "Expected colour rgb or gray or yiq or yuv or hsv, got colour='cmyk'"),
        ({"centre": "mean"}, "or a list with one for each channel, within 1e+06 of 0, got centre='mean'"),
        ({"centre": [0.5, -1e7]}, "each channel, within 1e+06 of 0, got centre="),
        ({"normalise": 0}, "Expected 1e-06 <= normalise <= 1000000.0, got normalise=0"),
    ],
)
def test_mistakes_are_one_sentence(data, expected):
    with pytest.raises(SpecError) as error:
        Spec.from_mapping(content(**data))
    assert expected in str(error.value)
