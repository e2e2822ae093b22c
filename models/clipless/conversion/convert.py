"""Conversion of a user's own module to a `Network` of layers with bound rules.

The module is traced by ``torch.fx``. Each operation must have a layer of `clipless.layers` that computes the same; sums
``x + f(x)`` become residual blocks. What has none is refused by name: nothing is approximated. Then the network and
the module compute the same on random inputs, or the module is refused.

Shape letters: B batch.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from clipless.conversion.graph import layers_of
from clipless.conversion.torch_layers import Weights
from clipless.errors import UnsupportedError
from clipless.layers import InputBall
from clipless.network import Network
from clipless.projections import Constraint, Orthogonal

_TOLERANCE = 1e-5  # in float64; kernels that are rescaled in float32 round
_ROWS = (3, 4)


def convert(
    module: nn.Module,
    input_shape: Sequence[int],
    *,
    input_norm: float | None = None,
    constraint: Constraint | None = None,
    bias_norm: float = 1.0,
) -> Network:
    """Return a network equal to ``module``, of layers that private training can bound.

    ``nn.Linear``, ``nn.Conv1d`` and ``nn.Conv2d``, activations, poolings and flattening are accepted as modules,
    functions or methods, in plain sequence and in residual sums ``x + f(x)``; so are layers of `clipless.layers`.
    Weights are carried over, and then projected onto their constraint sets: with `Free` they stay what they were.

    Args:
        module: takes (B, *input_shape), returns logits (B, K). It is left as it is; the network shares nothing with it.
        input_shape: shape of one example.
        input_norm: radius of the input ball that is put before the layers; left out, the module has one itself.
        constraint: of every weight that is not in a layer of `clipless.layers`; left out, `Orthogonal`.
        bias_norm: radius of the ball that each of their biases is kept in. A public number.

    Raises:
        UnsupportedError: naming the operation that has no layer, where it stands, and what to do.
    """
    _check_own(module)
    model = deepcopy(module)
    weights = Weights(constraint or Orthogonal(), bias_norm)
    layers = layers_of(model, weights)
    if input_norm is not None:
        layers.insert(0, InputBall(input_norm))
    elif not layers or type(layers[0]) is not InputBall:
        raise UnsupportedError(
            "Expected input_norm for a module that does not begin with an InputBall; give its radius"
        )
    here = next(model.parameters(), torch.zeros(()))
    network = Network(layers, input_shape).to(device=here.device, dtype=here.dtype)
    _check_equal(model, network)
    network.project()
    weights.freeze()
    return network


def _check_own(model: nn.Module) -> None:
    """Refuse parameters and layers that stand in two places, and hooks."""
    seen: dict[int, str] = {}
    for path, parameter in model.named_parameters(remove_duplicate=False):
        first = seen.setdefault(parameter.untyped_storage().data_ptr(), path)
        if first != path:
            raise UnsupportedError(
                f"Cannot convert {path}: it shares its weights with {first}; give it weights of its own"
            )
    for path, part in model.named_modules():
        for hooks in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            if getattr(part, hooks):
                raise UnsupportedError(f"Cannot convert {path or 'the module'}: it has {hooks[1:]}; remove them")
        if "forward" in vars(part):
            raise UnsupportedError(
                f"Cannot convert {path or 'the module'}: its forward was replaced; use its class's own"
            )


@torch.no_grad()
def _check_equal(model: nn.Module, network: Network) -> None:
    """Refuse a module that computes something else on random inputs, in training mode or evaluation mode."""
    exact, made = deepcopy(model).double(), deepcopy(network).double()
    generator = torch.Generator().manual_seed(0)
    for training in (True, False):
        exact.train(training)
        for rows in _ROWS:
            x = torch.randn((rows, *network.input_shape), generator=generator, dtype=torch.float64)
            x = _inside(x, network).to(next(made.parameters(), x).device)
            expected, got = _output(exact, x), made(x)
            same_shape = isinstance(expected, Tensor) and expected.shape == got.shape
            if not (same_shape and torch.allclose(expected, got, rtol=_TOLERANCE, atol=_TOLERANCE)):
                raise UnsupportedError(
                    f"Cannot convert {type(model).__name__}: layers in its place compute something else; "
                    "its forward has to be the same function at every call, in training and in evaluation mode"
                )


def _output(model: nn.Module, x: Tensor) -> Any:
    try:
        return model(x.clone())
    except Exception as error:  # shapes that do not fit, above all
        reason = " ".join(str(error).split())
        raise UnsupportedError(
            f"Cannot apply {type(model).__name__} to {tuple(x.shape)}: {reason:.200}; give the shape of one example"
        ) from error


def _inside(x: Tensor, network: Network) -> Tensor:
    """Scale rows into the input ball, which then changes nothing."""
    ball = network.layers[0]
    radius = ball.radius if isinstance(ball, InputBall) else 1.0
    norms = x.flatten(1).norm(dim=1).view(-1, *[1] * (x.dim() - 1))
    scaled: Tensor = x / norms * radius * torch.linspace(0.1, 0.99, len(x), dtype=x.dtype).view_as(norms)
    return scaled
