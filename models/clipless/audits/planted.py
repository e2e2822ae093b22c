"""Rows whose operands an auditor chooses: they pass a training's own backward pass, guards and sums.

An adversary may pick any row, weights and loss; a layer is then given an input and a cotangent of its output.
Planted rows skip the search for such a row: in a pass, each layer with parameters is given chosen inputs and cotangents
for them, those that move sums most. Everything behind, from the guard to the noise, is the code that trains.

Shape letters: B rows of a pass, R planted rows.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clipless.guards.guard import GuardedLayer
from clipless.network import Network

Shapes = tuple[tuple[int, ...], tuple[int, ...]]  # of an example's input and output


@dataclass(frozen=True, slots=True)
class Operands:
    """Inputs and cotangents that one layer is given.

    Attributes:
        inputs: (R, ...) for the first R rows of a pass; None leaves them.
        cotangents: (R, ...) of its outputs; None for zeros, with which a row contributes nothing.
    """

    inputs: Tensor | None
    cotangents: Tensor | None


def trained_layers(model: Network) -> dict[str, GuardedLayer]:
    """Return the layers that own trained parameters, by name."""
    return {
        name: layer
        for name, layer in model.named_modules()
        if isinstance(layer, GuardedLayer) and any(p.requires_grad for p in layer.parameters(recurse=False))
    }


@contextmanager
def plant_operands(model: Network, rows: int, operands: Mapping[str, Operands]) -> Iterator[None]:
    """Give the layers of ``model`` chosen operands for the first rows of each pass inside the block.

    Passes inside have one size.

    A layer that is not named is given zero cotangents for them. Rows behind are as they would be.
    """
    with ExitStack() as hooks:
        for name, layer in trained_layers(model).items():
            chosen = _Planted(rows, operands.get(name, Operands(None, None)))
            hooks.enter_context(layer.register_forward_pre_hook(chosen.give))
            hooks.enter_context(layer.register_forward_hook(chosen.answer))
        yield


class _Planted:
    """The hooks of one layer. Rules for the gradients of single rows may apply it once more, to one row: no pass."""

    def __init__(self, rows: int, operands: Operands) -> None:
        self._rows, self._operands = rows, operands
        self._batch: int | None = None  # rows of a pass, known from the first one

    def give(self, _: nn.Module, given: tuple[Any, ...]) -> tuple[Tensor] | None:
        """Replace inputs."""
        self._batch = len(given[0]) if self._batch is None else self._batch
        if len(given[0]) != self._batch or self._operands.inputs is None:
            return None
        return (_replace(given[0], self._operands.inputs),)

    def answer(self, _: nn.Module, __: tuple[Any, ...], output: Tensor) -> None:
        """Replace cotangents, before hooks that are added later: rules for single gradients see the chosen ones."""
        if len(output) == self._batch and output.requires_grad:
            output.register_hook(self._replace_cotangents)

    def _replace_cotangents(self, g: Tensor) -> Tensor:
        chosen = self._operands.cotangents
        return _replace(g, g.new_zeros(self._rows, *g.shape[1:]) if chosen is None else chosen)


def _replace(x: Tensor, first: Tensor) -> Tensor:
    return torch.cat([first.to(x), x[len(first) :]])


def operand_shapes(model: Network) -> dict[str, Shapes]:
    """Return the shapes of one example's input and output of each trained layer, by passing a row of zeros."""
    found: dict[str, Shapes] = {}

    def watching(name: str) -> Callable[[nn.Module, tuple[Any, ...], Tensor], None]:
        def watch(_: nn.Module, given: tuple[Any, ...], output: Tensor) -> None:
            found.setdefault(name, (tuple(given[0].shape[1:]), tuple(output.shape[1:])))

        return watch

    with ExitStack() as hooks, torch.no_grad():
        for name, layer in trained_layers(model).items():
            hooks.enter_context(layer.register_forward_hook(watching(name)))
        model.output_shape()
    return found


PATTERNS = ("hovering", "walk", "equal", "magnitudes")


def shares(count: int, pattern: str, generator: np.random.Generator) -> Tensor:
    """Contributions of rows as shares of the largest, (B,)."""
    if pattern == "hovering":  # one row keeps the sum above a power of two, without it later ones round more finely
        boundary = 2.0 ** max(0, int(np.log2(max(count / 2, 1))))
        climb = min(count, int(boundary))
        step = float(np.spacing(np.float32(boundary)))
        drift = np.resize([0.625 * step, -0.375 * step], count - climb)
        values = np.concatenate([np.ones(climb), drift])
    elif pattern == "walk":
        values = generator.uniform(-1.0, 1.0, count)
    elif pattern == "equal":
        values = np.full(count, generator.uniform(0.3, 1.0))
    else:
        values = generator.choice([-1.0, 1.0], count) * 10.0 ** generator.uniform(-8.0, 0.0, count)
    return torch.from_numpy(values).float()


def operand(count: int, shape: tuple[int, ...], varied: bool, generator: np.random.Generator) -> Tensor:
    """Rows (B, ...): one of two kinds of flat ones, a spike, or noise that differs from row to row if ``varied``."""
    kind = generator.integers(4)
    if kind == 0:
        row = torch.ones(1, *shape)
    elif kind == 1:
        row = torch.zeros(1, int(np.prod(shape)))
        row[0, generator.integers(row.shape[1])] = 1.0
        row = row.view(1, *shape)
    else:
        drawn = generator.standard_normal((count if varied else 1, *shape))
        row = torch.from_numpy(drawn * (1.0 if kind == 2 else 10.0 ** generator.uniform(-12.0, 12.0))).float()
    return row.expand(count, *shape).clone()
