"""Adversarial checks for layers and networks: for this project's tests, and for users who add a layer.

A check searches for the input, cotangent or neighbouring batch that breaks a bound. It can refute a rule; it
never proves one.

Shape letters: B batch.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from clipless.bounds import Signal, WeightNorms, bound_layer
from clipless.losses import Loss
from clipless.network import Network
from clipless.plans.plan import Plan
from clipless.privacy.randomness import RandomSource
from clipless.training.batch_sums import sum_gradients
from clipless.training.optimizers import Adam, Descent

PATIENCE = 25  # steps without a rise after which a start ends


class SeededSource(RandomSource):
    """Randomness that tests can repeat. A model trained with it has no privacy guarantee."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    @property
    def secure(self) -> bool:
        """False: the seed gives the noise away."""
        return False

    def random_bytes(self, count: int) -> bytearray:
        """Return the next ``count`` bytes."""
        return bytearray(self._generator.bytes(count))


def worst_ratios(
    layer: nn.Module, shape: tuple[int, ...], *, norm: float = 1.0, starts: int = 8, steps: int = 150, seed: int = 0
) -> dict[str, float]:
    """Search for the inputs and cotangents that come closest to each bound of ``layer``.

    Gradient ascent in float64 over inputs of norm ``norm`` and cotangents of norm 1, from a constant start, a
    single bright element, and random ones; the weights are the layer's own, their norms measured.

    Each of the ``starts`` takes at most ``steps`` steps of ascent: it ends when it no longer rises.

    Returns:
        Largest found value over its bound: ``output``, ``input`` and each parameter by name. A correct rule
        gives at most 1 (up to 1e-6); a tight one nearly 1.
    """
    layer = layer.double()
    bound = bound_layer(layer, Signal(shape, norm), WeightNorms.MEASURED)
    parameters = dict(layer.named_parameters())
    gains = {"input": bound.input_gain, **bound.parameter_gains}

    def ratio(name: str, x: Tensor, g: Tensor) -> Tensor | None:
        y = layer(x[None])
        if name == "output":
            output: Tensor = y.norm() / bound.output.norm
            return output
        moved = x if name == "input" else parameters[name]
        (found,) = torch.autograd.grad(y, [moved], g.view_as(y), create_graph=True, allow_unused=True)
        return None if found is None or gains[name] <= 0 else found.norm() / gains[name]

    generator = torch.Generator().manual_seed(seed)
    worst: dict[str, float] = {}
    for name in ("output", "input", *parameters):
        for start in range(starts):
            x, g = (_start(start, size, generator) for size in (shape, bound.output.shape))
            worst[name] = max(worst.get(name, 0.0), _ascend(partial(ratio, name), x, g, norm, steps))
    return worst


def _start(kind: int, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    if kind == 0:
        return torch.ones(shape, dtype=torch.float64)
    if kind == 1:
        bright = torch.zeros(shape, dtype=torch.float64)
        bright.view(-1)[bright.numel() // 2] = 1.0
        return bright
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def _ascend(measure: Callable[[Tensor, Tensor], Tensor | None], x: Tensor, g: Tensor, norm: float, steps: int) -> float:
    best, rose = 0.0, 0
    x, g = x.requires_grad_(), g.requires_grad_()
    descent = Descent(Adam(0.05), [x, g])
    for step in range(steps):
        if step - rose > PATIENCE:
            break
        with torch.no_grad():
            x.mul_(norm / x.norm().clamp(min=1e-12))
            g.div_(g.norm().clamp(min=1e-12))
        value = measure(x, g)
        if value is None:
            return best
        if value.item() > best:
            rose = step if value.item() > best * (1 + 1e-6) else rose
            best = value.item()
        x.grad, g.grad = torch.autograd.grad(-value, [x, g], allow_unused=True)
        descent.step()
    return best


def neighbour_ratios(
    model: Network, loss: Loss, x: Tensor, y: Tensor, plan: Plan, row: int = 0, *, exact: bool = False
) -> dict[str, float]:
    """Measure how far leaving one row out, its place kept, moves each parameter's guarded sum, over its sensitivity.

    Weights may break every bound, and (B, ...) inputs be non-finite; ``exact`` is as for
    `clipless.training.batch_sums.sum_gradients`.

    Returns:
        Ratio by parameter; at most 1. NaN if a gradient is not finite.
    """
    last = torch.cat([torch.arange(row), torch.arange(row + 1, len(x)), torch.tensor([row])])
    full = _summed_gradients(model, loss, x[last], y[last], plan, len(x), exact)
    fewer = _summed_gradients(model, loss, x[last], y[last], plan, len(x) - 1, exact)
    return {name: ((full[name] - fewer[name]).norm() / plan.sensitivities[name]).item() for name in full}


def _summed_gradients(
    model: Network, loss: Loss, x: Tensor, y: Tensor, plan: Plan, rows: int, exact: bool
) -> dict[str, Tensor]:
    totals = {n: torch.zeros_like(p, dtype=torch.float64) for n, p in model.named_parameters() if p.requires_grad}
    sum_gradients(model, loss, x, y, plan, totals, rows=rows, exact=exact)
    return totals


def unguarded_ratios(
    model: Network, loss: Loss, x: Tensor, y: Tensor, sensitivities: Mapping[str, float], *, steps: int = 100
) -> dict[str, float]:
    """Search, without the guard, for examples whose gradient comes closest to each analytic sensitivity.

    The weights are within their constraints; ``x`` (B, ...) are starting points, scaled freely, ``steps`` those of
    gradient ascent for each parameter.

    Returns:
        Largest found ratio by parameter; at most 1 where the bounds are right.
    """
    worst: dict[str, float] = {}
    parameters = dict(model.named_parameters())
    for name, parameter in parameters.items():
        found = 0.0
        for start, target in zip(x, y, strict=True):
            example = start.clone().requires_grad_()
            descent = Descent(Adam(0.1), [example])
            for _ in range(steps):
                total = loss(model(example[None]), target[None]).sum()
                (gradient,) = torch.autograd.grad(total, [parameter], create_graph=True)
                ratio = gradient.norm() / sensitivities[name]
                found = max(found, ratio.item())
                (example.grad,) = torch.autograd.grad(-ratio, [example])
                descent.step()
        worst[name] = found
    return worst


def coupled_rows(model: Callable[[Tensor], Tensor], x: Tensor, row: int, replacement: Tensor) -> list[int]:
    """Return the rows whose output changes in any bit when ``row`` is replaced at fixed shape; should be none."""
    changed = x.clone()
    changed[row] = replacement
    with torch.no_grad():
        before, after = model(x), model(changed)
    others = [i for i in range(len(x)) if i != row]
    return [i for i in others if not torch.equal(before[i], after[i])]


@contextmanager
def broken_weights(model: Network, factor: float = 100.0) -> Iterator[None]:
    """Multiply every weight by ``factor`` inside the block, so that every norm bound is wrong."""
    saved = {name: p.detach().clone() for name, p in model.named_parameters()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(factor)
    try:
        yield
    finally:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(saved[name])
