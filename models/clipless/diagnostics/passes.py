r"""The forward and backward pass of each row alone, in float64.

Gradients are formed row by row with plain autograd: slower than any batched form, and right for every layer. What the
guard takes a contribution's norm to be is not computed a second time here; the guard is asked.

Shape letters: B rows, D entries of one parameter.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clipless.datasets import Split
from clipless.guards.guard import guarded
from clipless.losses import Loss
from clipless.network import Network, prefix_depth

_LARGEST_CHUNK = 256
_CHUNK_ENTRIES = 2**24


@dataclass(frozen=True, eq=False, slots=True)
class Passes:
    """Some rows, all of them finite."""

    gradients: dict[str, Tensor]  # (B, D) of each row's loss, by parameter
    # (B, D) what the row contributes if the guard does not act, by parameter: its gradient, or that divided by
    # the norm of its input of the layer
    own: dict[str, Tensor]
    # (B,) what the guard takes the norm of ``own`` to be, by parameter; 0 where it is 0
    guard_bounds: dict[str, Tensor]
    activations: dict[str, Tensor]  # (B,) norms of outputs, by layer
    # (B,) norms of the loss's gradients in outputs, by layer, from the last one in front of the first parameter
    # on
    cotangents: dict[str, Tensor]
    left_out: int  # rows that were not finite and are not here

    def __len__(self) -> int:
        return len(next(iter(self.gradients.values())))


@dataclass(frozen=True, eq=False, slots=True)
class _Backward:
    """One row behind the fixed prefix."""

    gradients: list[Tensor]
    outputs: list[Tensor]
    cotangents: list[Tensor]


def passes(model: Network, loss: Loss, split: Split, *, normalise: bool) -> Iterator[Passes]:
    """Pass the rows of ``split`` through a float64 copy of ``model``, some at a time.

    Every trainable parameter must be guarded, and the rows public. Contributions are divided by the norm of the row's
    input of the layer if ``normalise``, as under ``lip-dp-sgd``.
    """
    model = deepcopy(model).double()
    depth = prefix_depth(model)
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    entries = sum(p.numel() for p in parameters.values())
    chunk = max(1, min(_LARGEST_CHUNK, _CHUNK_ENTRIES // entries))
    for x_B, y_B in zip(split.x.split(chunk), split.y.split(chunk), strict=True):
        yield _chunk(model, depth, parameters, loss, x_B.double(), y_B, normalise=normalise)


def _chunk(
    model: Network,
    depth: int,
    parameters: dict[str, nn.Parameter],
    loss: Loss,
    x_B: Tensor,
    y_B: Tensor,
    *,
    normalise: bool,
) -> Passes:
    names = [name for name, _ in model.named_layers()]
    layers = list(model.layers)
    with torch.no_grad():
        front = _outputs(layers[:depth], x_B)
    features_B = front[-1] if front else x_B
    trained = list(parameters.values())
    plain = [_backward(layers[depth:], trained, loss, features_B[i : i + 1], y_B[i : i + 1]) for i in range(len(y_B))]
    gradients = _by_name(parameters, [row.gradients for row in plain])
    with guarded(model, dict.fromkeys(parameters, 1.0), normalise=normalise, measuring=True) as guards:
        loss(_outputs(layers[depth:], features_B)[-1], y_B).sum().backward()
    measured = {
        name: tuple(map(torch.cat, zip(*guard.bounds, strict=True))) for name, guard in guards.items() if guard.bounds
    }
    own = {name: gradients[name] / divisor_B[:, None] for name, (_, divisor_B) in measured.items()}
    bounds = {name: torch.where(_norms(own[name]) == 0, 0.0, bound_B) for name, (bound_B, _) in measured.items()}
    activations = dict(zip(names[:depth], map(_norms, front), strict=True))
    activations |= _norms_by_name(names[depth:], [row.outputs for row in plain])
    cotangents = _norms_by_name(["", *names][depth:], [row.cotangents for row in plain])
    cotangents.pop("", None)  # of the rows themselves, where no layer is in front of the first parameter
    finite_B = torch.stack([*activations.values(), *bounds.values(), *map(_norms, gradients.values())]).isfinite()
    kept_B = finite_B.all(dim=0)

    def select_finite(table: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: values_B[kept_B] for name, values_B in table.items()}

    return Passes(
        gradients=select_finite(gradients),
        own=select_finite(own),
        guard_bounds=select_finite(bounds),
        activations=select_finite(activations),
        cotangents=select_finite(cotangents),
        left_out=int((~kept_B).sum()),
    )


def _backward(
    layers: Sequence[nn.Module], trained: list[nn.Parameter], loss: Loss, features: Tensor, target: Tensor
) -> _Backward:
    """Pass one row forward and back; the first cotangent is that of the features."""
    features = features.detach().requires_grad_()
    outputs = _outputs(layers, features)
    wanted = [*trained, features, *outputs]
    found = torch.autograd.grad(loss(outputs[-1], target).sum(), wanted, materialize_grads=True)
    return _Backward(
        [gradient.flatten() for gradient in found[: len(trained)]],
        [output.detach() for output in outputs],
        list(found[len(trained) :]),
    )


def _outputs(layers: Sequence[nn.Module], x: Tensor) -> list[Tensor]:
    outputs = []
    for layer in layers:
        x = layer(x)
        outputs.append(x)
    return outputs


def _norms(x_B: Tensor) -> Tensor:
    norm_B: Tensor = torch.linalg.vector_norm(x_B.flatten(1), dim=1)
    return norm_B


def _by_name(parameters: dict[str, nn.Parameter], rows: list[list[Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([row[k] for row in rows]) for k, name in enumerate(parameters)}


def _norms_by_name(names: list[str], rows: list[list[Tensor]]) -> dict[str, Tensor]:
    return {name: torch.cat([_norms(row[k]) for row in rows]) for k, name in enumerate(names)}
