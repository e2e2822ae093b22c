"""Ideal canaries: rows whose gradient is one direction of a weight, of the largest norm that a guard lets through.

Such a gradient is of rank one: one input, and of its outputs a row of a Hadamard matrix. Directions are orthogonal, so
that no canary changes what is seen of another; and spread over outputs, for the whole numbers that sums are made of end
somewhere, and a gradient in a single entry would be cut there long before it is as large as the guard allows. Entries
of a direction are equal in size, and so are their whole numbers: rounding leaves directions as they are.
Where each parameter has a guard of its own, a canary has a direction in every weight that is large enough; under
``dp-sgd``, whose clipping norm is for the whole gradient, in one.

Shape letters: M canaries, R planted rows, O outputs or channels of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import sqrt

import torch
from scipy.linalg import hadamard
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
    """Directions in one weight, and the operands that reach them.

    Attributes:
        layer: name of the layer.
        parameter: name of the weight.
        basis: (O, O) orthonormal; the rows are what directions are made of along the outputs.
        axis: of a batch of outputs, along which they are.
        entry: (M,) which entry of the flat weight, seen in the basis.
        inputs: (M,) entry of the flat input of one example.
        outputs: (M,) entry of its flat output, seen in the basis.
        amplitude: (M,) what a canary contributes, over the sensitivity.
        norms: of inputs, and of cotangents.
        shapes: of an example's input and output.
    """

    layer: str
    parameter: str
    basis: Tensor
    axis: int
    entry: Tensor
    inputs: Tensor
    outputs: Tensor
    amplitude: Tensor
    norms: tuple[float, float]
    shapes: Shapes

    def operands(self, canaries_R: Tensor, sign_R: Tensor) -> Operands:
        """Return the operands of the chosen canaries, times a sign: 0 for one that does not take part."""
        outputs = _one_entry(self.outputs[canaries_R], self.shapes[1], sign_R)
        cotangents = torch.tensordot(outputs, self.basis.to(outputs), dims=([self.axis], [0])).movedim(-1, self.axis)
        return Operands(
            _one_entry(self.inputs[canaries_R], self.shapes[0]) * self.norms[0], cotangents.contiguous() * self.norms[1]
        )

    def components(self, weight: Tensor) -> Tensor:
        """Return the components of a tensor of the weight's size in the canaries' directions, (M,) float64."""
        inside: Tensor = self.basis @ weight.double().view(len(self.basis), -1)
        return inside.flatten()[self.entry]


def _one_entry(place_R: Tensor, shape: tuple[int, ...], value_R: Tensor | None = None) -> Tensor:
    rows = torch.zeros(len(place_R), torch.Size(shape).numel(), device=place_R.device)
    value_R = torch.ones(len(place_R), device=place_R.device) if value_R is None else value_R
    return rows.scatter_(1, place_R[:, None], value_R[:, None].float()).view(-1, *shape)


def lay_canaries(model: Network, plan: Plan, most: int) -> tuple[Entries, ...]:
    """Choose directions for at most ``most`` canaries; all weights returned carry every canary.

    Fewer canaries have directions in more weights: as many are taken as bound epsilon best, about.

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
    """Return the noise multiplier of the released sums of some parameters alone."""
    stds = plan.noise_stds
    if plan.method is Method.DP_SGD:
        return plan.noise_multiplier
    return 1.0 / sqrt(sum((plan.sensitivities[name] / stds[name]) ** 2 for name in names))


def _carries(layer: object) -> bool:
    return type(layer) is Dense or (type(layer) is Conv2d and layer.groups == 1 and layer.padding_mode == "zeros")


def _entries(model: Network, plan: Plan, name: str, shapes: Shapes, count: int) -> Entries:
    layer = model.get_submodule(name)
    here, delta = next(layer.parameters()).device, float(plan.sensitivities[f"{name}.weight"])
    weight = layer.get_parameter("weight")
    basis, widest = hadamard_basis(len(weight))
    size = widest * weight[0].numel()  # of directions that are spread most, unless there are too few
    size = size if size >= count else weight.numel()
    entry_M = (torch.arange(count) * size) // count  # each once
    scale = layer.scale if isinstance(layer, Conv2d) else 1.0
    found = _in_kernel(layer, shapes, entry_M) if isinstance(layer, Conv2d) else _in_matrix(shapes, entry_M)
    norms = (_INPUT, _ASKED * delta / (scale * (1.0 if plan.method is Method.LIP_DP_SGD else _INPUT)))
    input_M, output_M = (t.to(here) for t in found)
    return Entries(
        layer=name,
        parameter=f"{name}.weight",
        basis=basis.to(here),
        axis=1 if isinstance(layer, Conv2d) else -1,
        entry=entry_M.to(here),
        inputs=input_M,
        outputs=output_M,
        amplitude=torch.ones(count, dtype=torch.float64, device=here),
        norms=norms,
        shapes=shapes,
    )


def hadamard_basis(count: int) -> tuple[Tensor, int]:
    """Return an orthonormal basis of Hadamard matrices along its diagonal, (O, O), and the size of the first of them.

    Their sizes are the powers of two that ``count`` is made of, the largest first.
    """
    sizes = [2**power for power in reversed(range(count.bit_length())) if count >> power & 1]
    blocks = [torch.from_numpy(hadamard(size)).double() / sqrt(size) for size in sizes]
    return torch.block_diag(*blocks), sizes[0]


def _in_matrix(shapes: Shapes, entry_M: Tensor) -> tuple[Tensor, Tensor]:
    """Return the entries of a matrix; of tokens, those of the first one."""
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
    """Return the operands of each carrying layer for the chosen canaries."""
    return {one.layer: one.operands(canaries_R, sign_R) for one in entries}
