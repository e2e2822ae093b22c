"""Per-example gradients of one layer, from its inputs and the cotangents of its outputs.

Layers with a rule here are found by exact type; any other is differentiated row by row, which is slower. Row i of a
result depends on row i of inputs and cotangents alone.

Shape letters: B batch, O outputs, I inputs, G groups, P patch entries, L patches.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from clipless.layers import Conv1d, Conv2d, ConvexPotential, Dense, Residual

Rows = dict[nn.Parameter, Tensor]


def layer_gradients(layer: nn.Module, x: Tensor, g: Tensor) -> Rows:
    """Form the gradient of each example in the parameters of ``layer`` itself, not of layers inside it.

    ``x`` are its (B, ...) inputs, ``g`` the cotangents of its outputs; it maps each row alone.

    Returns:
        By parameter, (B, *shape of the parameter).
    """
    return _RULES.get(type(layer), _differentiate)(layer, x, g)


def _dense(layer: Dense, x: Tensor, g: Tensor) -> Rows:
    """Return the gradients of a dense layer, on a vector or on tokens."""
    rows = {layer.weight: torch.einsum("b...o,b...i->boi", g, x)}
    return rows if layer.bias is None else {**rows, layer.bias: torch.einsum("b...o->bo", g)}


def _convolution(layer: Conv1d | Conv2d, x: Tensor, g: Tensor) -> Rows:
    g_BOL = g.flatten(2)
    kernels = torch.einsum("bgol,bgpl->bgop", g_BOL.unflatten(1, (layer.groups, -1)), layer.patches(x)) * layer.scale
    rows = {layer.weight: kernels.reshape(-1, *layer.weight.shape)}
    return rows if layer.bias is None else {**rows, layer.bias: g_BOL.sum(dim=2)}


def _potential(layer: ConvexPotential, x: Tensor, g: Tensor) -> Rows:
    """Return the gradients of both uses of the weight, on a vector or on tokens."""
    hidden = torch.nn.functional.linear(x, layer.weight, layer.bias).relu()
    inner = torch.where(hidden > 0.0, -2.0 * (g @ layer.weight.mT), 0.0)
    both = torch.einsum("b...o,b...i->boi", inner, x) + torch.einsum("b...o,b...i->boi", hidden, -2.0 * g)
    rows = {layer.weight: both}
    return rows if layer.bias is None else {**rows, layer.bias: torch.einsum("b...o->bo", inner)}


def _residual(layer: Residual, x: Tensor, g: Tensor) -> Rows:
    if layer.mix is None:
        return {}
    return {layer.mix: (g * (x - layer.inside(x))).flatten(1).sum(dim=1, keepdim=True)}


def _differentiate(layer: nn.Module, x: Tensor, g: Tensor) -> Rows:
    parameters = dict(layer.named_parameters(recurse=False))

    def inner_product(values: dict[str, Tensor], one_x: Tensor, one_g: Tensor) -> Tensor:
        y: Tensor = functional_call(layer, values, (one_x[None],))
        return (y * one_g[None]).sum()

    values = {name: parameter.detach() for name, parameter in parameters.items()}
    rows = vmap(grad(inner_product), in_dims=(None, 0, 0))(values, x, g)
    return {parameter: rows[name] for name, parameter in parameters.items()}


_RULES: Mapping[type[nn.Module], Callable[[Any, Tensor, Tensor], Rows]] = MappingProxyType(
    {Conv1d: _convolution, Conv2d: _convolution, ConvexPotential: _potential, Dense: _dense, Residual: _residual}
)
