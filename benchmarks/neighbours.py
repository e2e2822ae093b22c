"""How far does one row move a computed sum? A search for neighbours whose sums round apart.

    python benchmarks/neighbours.py [--pairs 100000] [--seconds 900] [--seed 0] [--device cpu] [--workers 2]
        [--only leaving|joining]

Builds batches whose running sums hover at a power of two, walk at random, repeat one row or span many magnitudes, for
every kind of layer and method, and takes one row out of each: zeroed in its place, or removed, with the rows behind it
moving up. Prints by kind the largest difference of the computed sums, over the sensitivity: at most 1, or the script
ends with 1. Beside it the same for float32 sums of the rows' own gradients, clipped to the sensitivity and added up one
after the other, which exceed it.

Rows also join, in front of a batch and in its middle, where they shift rows at kinks (`_place_shifts.py`): the column
"others moved" is the largest difference that is not their own contribution, over the sensitivity. It has to be 0.

Shape letters: B batch, D entries of a parameter.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from multiprocessing import get_context

import numpy as np
import torch
import torch.nn.functional as F
from _place_shifts import METHODS as JOINING_METHODS
from _place_shifts import NETWORKS as JOINING_NETWORKS
from _place_shifts import Shift, shifted
from torch import Tensor, nn

import clipless
from clipless.audits.planted import PATTERNS, operand, shares
from clipless.guards.convolution import guarded_conv2d
from clipless.guards.exact_sums import pad
from clipless.guards.guard import Guard, guarded_linear
from clipless.guards.per_channel import along, guarded_bias, guarded_householder, guarded_mix, householder
from clipless.layers import Conv1d, Conv2d, Dense, Flatten, Householder, InputBall, Residual
from clipless.losses import MulticlassHinge
from clipless.network import Network
from clipless.plans.method import Method
from clipless.plans.plan import Plan, make_plan
from clipless.privacy.randomness import SecureSource
from clipless.privacy.sampling import PoissonSampler
from clipless.training.batch_sums import sum_gradients

Sums = dict[str, Tensor]
PAIRS_OF_A_BATCH = 8
BATCHES_OF_A_TRAINING = 20  # that rows join
# Most rows of a batch by the size of its passes, so that each costs as much.
ROWS = {1: 12, 7: 40, 512: 512}


@dataclass
class Worst:
    """Largest ratios that were found.

    Attributes:
        pairs: of neighbours.
        exact: of the computed sums.
        plain: of float32 sums.
        exceeded: whether a computed difference exceeds its sensitivity, in fractions, or others moved at all.
        moved: of the rows that others shift; None where none are.
        slotted: pairs whose batches have slots.
    """

    pairs: int = 0
    exact: float = 0.0
    plain: float = 0.0
    exceeded: bool = False
    moved: float | None = None
    slotted: int = 0

    def add(self, other: "Worst") -> None:
        """Take in what another search found."""
        self.pairs += other.pairs
        self.exact, self.plain = max(self.exact, other.exact), max(self.plain, other.plain)
        self.exceeded |= other.exceeded
        self.slotted += other.slotted
        if other.moved is not None:
            self.moved = max(self.moved or 0.0, other.moved)


@dataclass(frozen=True)
class Batch:
    """Rows, and how they are summed.

    Attributes:
        rows: of each operand.
        size: rows of a pass.
        sensitivities: by parameter; one for all together under the empty name.
        total: adds the sums of one pass, of operands padded to ``size`` of which the first rows count and are weighted.
        formed: each row's own float32 gradient, (B, D).
    """

    rows: tuple[Tensor, ...]
    size: int
    sensitivities: Mapping[str, float]
    total: Callable[[tuple[Tensor, ...], Tensor, int, Sums], None]
    formed: Callable[[], dict[str, Tensor]]
    choices: Tensor | None = field(default=None)

    def sums(self, chosen: Tensor, zeroed: int = -1) -> Sums:
        """Sum the chosen rows, one of them zeroed in its place."""
        sums: Sums = {}
        for places in chosen.split(self.size):
            weight = pad((places != zeroed).float(), self.size).to(self.rows[0].device)
            self.total(tuple(pad(t[places], self.size) for t in self.rows), weight, len(places), sums)
        return sums


def search(batch: Batch, generator: np.random.Generator) -> Worst:
    """Take rows out of one batch."""
    found = Worst()
    chosen = torch.arange(len(batch.rows[0])) if batch.choices is None else batch.choices
    if len(chosen) == 0:
        return found
    full, rows = batch.sums(chosen), batch.formed()
    plain = {name: clipped(value, batch.sensitivities[name])[chosen.numpy()] for name, value in rows.items()}
    sums = {name: added(value) for name, value in plain.items()}
    places = {0, *generator.integers(len(chosen), size=PAIRS_OF_A_BATCH // 2 - 1).tolist()}
    for place in places:
        fewer = torch.cat([chosen[:place], chosen[place + 1 :]])
        for other in (batch.sums(chosen, zeroed=int(chosen[place])), batch.sums(fewer) if len(fewer) else {}):
            found.add(compared(full, other, batch.sensitivities))
        for name, value in plain.items():
            apart = sums[name] - added(np.delete(value, place, axis=0))
            found.plain = max(found.plain, float(np.linalg.norm(apart)) / batch.sensitivities[name])
    return found


def clipped(rows_BD: Tensor, sensitivity: float) -> np.ndarray:
    """Float32 rows of norm at most the sensitivity."""
    factor_B = (sensitivity / rows_BD.double().norm(dim=1)).clamp(max=1.0).nan_to_num(0.0)
    return (rows_BD * factor_B.float().view(-1, 1)).nan_to_num(0.0).cpu().numpy()


def added(rows_BD: np.ndarray) -> np.ndarray:
    """Add rows one after the other in float32."""
    total_D: np.ndarray = np.add.accumulate(rows_BD, axis=0)[-1] if len(rows_BD) else np.zeros(rows_BD.shape[1])
    return total_D.astype(float)


def compared(full: Sums, other: Sums, sensitivities: Mapping[str, float]) -> Worst:
    """Compare the sums of two neighbours."""
    found = Worst(pairs=1)
    apart = {name: (value - other[name] if name in other else value).flatten() for name, value in full.items()}
    if "" in sensitivities:
        apart = {"": torch.cat(list(apart.values()))}
    for name, value in apart.items():
        ratio = float(value.norm()) / sensitivities[name]
        found.exact = max(found.exact, ratio)
        if not ratio < 1.0 - 1e-9:
            square = sum(Fraction(entry) ** 2 for entry in value.tolist()) if np.isfinite(ratio) else float("inf")
            found.exceeded |= square > Fraction(sensitivities[name]) ** 2
    return found


def size_and_count(generator: np.random.Generator) -> tuple[int, int]:
    """Rows of a pass and of a batch."""
    size = int(generator.choice(list(ROWS)))
    return size, int(generator.integers(2, ROWS[size] + 1))


# Layers alone

Layer = Callable[[Tensor, Tensor, Guard], Tensor]


@dataclass(frozen=True)
class Alone:
    """One parameter of one layer.

    Attributes:
        x: shape of an input.
        weight: shape of the parameter.
        guarded: the layer under its guard.
        free: the same without.
        options: of the guard.
    """

    x: tuple[int, ...]
    weight: tuple[int, ...]
    guarded: Layer
    free: Callable[[Tensor, Tensor], Tensor]
    options: Mapping[str, bool] = field(default_factory=dict)
    rows: int = 512


def convolution(
    x: tuple[int, int, int], weight: tuple[int, int, int, int], stride: int = 1, padding: int = 0, groups: int = 1
) -> Alone:
    """A convolution."""
    steps, sides = (stride, stride), (padding, padding)
    return Alone(
        x,
        weight,
        lambda x, w, guard: guarded_conv2d(x, w, 0.5, steps, sides, guard, groups),
        lambda x, w: F.conv2d(x, w * 0.5, None, steps, sides, groups=groups),
    )


def tokens(count: int, inputs: int, outputs: int, **options: bool) -> Alone:
    """A dense layer on tokens, or on one vector without any."""
    shape = (count, inputs) if count else (inputs,)
    return Alone(shape, (outputs, inputs), guarded_linear, F.linear, options, 512 if count < 16 else 48)


LAYERS = {
    "dense": tokens(0, 3, 2),
    "dense, one number": tokens(0, 1, 1),
    "dense, normalised": tokens(0, 3, 2, normalise=True),
    "tokens of 1": tokens(16, 1, 2),
    "tokens of 5": tokens(7, 5, 3),
    "tokens of 64": tokens(2, 64, 8),
    "many tokens": tokens(256, 3, 1),
    "tokens, exact norms": tokens(16, 3, 2, exact=True),
    "tokens, normalised": tokens(7, 5, 3, normalise=True),
    "3x3": convolution((1, 6, 6), (2, 1, 3, 3), padding=1),
    "3x3, 16 channels": convolution((16, 4, 4), (2, 16, 3, 3), padding=1),
    "5x5, stride 2": convolution((2, 9, 9), (2, 2, 5, 5), stride=2, padding=2),
    "2x2, stride 2": convolution((8, 4, 4), (3, 8, 2, 2), stride=2),
    "1x1, one place": convolution((16, 1, 1), (1, 16, 1, 1)),
    "groups": convolution((4, 5, 5), (4, 2, 3, 3), padding=1, groups=2),
    "bias": Alone((3, 4, 4), (3,), lambda x, w, guard: guarded_bias(x, w, 1, guard), lambda x, w: x + along(w, 1, x)),
    "mix": Alone(
        (6,),
        (1,),
        lambda x, w, guard: guarded_mix(x, x.detach().roll(1, 1), w, guard),
        lambda x, w: w * x + (1.0 - w) * x.roll(1, 1),
    ),
    "householder": Alone((6,), (3,), guarded_householder, householder),
}


def of_layer(layer: Alone, device: str, generator: np.random.Generator) -> Batch:
    """A batch of one layer's inputs and cotangents."""
    size, count = size_and_count(generator)
    count = min(count, layer.rows)
    weight = torch.ones(layer.weight, device=device)
    with torch.no_grad():
        shape = tuple(layer.free(torch.zeros(1, *layer.x, device=device), weight).shape[1:])
    share_B = shares(count, str(generator.choice(PATTERNS)), generator)
    x = operand(count, layer.x, True, generator) * share_B.view(-1, *[1] * len(layer.x))
    x, g = x.to(device), operand(count, shape, False, generator).to(device)

    def own(x_row: Tensor, g_row: Tensor) -> Tensor:
        _, pull = torch.func.vjp(lambda w: layer.free(x_row[None], w), weight)
        return pull(g_row[None])[0].flatten()

    rows_BD = torch.func.vmap(own)(x, g)
    largest = float(rows_BD.double().nan_to_num().norm(dim=1).max())
    delta = max(largest, 1e-20) * float(generator.choice([1.0, 0.3, 3.0, generator.uniform(0.01, 10.0)]))

    def total(rows: tuple[Tensor, ...], counted_B: Tensor, _: int, sums: Sums) -> None:
        guard = Guard(delta, **layer.options, total=sums.get("weight"))
        x, g = rows
        y = layer.guarded(x.requires_grad_(), weight.clone().requires_grad_(), guard)
        y.backward(g * counted_B.view(-1, *[1] * len(shape)))
        if guard.total is not None:
            sums["weight"] = guard.total

    return Batch((x, g), size, {"weight": delta}, total, lambda: {"weight": rows_BD})


# Networks

NETWORKS: dict[str, Callable[[], Network]] = {
    "dense": lambda: Network([InputBall(1e3), Dense(4, 4, bias=True), Householder(4), Dense(4, 2)], (4,)),
    "mixer": lambda: clipless.zoo.mixer(
        (1, 4, 4), 2, input_norm=1e3, patch=2, depth=1, generator=torch.Generator().manual_seed(0)
    ),
    "residual": lambda: Network(
        [
            InputBall(1e3),
            Conv2d(2, 4, 3, padding=1, padding_mode="circular", bias=True),
            Residual([Conv2d(4, 4, 3, padding=1, groups=2)], 0.5, learned=True),
            Flatten(),
            Dense(64, 2),
        ],
        (2, 4, 4),
    ),
    "series": lambda: Network([InputBall(1e3), Conv1d(2, 3, 3, padding=1), Flatten(), Dense(15, 2)], (2, 5)),
}
METHODS: dict[str, dict[str, object]] = {
    "clipless": {"method": Method.CLIPLESS},
    "dp-sgd": {"method": Method.DP_SGD, "clip_norm": 0.5},
    "ghost": {"method": Method.DP_SGD, "clip_norm": 0.5},
}


def of_network(kind: str, method: str, rate: float, device: str, generator: np.random.Generator) -> Batch:
    """A batch of a network's rows, drawn by Poisson sampling below a rate of 1."""
    torch.manual_seed(int(generator.integers(2**31)))
    network, loss = NETWORKS[kind]().to(device), MulticlassHinge(1e3)
    size, count = size_and_count(generator)
    count = min(count, 24)
    share = {"sensitivity_fraction": 10.0 ** generator.uniform(-4.0, 0.0)} if method == "clipless" else {}
    plan = make_plan(
        network,
        loss,
        population=count,
        batch_size=count * rate,
        delta=1e-5,
        noise_multiplier=1.0,
        epochs=1,
        **{**METHODS[method], **share},
    )
    share_B = shares(count, str(generator.choice(PATTERNS)), generator)
    x = operand(count, network.input_shape, True, generator) * share_B.view(-1, *[1] * len(network.input_shape))
    rows = x.to(device), torch.from_numpy(generator.integers(2, size=count)).to(device)

    def total(rows: tuple[Tensor, ...], counted_B: Tensor, count: int, sums: Sums) -> None:
        for name, parameter in network.named_parameters():
            sums.setdefault(name, torch.zeros_like(parameter, dtype=torch.float64))
        weighted = _Weighted(loss, counted_B)
        sum_gradients(network, weighted, rows[0], rows[1], plan, sums, rows=count, ghost=method == "ghost")

    choices = None
    if rate < 1.0:
        choices = PoissonSampler(count, rate, SecureSource()).draw()
    return Batch(rows, size, _sensitivities(plan), total, partial(_formed, network, loss, rows, plan), choices)


@dataclass(frozen=True)
class _Weighted:
    """A loss times a weight of each row."""

    loss: MulticlassHinge
    weights: Tensor

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor:
        return self.loss(logits, target) * self.weights


def _sensitivities(plan: Plan) -> Mapping[str, float]:
    return {"": float(plan.clip_norm or 0.0)} if plan.method is Method.DP_SGD else plan.sensitivities


def _formed(network: nn.Module, loss: MulticlassHinge, rows: tuple[Tensor, ...], plan: Plan) -> dict[str, Tensor]:
    names, parameters = zip(*network.named_parameters(), strict=True)
    own = [torch.autograd.grad(loss(network(x[None]), y[None]).sum(), parameters) for x, y in zip(*rows, strict=True)]
    found = {n: torch.stack(g).flatten(1) for n, g in zip(names, zip(*own, strict=True), strict=True)}
    return {"": torch.cat(list(found.values()), dim=1)} if plan.method is Method.DP_SGD else found


def many_rows(device: str, generator: np.random.Generator) -> Batch:
    """One number, 8,192 rows in one pass: what float32 rounds most."""
    layer = LAYERS["dense, one number"]
    x = shares(8192, "hovering", generator).view(-1, 1).to(device)
    weight = torch.ones(1, 1, device=device)

    def total(rows: tuple[Tensor, ...], counted_B: Tensor, _: int, sums: Sums) -> None:
        guard = Guard(1.0, total=sums.get("weight"))
        layer.guarded(rows[0].requires_grad_(), weight.clone().requires_grad_(), guard).backward(counted_B.view(-1, 1))
        if guard.total is not None:
            sums["weight"] = guard.total

    return Batch((x,), 8192, {"weight": 1.0}, total, lambda: {"weight": x})


# Rows that join


def joining(network: str, method: str, device: str, generator: np.random.Generator) -> Worst:
    """Let rows join the batches of one training."""
    training, found = shifted(network, method, device, generator), Worst()
    sensitivities = _sensitivities(training.plan)
    for shift in training.pairs(generator, BATCHES_OF_A_TRAINING):
        found.add(_of_shift(shift, sensitivities))
    return found


def _of_shift(shift: Shift, sensitivities: Mapping[str, float]) -> Worst:
    found = Worst(pairs=1, moved=0.0, slotted=int(shift.slotted))
    least = min(sensitivities.values())
    for name in shift.own:
        delta = sensitivities.get(name, least)
        found.exact = max(found.exact, shift.contributed(name) / delta)
        moved = shift.moved(name)
        found.moved = max(found.moved or 0.0, moved / delta)
        found.exceeded |= moved != 0.0  # NaN is
    return found


def leaving(make: Callable[[str, np.random.Generator], Batch], device: str, generator: np.random.Generator) -> Worst:
    """Take rows out of a batch that is made."""
    return search(make(device, generator), generator)


# name: how to search, and how often beside the others
Kind = tuple[Callable[[str, np.random.Generator], Worst], int]
LEAVING: dict[str, Kind] = {
    **{name: (partial(leaving, partial(of_layer, layer)), 4) for name, layer in LAYERS.items()},
    "8,192 rows": (partial(leaving, many_rows), 1),
    **{
        f"{network} network, {method}{', q = 1/2' if rate < 1 else ''}": (
            partial(leaving, partial(of_network, network, method, rate)),
            2,
        )
        for network in NETWORKS
        for method in METHODS
        for rate in ((1.0, 0.5) if network == "dense" else (1.0,))
    },
}
JOINING: dict[str, Kind] = {
    f"rows join, {network}, {method}": (partial(joining, network, method), 1)
    for network in JOINING_NETWORKS
    for method in JOINING_METHODS
}
KINDS: dict[str, Kind] = LEAVING | JOINING


def campaign(pairs: int, seconds: float, seed: int, device: str, kinds: Mapping[str, Kind] = KINDS) -> dict[str, Worst]:
    """Search until there are as many pairs, or time is up; at least one batch of every kind."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    generator = np.random.default_rng(seed)
    found = {name: Worst() for name in kinds}
    end = time.monotonic() + seconds
    for name in turns(generator, kinds):
        complete = all(worst.pairs for worst in found.values())
        if complete and (sum(worst.pairs for worst in found.values()) >= pairs or time.monotonic() > end):
            return found
        find, _ = kinds[name]
        found[name].add(find(device, generator))
    return found


def turns(generator: np.random.Generator, kinds: Mapping[str, Kind]) -> Iterator[str]:
    """Yield every kind once, then by its weight."""
    yield from kinds
    names = [name for name, (_, weight) in kinds.items() for _ in range(weight)]
    while True:
        yield str(generator.choice(names))


def table(found: Mapping[str, Worst]) -> str:
    """Markdown, a line for each kind."""
    lines = ["| kind | pairs | computed | float32 | others moved | in slots |", "|---|---|---|---|---|---|"]
    total = Worst()
    for name, worst in found.items():
        total.add(worst)
        lines.append(_line(name, worst))
    return "\n".join([*lines, _line("all", total)])


def _line(name: str, worst: Worst) -> str:
    plain = f"{worst.plain:.7f}" if worst.plain else ""
    moved, slotted = ("", "") if worst.moved is None else (f"{worst.moved:.7g}", f"{worst.slotted:,}")
    return f"| {name} | {worst.pairs:,} | {worst.exact:.7f} | {plain} | {moved} | {slotted} |"


def _campaign(pairs: int, options: argparse.Namespace, seed: int) -> dict[str, Worst]:
    return campaign(pairs, options.seconds, seed, options.device, _kinds(options.only))


def _kinds(only: str | None) -> Mapping[str, Kind]:
    return {"leaving": LEAVING, "joining": JOINING}.get(only or "", KINDS)


def found_by_workers(options: argparse.Namespace) -> dict[str, Worst]:
    """Let each worker search with a seed of its own."""
    share = -(-options.pairs // options.workers)
    found = {name: Worst() for name in _kinds(options.only)}
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        jobs = [
            pool.submit(_campaign, share, options, options.workers * options.seed + i) for i in range(options.workers)
        ]
        for job in jobs:
            for name, worst in job.result().items():
                found[name].add(worst)
    return found


def main() -> None:
    """Print the table; end with 1 if a sum moved by more than its sensitivity."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", choices=("leaving", "joining"))
    options = parser.parse_args()
    found = found_by_workers(options)
    print(table(found))
    sys.exit(1 if any(worst.exceeded for worst in found.values()) else 0)


if __name__ == "__main__":
    main()
