"""Per-example maps in front of the tensor: what they do to one example, to norms and to radii."""

import colorsys
from dataclasses import replace
from itertools import product
from math import sqrt

import numpy as np
import pytest
import torch

from clipless.datasets import ColourSpace, Dataset, Evaluation, Metadata, Preparation, Split, load, prepare
from clipless.datasets.maps import MATRICES, colour_lipschitz, convert
from clipless.errors import DataError

LINEAR = [ColourSpace.GRAY, ColourSpace.YIQ, ColourSpace.YUV]


def photographs(channels=3, unit="pixels in [0, 1]", rows=6, size=4):
    generator = torch.Generator().manual_seed(0)
    parts = []
    for count in (rows, 2, 2):
        x = torch.rand(count, channels, size, size, generator=generator)
        parts.append(Split(x, torch.arange(count) % 2))
    metadata = Metadata(
        name="photographs",
        input_shape=(channels, size, size),
        classes=("a", "b"),
        evaluation=Evaluation.PUBLIC,
        unit="row",
        input_norm=sqrt(channels) * size,
        input_gain=2.0,
        radius_unit=unit,
        public_facts=("Pixels are divided by 255.",),
        conditions=(),
    )
    return Dataset(metadata, *parts)


def corners():
    """All colours whose entries are 0, 1/2 or 1, grey and black among them, as one image (1, 3, 27, 1)."""
    return torch.tensor(list(product((0.0, 0.5, 1.0), repeat=3))).mT[None, :, :, None]


def test_nothing_is_done_by_default():
    dataset = photographs()
    assert prepare(dataset, Preparation()) is dataset


@pytest.mark.parametrize("space", LINEAR)
def test_a_linear_map_has_the_constant_of_its_matrix(space):
    constant = colour_lipschitz(space)
    exact = np.linalg.norm(np.array(MATRICES[space]), ord=2)
    assert exact <= constant <= exact * (1 + 1e-9)
    direction = np.linalg.svd(np.array(MATRICES[space]))[2][0]
    moved = convert(torch.tensor(direction).view(1, 3, 1, 1), space).norm().item()
    assert moved == pytest.approx(constant, rel=1e-9)


def test_the_constants_are_those_of_the_table():
    found = [round(colour_lipschitz(space), 3) for space in LINEAR]
    assert found == [0.669, 0.857, 0.857]
    assert colour_lipschitz(ColourSpace.RGB) == 1.0
    assert colour_lipschitz(ColourSpace.HSV) is None


def test_hsv_has_no_useful_constant():
    """Next to black, a step of 1e-6 turns the hue by a sixth."""
    dark = torch.tensor([[1e-6, 0.0, 0.0], [0.0, 1e-6, 0.0]]).view(2, 3, 1, 1)
    moved = (convert(dark, ColourSpace.HSV)[0] - convert(dark, ColourSpace.HSV)[1]).norm()
    assert moved / (dark[0] - dark[1]).norm() > 1e5


def test_hsv_is_that_of_the_standard_library():
    x = torch.cat([corners(), torch.rand(1, 3, 27, 1, generator=torch.Generator().manual_seed(0))])
    expected = [colorsys.rgb_to_hsv(*pixel) for pixel in x.double().permute(0, 2, 3, 1).reshape(-1, 3).tolist()]
    found = convert(x, ColourSpace.HSV).permute(0, 2, 3, 1).reshape(-1, 3)
    torch.testing.assert_close(found.double(), torch.tensor(expected, dtype=torch.float64), atol=1e-6, rtol=0)
    assert found.isfinite().all()


def test_yiq_and_yuv_are_grey_on_grey():
    grey = torch.full((1, 3, 1, 1), 0.5)
    for space in (ColourSpace.YIQ, ColourSpace.YUV):
        assert convert(grey, space).flatten().tolist() == pytest.approx([0.5, 0.0, 0.0], abs=1e-3)


@pytest.mark.parametrize("space", list(ColourSpace))
@pytest.mark.parametrize("centre", [(), (0.5,), (0.4, -0.1, 2.0)])
def test_no_colour_exceeds_the_declared_norm(space, centre):
    """`Dataset` checks the norms; the brightest and the most saturated images are among the rows."""
    if space is ColourSpace.GRAY and len(centre) > 1:
        centre = centre[:1]
    base = photographs(size=1)
    x = corners().permute(2, 1, 0, 3)
    full = Dataset(base.metadata, *[Split(x, torch.arange(27) % 2)] * 3)
    prepared = prepare(full, Preparation(colour=space, centre=centre))
    largest = prepared.train.x.flatten(1).norm(dim=1).max().item()
    assert largest <= prepared.metadata.input_norm * (1 + 1e-6)
    assert largest >= 0.7 * prepared.metadata.input_norm


@pytest.mark.parametrize("space", LINEAR)
def test_radii_stay_in_raw_units_through_a_linear_map(space):
    facts = prepare(photographs(), Preparation(colour=space, centre=(0.1,))).metadata
    assert facts.input_gain == pytest.approx(2.0 * colour_lipschitz(space))
    assert facts.radius_unit == "pixels in [0, 1]"
    assert facts.conditions == ()
    assert facts.input_shape == (len(MATRICES[space]), 4, 4)
    assert any(space.value.upper() in fact for fact in facts.public_facts)


@pytest.mark.parametrize(
    ("preparation", "unit"),
    [
        (Preparation(colour=ColourSpace.HSV), "HSV coordinates in [0, 1]"),
        (Preparation(normalise=5.0), "examples scaled to norm 5"),
        (Preparation(colour=ColourSpace.YIQ, normalise=5.0), "examples scaled to norm 5"),
    ],
)
def test_radii_live_behind_a_map_without_a_constant_and_the_card_says_so(preparation, unit):
    facts = prepare(photographs(), preparation).metadata
    assert facts.input_gain == 1.0
    assert facts.radius_unit == unit
    (condition,) = facts.conditions
    assert condition.startswith(f"Certified radii are in units of {unit}, behind a map without a useful Lipschitz")
    assert condition.endswith("no distance between pixels in [0, 1].")


def test_centring_subtracts_and_halves_the_bound_of_pixels():
    dataset = photographs()
    prepared = prepare(dataset, Preparation(centre=(0.5,)))
    torch.testing.assert_close(prepared.train.x, dataset.train.x - 0.5)
    assert prepared.metadata.input_norm == pytest.approx(dataset.metadata.input_norm / 2, rel=1e-5)
    assert prepared.metadata.input_gain == 2.0
    assert "A public constant is subtracted from each example: 0.5." in prepared.metadata.public_facts


def test_centring_of_other_units_adds_to_the_bound():
    prepared = prepare(photographs(unit="standard deviations"), Preparation(centre=(0.5,)))
    assert prepared.metadata.input_norm == pytest.approx(sqrt(48) * 1.5, rel=1e-5)


def test_each_channel_may_have_its_own_centre():
    dataset = photographs()
    x = prepare(dataset, Preparation(centre=(0.1, 0.2, 0.3))).test.x
    torch.testing.assert_close(x, dataset.test.x - torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1))


def test_rows_are_scaled_to_the_sphere_and_zero_stays_zero():
    dataset = photographs()
    x = dataset.train.x.clone()
    x[0], x[1] = 0.0, x[1] * 1e-30
    prepared = prepare(replace(dataset, train=Split(x, dataset.train.y)), Preparation(normalise=5.0))
    norms = prepared.train.x.flatten(1).norm(dim=1)
    assert norms[0] == 0.0
    torch.testing.assert_close(norms[1:], torch.full((5,), 5.0))
    assert prepared.metadata.input_norm == pytest.approx(5.0, rel=1e-5)


@pytest.mark.parametrize(
    "preparation", [Preparation(colour=space, centre=(0.3,), normalise=2.0) for space in ColourSpace]
)
def test_a_row_depends_on_itself_alone(preparation):
    dataset = photographs()
    x = dataset.train.x.clone()
    x[2] = 1.0 - x[2]
    changed = prepare(replace(dataset, train=Split(x, dataset.train.y)), preparation).train.x
    before = prepare(dataset, preparation).train.x
    others = [0, 1, 3, 4, 5]
    assert torch.equal(changed[others], before[others])


def test_tables_can_be_centred_and_normalised():
    prepared = load("breast_cancer", preparation=Preparation(centre=(0.1,), normalise=1.0))
    torch.testing.assert_close(prepared.train.x.norm(dim=1), torch.ones(len(prepared.train)))
    assert (len(load("breast_cancer").metadata.column_widths), prepared.metadata.column_widths) == (30, ())


def test_prepared_rows_keep_the_hashes_of_what_was_read():
    plain = load("breast_cancer")
    prepared = prepare(plain, Preparation(normalise=1.0))
    assert plain.hashes is not None
    assert prepared.hashes is plain.hashes
    assert plain.hashes.train.shape == (len(plain.train), 16)


@pytest.mark.parametrize("dataset", [photographs(channels=1), photographs(unit="standard deviations")])
def test_colours_of_other_than_rgb_images_are_refused(dataset):
    with pytest.raises(DataError, match=r"Expected RGB images in \[0, 1\] for colour: yiq, got .* \(data\.colour\)"):
        prepare(dataset, Preparation(colour=ColourSpace.YIQ))


@pytest.mark.parametrize("centre", [(1.0, 2.0), (1.0,) * 4])
def test_a_centre_that_fits_no_channels_is_refused(centre):
    with pytest.raises(DataError, match=r"one for each of 3 channels, got \d \(data\.centre\)"):
        prepare(photographs(), Preparation(centre=centre))


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"colour": "yiq"}, "colour"),
        ({"centre": (float("nan"),)}, "centre"),
        ({"normalise": 0.0}, "normalise"),
        ({"normalise": float("inf")}, "normalise"),
        ({"normalise": float("nan")}, "normalise"),
    ],
)
def test_bad_preparations_are_refused(arguments, field):
    with pytest.raises(DataError, match=rf"Expected .* \(data\.{field}\)"):
        Preparation(**arguments)
