"""Ideal canaries: rows whose gradient is one entry of a weight, of the largest norm that a guard lets through.

Such a gradient is of rank one, and canaries on different entries are orthogonal: none changes what is seen of another.
Where each parameter has a guard of its own, a canary has an entry in every weight that is large enough; under
``dp-sgd``, whose clipping norm is for the whole gradient, in one.

Shape letters: M canaries, E entries, R planted rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import sqrt

import torch
from torch import Tensor

from clipless.audits.planted import Operands, Shapes, operand_shapes, trained_layers
from clipless.errors import AuditError
from clipless.guards.convolution import Pair, patch_counts
from clipless.layers import Conv2d, Dense
from clipless.network import Network
from clipless.plans.method import Method
from clipless.plans.plan import Plan

_ASKED = 4.0  # what a canary asks for, over what the guard lets through: a guard that lets through more shows
_INPUT = 2.0**13  # norm of inputs, so that a bias, whose gradient knows no input, is given next to nothing


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Entries of one weight, and the operands that reach them.

    Attributes:
        layer: name of the layer.
        parameter: name of the weight.
        entry: (M,) which entry of the flat weight.
        inputs: (M,) entry of the flat input of one example.
        outputs: (M,) entry of its flat output.
        amplitude: (M,) what a canary contributes, over the sensitivity.
        norms: of inputs, and of cotangents.
        shapes: of an example's input and output.
    """

    layer: str
    parameter: str
    entry: Tensor
    inputs: Tensor
    outputs: Tensor
    amplitude: Tensor
    norms: tuple[float, float]
    shapes: Shapes

    def operands(self, canaries_R: Tensor, sign_R: Tensor) -> Operands:
        """Return what makes rows the chosen canaries, times a sign: 0 for one that does not take part."""
        return Operands(
            _one_entry(self.inputs[canaries_R], self.shapes[0]) * self.norms[0],
            _one_entry(self.outputs[canaries_R], self.shapes[1], sign_R) * self.norms[1],
        )


def _one_entry(place_R: Tensor, shape: tuple[int, ...], value_R: Tensor | None = None) -> Tensor:
    rows = torch.zeros(len(place_R), torch.Size(shape).numel(), device=place_R.device)
    value_R = torch.ones(len(place_R), device=place_R.device) if value_R is None else value_R
    return rows.scatter_(1, place_R[:, None], value_R[:, None].float()).view(-1, *shape)


def lay_canaries(model: Network, plan: Plan, most: int) -> tuple[Entries, ...]:
    """Choose entries for at most ``most`` canaries; all weights returned carry every canary.

    Fewer canaries have entries in more weights: as many are taken as bound epsilon best, about.

    Raises:
        AuditError: no dense layer, and no convolution that canaries can enter, has enough entries.
    """
    sizes = {
        f"{name}.weight": (name, layer.get_parameter("weight").numel())
        for name, layer in trained_layers(model).items()
        if _carries(layer) and f"{name}.weight" in plan.sensitivities
    }
    counts = {min(most, size) for _, size in sizes.values() if min(most, size) >= 2}
    if not counts:
        raise AuditError("Expected a trained dense layer, or a convolution without groups, for canaries; found none")
    shares = {count: _share(plan, [name for name, (_, size) in sizes.items() if size >= count]) for count in counts}
    canaries = max(counts, key=lambda count: shares[count] - 5.0 / sqrt(count))
    carriers = [layer for layer, size in sizes.values() if size >= canaries]
    if plan.method is Method.DP_SGD:
        carriers = carriers[:1]
    shapes = operand_shapes(model)
    return tuple(_entries(model, plan, layer, shapes[layer], canaries) for layer in carriers)


def _share(plan: Plan, names: list[str]) -> float:
    return plan.noise_multiplier / reached_multiplier(plan, names) if names else 0.0


def reached_multiplier(plan: Plan, names: list[str]) -> float:
    """Return the noise multiplier of what is released of some parameters alone."""
    stds = plan.noise_stds
    if plan.method is Method.DP_SGD:
        return plan.noise_multiplier
    return 1.0 / sqrt(sum((plan.sensitivities[name] / stds[name]) ** 2 for name in names))


def _carries(layer: object) -> bool:
    return type(layer) is Dense or (type(layer) is Conv2d and layer.groups == 1 and layer.padding_mode == "zeros")


def _entries(model: Network, plan: Plan, name: str, shapes: Shapes, count: int) -> Entries:
    layer = model.get_submodule(name)
    here, delta = next(layer.parameters()).device, float(plan.sensitivities[f"{name}.weight"])
    # entries far apart: a whole number of them, each once
    size = layer.get_parameter("weight").numel()
    entry_M = (torch.arange(count) * size) // count
    scale = layer.scale if isinstance(layer, Conv2d) else 1.0
    found = _in_kernel(layer, shapes, entry_M) if isinstance(layer, Conv2d) else _in_matrix(shapes, entry_M)
    norms = (_INPUT, _ASKED * delta / (scale * (1.0 if plan.method is Method.LIP_DP_SGD else _INPUT)))
    input_M, output_M = (t.to(here) for t in found)
    amplitude_M = torch.ones(count, dtype=torch.float64, device=here)
    return Entries(name, f"{name}.weight", entry_M.to(here), input_M, output_M, amplitude_M, norms, shapes)


def _in_matrix(shapes: Shapes, entry_M: Tensor) -> tuple[Tensor, Tensor]:
    """Of tokens the first one."""
    inputs = shapes[0][-1]
    return entry_M % inputs, entry_M // inputs


def _in_kernel(layer: Conv2d, shapes: Shapes, entry_M: Tensor) -> tuple[Tensor, Tensor]:
    """Of places, for each entry of the kernel, that whose input belongs to the fewest patches."""
    (_, *size), (_, *out) = shapes
    kernel, stride, padding = layer.geometry
    counts_HW = patch_counts((size[0], size[1]), kernel, stride, padding)
    found = [_best_place(counts_HW, out, (a, b), stride, padding) for a in range(kernel[0]) for b in range(kernel[1])]
    place_K, answer_K = (torch.tensor(values) for values in zip(*found, strict=True))
    offset_M, channel_M = entry_M % len(found), entry_M // len(found)
    inputs = layer.in_channels
    return (
        (channel_M % inputs) * (size[0] * size[1]) + place_K[offset_M],
        (channel_M // inputs) * (out[0] * out[1]) + answer_K[offset_M],
    )


def _best_place(counts_HW: Tensor, out: list[int], offset: Pair, stride: Pair, padding: Pair) -> Pair:
    (height, width), best, least = counts_HW.shape, (0, 0), float("inf")
    for r, s in product(range(out[0]), range(out[1])):
        y, x = r * stride[0] - padding[0] + offset[0], s * stride[1] - padding[1] + offset[1]
        if 0 <= y < height and 0 <= x < width and float(counts_HW[y, x]) < least:
            best, least = (y * width + x, r * out[1] + s), float(counts_HW[y, x])
    return best


def operands_of(entries: tuple[Entries, ...], canaries_R: Tensor, sign_R: Tensor) -> Mapping[str, Operands]:
    """Return what each carrying layer is given for the chosen canaries."""
    return {one.layer: one.operands(canaries_R, sign_R) for one in entries}
