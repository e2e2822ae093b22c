"""Rows that join a batch and shift the others: what `neighbours.py` searches beside rows that leave it.

A row joins in front of a batch or in the middle, so that those behind it move to other places of their passes. Most of
these stand at kinks built on purpose, where the last bit decides about a whole contribution: of units (ReLU, ties of
GroupSort), of windows (ties of a maximum) and of the loss (the margin of a hinge). What the joined batch adds up to has
to be, bit by bit, what the two add up to apart. Passes and places are those that `clipless.fit` takes.

Shape letters: B rows of a pass, K logits.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

import clipless
from clipless.audits.placement import FixedPlacement, Sums
from clipless.datasets import Split
from clipless.layers import Conv1d, Conv2d, Dense, Flatten, GroupSort, InputBall, MaxPool2d, ReLU, Residual
from clipless.losses import MulticlassHinge
from clipless.network import Network, precompute, split_fixed_prefix
from clipless.plans.method import Method
from clipless.plans.placement import Placement, take_rows, whole
from clipless.plans.plan import Plan
from clipless.privacy.randomness import SecureSource
from clipless.projections import SpectralBall
from clipless.row_independence import PassShape, make_rows
from clipless.training.batch_sums import CountedLoss, sum_gradients
from clipless.training.placing import training_places

MARGIN = 0.1
MOST = (7, 8, 32, 40, 64, 512)  # rows of a pass, at most
OF_A_KIND = 24  # rows for each kind of kink: those next to one among
MADE = 96
JOINED = 3  # rows that join, at most
_FILLS = (0.0, float("nan"), 3.0)  # of joining rows: empty, of zero contribution, full

Kinks = Callable[[Tensor], Tensor]


def _series(width: int) -> Network:
    block = Residual([Conv1d(4, 4, 3, padding=1), GroupSort()], 0.5, learned=True)
    layers = [InputBall(1e3), Conv1d(2, 4, 3, padding=1), block, Flatten(), Dense(4 * width, 2)]
    return Network(layers, (2, width))


NETWORKS: dict[str, Callable[[int], Network]] = {
    "ReLU": lambda width: Network([InputBall(1e3), Dense(width, 16, bias=True), ReLU(), Dense(16, 2)], (width,)),
    "GroupSort": lambda width: Network(
        [InputBall(1e3), Dense(width, 8), GroupSort(), Dense(8, 6), GroupSort(None), Dense(6, 2)], (width,)
    ),
    "hinge": lambda width: Network([InputBall(1e3), Dense(width, 3, SpectralBall(1.0), bias=True)], (width,)),
    "max-pool": lambda width: Network(
        [InputBall(1e3), Conv2d(1 + width % 3, 4, 3, padding=1), MaxPool2d(), Flatten(), Dense(36, 2)],
        (1 + width % 3, 7, 7),
    ),
    "series": _series,
    "mixer": lambda width: clipless.zoo.mixer((1 + width % 3, 4, 4), 2, input_norm=1e3, patch=2, depth=1),
}
METHODS: dict[str, dict[str, object]] = {
    "clipless": {"method": Method.CLIPLESS},
    "exact norms": {"method": Method.CLIPLESS},
    "lip-dp-sgd": {"method": Method.LIP_DP_SGD},
    "dp-sgd": {"method": Method.DP_SGD, "clip_norm": 0.5},
    "ghost": {"method": Method.DP_SGD, "clip_norm": 0.5},
}


@dataclass(frozen=True)
class Shift:
    """What was computed of one pair.

    Attributes:
        joined: of the batch and the rows that joined it.
        own: of the batch.
        apart: of the rows that joined.
        count: of these.
        slotted: whether batches have slots.
    """

    joined: Sums
    own: Sums
    apart: Sums
    count: int
    slotted: bool

    def moved(self, name: str) -> float:
        """Return by how much other rows moved."""
        return float((self.joined[name] - self.own[name] - self.apart[name]).norm())

    def contributed(self, name: str) -> float:
        """Return how much the rows that joined contribute, on average."""
        return float(self.apart[name].norm()) / self.count


@dataclass(frozen=True)
class Shifted:
    """A training whose batches rows join.

    Attributes:
        model: the network.
        plan: of the training.
        data: features behind the fixed prefix: rows at kinks, and in front and in the middle those that join.
        middle: the first of these.
        places: where training puts its rows.
        method: of `METHODS`.
    """

    model: Network
    plan: Plan
    data: Split
    middle: int
    places: Placement
    method: str

    def pairs(self, generator: np.random.Generator, batches: int) -> Iterator[Shift]:
        """Yield pairs of batches, the second with rows that join in front or in the middle."""
        joining = [torch.arange(first, first + JOINED) for first in (0, self.middle)]
        own_N = torch.ones(len(self.data), dtype=torch.bool)
        own_N[torch.cat(joining)] = False
        alone: dict[tuple[str, int, int], Sums] = {}  # sums of rows that join
        for _ in range(batches):
            share = generator.uniform(0.05, 0.5)
            drawn_B = (own_N & torch.from_numpy(generator.random(len(own_N)) < share)).nonzero()[:, 0]
            own = self.sums(drawn_B)
            for rows, fill in zip(joining * len(_FILLS), np.repeat(_FILLS, len(joining)), strict=True):
                chosen = rows[: int(generator.integers(1, JOINED + 1))].clone()
                self.data.x[chosen] = float(fill)
                together_B = torch.cat([drawn_B, chosen]).sort().values  # batches are drawn in the order of the data
                key = str(fill), int(rows[0]), len(chosen)
                alone[key] = alone.get(key) or self.sums(chosen)
                slotted = self.places.slots is not None
                yield Shift(self.sums(together_B), own, alone[key], len(chosen), slotted=slotted)

    def sums(self, rows_B: Tensor) -> Sums:
        """Add up a batch as a step does before its noise."""
        totals = {n: torch.zeros_like(p, dtype=torch.float64) for n, p in self.model.named_parameters()}
        trained = split_fixed_prefix(self.model)[1]
        for chosen in self.places.passes(rows_B.to(self.data.x.device)):
            placed = whole(chosen, self.places.size)
            loss, x, y = CountedLoss(_LOSS, placed >= 0), take_rows(self.data.x, placed), take_rows(self.data.y, placed)
            sum_gradients(self.model, loss, x, y, self.plan, totals, forward=trained, **_ways(self.method))
        return totals


_LOSS = MulticlassHinge(MARGIN)


def _ways(method: str) -> dict[str, bool]:
    return {"ghost": method == "ghost", "exact": method == "exact norms"}


def shifted(network: str, method: str, device: str, generator: np.random.Generator) -> Shifted:
    """Return a training of random weights, width and passes."""
    torch.manual_seed(int(generator.integers(2**31)))
    model = NETWORKS[network](int(generator.integers(2, 41))).to(device)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(float(generator.uniform(0.3, 1.0)))
    data, middle = _data(model, device, generator)
    share = {"sensitivity_fraction": 10.0 ** generator.uniform(-4.0, 0.0)} if "clip_norm" not in METHODS[method] else {}
    batch_size = float(generator.uniform(3.0, len(data)))
    plan = clipless.make_plan(
        model,
        _LOSS,
        population=len(data),
        batch_size=batch_size,
        delta=1e-5,
        noise_multiplier=1.0,
        epochs=1,
        **METHODS[method],
        **share,
    )
    most = int(generator.choice(MOST))
    places = training_places(model, _LOSS, data, plan, SecureSource(), most, **_ways(method))
    if places.slots is not None:  # what random slots come to, given where they place each row
        places = Placement(
            places.size, FixedPlacement(-(-max(places.slots.count, len(data)) // places.size) * places.size)
        )
    return Shifted(model, plan, precompute(split_fixed_prefix(model)[0], data), middle, places, method)


def _data(model: Network, device: str, generator: np.random.Generator) -> tuple[Split, int]:
    """Return rows at every kind of kink, in random order, with empty ones in front and in the middle."""
    seeded = torch.Generator().manual_seed(int(generator.integers(2**31)))
    x = torch.cat([_nearest(model, kinks, device, seeded) for kinks in _kinks(model)])
    x = x[torch.from_numpy(generator.permutation(len(x))).to(device)]
    empty, middle = x.new_zeros((JOINED, *model.input_shape)), int(generator.integers(1, len(x)))
    x = torch.cat([empty, x[:middle], empty, x[middle:]])
    y = torch.from_numpy(generator.integers(model.output_shape()[0], size=len(x))).to(device)
    return Split(x, y), JOINED + middle


@torch.no_grad()
def _nearest(model: Network, kinks: Kinks, device: str, generator: torch.Generator) -> Tensor:
    form = PassShape(None, MADE, model.input_shape, torch.device(device))
    x = make_rows(MADE, form, generator, kinks)
    away_B = kinks(x).flatten(1).abs().amin(dim=1) / model.layers[0](x).flatten(1).norm(dim=1)  # of the input ball
    return x[away_B.argsort()[:OF_A_KIND]]


def _kinks(model: Network) -> list[Kinks]:
    """Return maps at whose zeros a contribution comes or goes."""
    layers = list(model.layers)
    found: list[Kinks] = []
    for depth, layer in enumerate(layers):
        if isinstance(layer, ReLU):
            found.append(partial(_applied, layers[:depth]))
        elif isinstance(layer, MaxPool2d):
            found.append(partial(_windows, layers[:depth], layer.window))
        elif isinstance(layer, GroupSort):
            found.append(partial(_groups, layers[:depth], layer.group_size))
        elif isinstance(layer, Residual):
            found.append(partial(_groups, [*layers[:depth], layer.layers[0]], 2))
    return [*found, partial(_margins, layers)]


@torch.no_grad()
def _applied(layers: Sequence[torch.nn.Module], x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x)
    return x


def _windows(layers: Sequence[torch.nn.Module], window: int, x: Tensor) -> Tensor:
    """Return by how much the entries of each window of a maximum exceed the first of them."""
    y = _applied(layers, x)
    entries = y.unfold(2, window, window).unfold(3, window, window).flatten(4)
    return entries[..., 1:] - entries[..., :1]


def _groups(layers: Sequence[torch.nn.Module], size: int | None, x: Tensor) -> Tensor:
    """Return by how much features of each group exceed the next one of it."""
    groups = _applied(layers, x).unflatten(1, (size, -1) if size else (-1, 1))
    return groups - groups.roll(1, dims=1)


def _margins(layers: Sequence[torch.nn.Module], x: Tensor) -> Tensor:
    logits_BK = _applied(layers, x)
    return torch.cat([logits_BK - MARGIN, logits_BK + MARGIN], dim=1)
