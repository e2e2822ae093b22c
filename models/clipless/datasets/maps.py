r"""Per-example maps between raw inputs and the tensor: colour space, public centring, scaling to a sphere.

Each maps one example by public constants alone, so it releases nothing. What it does to certificates is
declared: linear maps have a constant, which divides radii; HSV and the sphere have none worth the name (moving
a pixel next to black or grey turns its hue by any amount; scaling to norm r multiplies distances near 0 by r over the
norm), so radii are then measured behind them, and the card says so.

Linear maps act on the three colours of each pixel: the constant is the spectral norm of the 3 x 3 matrix.

Shape letters: N examples, C channels, H height, W width.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import sqrt
from types import MappingProxyType

import torch
from torch import Tensor

from clipless.datasets.dataset import Dataset
from clipless.datasets.metadata import ColourSpace, Metadata, Preparation
from clipless.datasets.raw_rows import PIXEL_UNIT
from clipless.errors import DeclarationError
from clipless.norms import spectral_norm_upper

_CHUNK = 4096
# One rounding of a float32 pixel, relative.
_ROUNDING = 1e-6


# Luma of Rec. 601; YIQ as in FCC 1953 (to three digits) and YUV as in BT.470.
MATRICES: Mapping[ColourSpace, tuple[tuple[float, float, float], ...]] = MappingProxyType(
    {
        ColourSpace.GRAY: ((0.299, 0.587, 0.114),),
        ColourSpace.YIQ: ((0.299, 0.587, 0.114), (0.596, -0.274, -0.322), (0.211, -0.523, 0.312)),
        ColourSpace.YUV: ((0.299, 0.587, 0.114), (-0.14713, -0.28886, 0.436), (0.615, -0.51499, -0.10001)),
    }
)


def colour_lipschitz(space: ColourSpace) -> float | None:
    """Lipschitz constant of the map from RGB to ``space``, from above; None where there is no useful one."""
    if space is ColourSpace.RGB:
        return 1.0
    return None if space is ColourSpace.HSV else spectral_norm_upper(torch.tensor(MATRICES[space], dtype=torch.float64))


def prepare(dataset: Dataset, preparation: Preparation) -> Dataset:
    """Apply ``preparation`` to every example, and to the public facts.

    Raises:
        DeclarationError: a colour space for other than images of three channels in [0, 1], or a centre whose length is
            not the number of channels.

    Guarantees:
        Row i of each split is a function of row i and of ``preparation`` alone; ``input_norm`` bounds the norm of
        every prepared example that could occur, and ``input_gain`` the Lipschitz constant from ``radius_unit``.
    """
    if preparation == Preparation():
        return dataset
    metadata = _prepare_facts(dataset.metadata, preparation)
    parts = (dataset.train, dataset.validation, dataset.test)
    train, validation, test = (replace(part, x=_prepare_rows(part.x, preparation)) for part in parts)
    return Dataset(metadata, train, validation, test, dataset.blocks, hashes=dataset.hashes)


def convert(x_NCHW: Tensor, space: ColourSpace) -> Tensor:
    """Convert RGB images in [0, 1] to ``space``; hue, saturation and value are all in [0, 1], 0 where undefined."""
    if space is ColourSpace.RGB:
        return x_NCHW
    if space is ColourSpace.HSV:
        return _hsv(x_NCHW)
    matrix = torch.tensor(MATRICES[space], dtype=torch.float64)
    return torch.einsum("oc,nchw->nohw", matrix, x_NCHW.double()).to(x_NCHW.dtype)


def _hsv(x_NCHW: Tensor) -> Tensor:
    red, green, blue = x_NCHW.unbind(1)
    value, low = x_NCHW.amax(1), x_NCHW.amin(1)
    chroma = value - low
    divisor = torch.where(chroma > 0, chroma, 1.0)
    sector = torch.where(
        value == red,
        ((green - blue) / divisor).remainder(6.0),
        torch.where(value == green, (blue - red) / divisor + 2.0, (red - green) / divisor + 4.0),
    )
    saturation = chroma / torch.where(value > 0, value, 1.0)
    return torch.stack([sector / 6.0, saturation, value], dim=1)


def _prepare_rows(x: Tensor, preparation: Preparation) -> Tensor:
    return torch.cat([_prepare_chunk(chunk, preparation) for chunk in x.split(_CHUNK)])


def _prepare_chunk(x: Tensor, preparation: Preparation) -> Tensor:
    x = convert(x, preparation.colour)
    if preparation.centre:
        x = x - torch.tensor(preparation.centre, dtype=x.dtype).view(-1, *[1] * (x.dim() - 2))
    if preparation.normalise is not None:
        norm_N = torch.linalg.vector_norm(x.flatten(1).double(), dim=1).view(-1, *[1] * (x.dim() - 1))
        x = (x.double() * (preparation.normalise / torch.where(norm_N > 0, norm_N, 1.0))).to(x.dtype)
    return x


def _prepare_facts(facts: Metadata, preparation: Preparation) -> Metadata:
    if preparation.colour is not ColourSpace.RGB:
        facts = _colour_facts(facts, preparation.colour)
    if preparation.centre or preparation.normalise is not None:
        facts = replace(facts, column_widths=())  # entries are no longer as they were encoded
    if preparation.centre:
        facts = _centre_facts(facts, preparation)
    return facts if preparation.normalise is None else _normalise_facts(facts, preparation.normalise)


def _colour_facts(facts: Metadata, space: ColourSpace) -> Metadata:
    if len(facts.input_shape) != 3 or facts.input_shape[0] != 3 or facts.radius_unit != PIXEL_UNIT:
        raise DeclarationError(
            f"Expected RGB images in [0, 1] for colour: {space.value}, got examples of shape {facts.input_shape}, "
            f"{facts.radius_unit}, in {facts.name} (data.colour)"
        )
    gain, ranges = colour_lipschitz(space), _ranges(space)
    shape = (len(ranges), *facts.input_shape[1:])
    norm = _box_norm(ranges, shape)
    fact = f"Colours are converted to {space.value.upper()}, pixel by pixel, by fixed formulas."
    changed = replace(facts, input_shape=shape, public_facts=(*facts.public_facts, fact))
    if gain is None:
        return _behind(replace(changed, input_norm=norm), f"{space.value.upper()} coordinates in [0, 1]")
    norm = min(norm, gain * facts.input_norm * (1 + _ROUNDING))
    return replace(changed, input_norm=norm, input_gain=gain * facts.input_gain)


def _centre_facts(facts: Metadata, preparation: Preparation) -> Metadata:
    centre, shape = preparation.centre, facts.input_shape
    if len(centre) not in (1, shape[0]):
        raise DeclarationError(
            f"Expected one number to subtract or one for each of {shape[0]} channels, got {len(centre)} (data.centre)"
        )
    each = centre if len(centre) > 1 else centre * shape[0]
    entries = torch.Size(shape[1:]).numel()
    norm = facts.input_norm + sqrt(entries * sum(c**2 for c in each))
    if facts.radius_unit == PIXEL_UNIT or preparation.colour is ColourSpace.HSV:
        ranges = _ranges(preparation.colour) * (shape[0] if preparation.colour is ColourSpace.RGB else 1)
        norm = min(norm, _box_norm([(low - c, high - c) for (low, high), c in zip(ranges, each, strict=True)], shape))
    written = ", ".join(f"{c:g}" for c in centre)
    fact = f"A public constant is subtracted from each example: {written}."
    return replace(facts, input_norm=norm * (1 + _ROUNDING), public_facts=(*facts.public_facts, fact))


def _normalise_facts(facts: Metadata, norm: float) -> Metadata:
    fact = f"Each example is divided by its own norm and multiplied by {norm:g}."
    facts = replace(facts, input_norm=norm * (1 + _ROUNDING), public_facts=(*facts.public_facts, fact))
    return _behind(facts, f"examples scaled to norm {norm:g}")


def _behind(facts: Metadata, unit: str) -> Metadata:
    """Measure radii from here on: what comes before has no useful Lipschitz constant."""
    condition = (
        f"Certified radii are in units of {unit}, behind a map without a useful Lipschitz constant: they bound no "
        f"distance between {facts.radius_unit}."
    )
    return replace(facts, input_gain=1.0, radius_unit=unit, conditions=(*facts.conditions, condition))


def _ranges(space: ColourSpace) -> list[tuple[float, float]]:
    """Smallest and largest value of each channel over colours in [0, 1]; for RGB of one channel."""
    if space is ColourSpace.RGB:
        return [(0.0, 1.0)]
    if space is ColourSpace.HSV:
        return [(0.0, 1.0)] * 3
    return [(sum(min(a, 0.0) for a in row), sum(max(a, 0.0) for a in row)) for row in MATRICES[space]]


def _box_norm(ranges: list[tuple[float, float]], shape: tuple[int, ...]) -> float:
    """Largest norm of a tensor of ``shape`` whose channels lie within ``ranges``."""
    entries = torch.Size(shape[1:]).numel()
    return sqrt(entries * sum(max(low**2, high**2) for low, high in ranges)) * (1 + _ROUNDING)
