"""Random layers and whole private passes, and whether what they compute for a row depends on its place.

The criterion: a pass filled with copies of one row gives copies of one result, bit by bit, forwards and backwards. It
is asked for many made-up rows. Beside it stands what the product's own test says of the same pass.

Shape letters: B rows of a pass, K made-up rows.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil, prod

import numpy as np
import torch
from torch import Tensor, nn

import clipless
from clipless import layers
from clipless.layers import Conv1d, Conv2d, Dense
from clipless.network import Network
from clipless.plans.method import Method
from clipless.plans.placement import evenly
from clipless.row_independence import PassShape, Watch, is_alone, make_rows, watch_layers
from clipless.training.batch_sums import CountedLoss, sum_gradients

ROWS = 24
MOST = 512
CPU = torch.device("cpu")
FORWARD, BACKWARD, DOUBLE, SUMS = "float32 forwards", "float32 backwards", "float64 forwards", "sums"
_BITS = {4: torch.int32, 8: torch.int64}
_SCORED_ENTRIES = 2**17  # of a pass of scores, as `clipless.certificates.certify` takes them, but fewer


@dataclass(frozen=True)
class Shape:
    """A layer, and the passes that it is in.

    Attributes:
        kind: of layer, a line of the table.
        name: says everything.
        layer: with random weights.
        row: shape of an input.
        usual: rows that a batch is expected to have at most.
        asked: whether the product's test looks at it even where equal rows are alike.
    """

    kind: str
    name: str
    layer: nn.Module
    row: tuple[int, ...]
    usual: int
    asked: bool = True

    def size(self, *, even: bool) -> int:
        """Return the rows of a pass: whole vectors of them, or, as it was before, any number."""
        return evenly(self.usual, MOST) if even else ceil(self.usual / ceil(self.usual / MOST))


@dataclass
class Verdict:
    """What was found of a shape.

    Attributes:
        depends: by what: what differs between equal rows.
        refused: by the same: whether the product's test refuses it, where it was asked.
    """

    depends: dict[str, bool] = field(default_factory=dict)
    refused: dict[str, bool] = field(default_factory=dict)


# --- random layers


def shapes(count: int, seed: int) -> Iterator[Shape]:
    """Yield random shapes, all kinds in turn; the same ones for the same seed."""
    generator = np.random.default_rng(seed)
    names = list(MAKERS)
    for number in range(count):
        torch.manual_seed(int(generator.integers(2**31)))
        kind = names[number % len(names)]
        layer, row = MAKERS[kind](generator)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.copy_(torch.randn_like(parameter))
        usual = int(2.0 ** generator.uniform(2.0, 8.0)) if number % 8 else int(generator.integers(257, 1500))
        asked = number // len(names) % 4 == 0
        yield Shape(kind, f"{kind} {described(layer)} on {row}, {usual} rows", layer, row, usual, asked)


def described(layer: nn.Module) -> str:
    """Return the layer and the shapes of its parameters."""
    inner = ", ".join(described(child) for child in layer.children() if not isinstance(child, nn.ModuleList))
    nested = [described(child) for group in layer.children() if isinstance(group, nn.ModuleList) for child in group]
    own = [str(tuple(p.shape)) for p in layer.parameters(recurse=False)]
    return f"{type(layer).__name__}({', '.join([*own, *nested, *([inner] if inner else [])])})"


Made = tuple[nn.Module, tuple[int, ...]]


def _width(generator: np.random.Generator, most: int = 600) -> int:
    return max(1, int(2.0 ** generator.uniform(0.0, np.log2(most))))


def _dense(generator: np.random.Generator) -> Made:
    inputs = _width(generator)
    return Dense(inputs, _width(generator, 200), bias=bool(generator.integers(2))), (inputs,)


def _tokens(generator: np.random.Generator) -> Made:
    inputs = _width(generator, 100)
    return Dense(inputs, _width(generator, 100), bias=bool(generator.integers(2))), (_width(generator, 20), inputs)


def _convolution(generator: np.random.Generator) -> dict[str, int]:
    groups = int(generator.choice([1, 1, 1, 2, 3]))
    return {
        "in_channels": groups * _width(generator, 12),
        "out_channels": groups * _width(generator, 12),
        "kernel_size": int(generator.choice([1, 2, 3, 3, 5])),
        "stride": int(generator.choice([1, 1, 2, 3])),
        "padding": int(generator.integers(3)),
        "groups": groups,
    }


def _conv1d(generator: np.random.Generator) -> Made:
    options = _convolution(generator)
    length = options["kernel_size"] + int(generator.integers(20))
    return Conv1d(**options, bias=bool(generator.integers(2))), (options["in_channels"], length)


def _conv2d(generator: np.random.Generator) -> Made:
    options = _convolution(generator)
    sides = [options["kernel_size"] + int(generator.integers(10)) for _ in range(2)]
    return Conv2d(**options, bias=bool(generator.integers(2))), (options["in_channels"], *sides)


def _map(generator: np.random.Generator, channels: int) -> tuple[int, ...]:
    sides = [int(generator.integers(2, 12)) for _ in range(2)]
    return (channels, *sides) if generator.integers(2) else (channels,)


def _activation(generator: np.random.Generator) -> Made:
    plain = (layers.ReLU, layers.Abs, layers.Tanh, layers.Sigmoid, layers.Softplus)
    return plain[int(generator.integers(len(plain)))](), _map(generator, _width(generator, 100))


def _sort(generator: np.random.Generator) -> Made:
    size, groups = int(generator.choice([2, 2, 3, 4])), _width(generator, 30)
    options = (layers.GroupSort(size), layers.GroupSort(None), layers.Householder(2 * groups))
    layer = options[int(generator.integers(3))]
    return layer, _map(generator, 2 * groups if isinstance(layer, layers.Householder) else size * groups)


def _pool(generator: np.random.Generator) -> Made:
    window = int(generator.integers(2, 4))
    made = (
        layers.L2Pool2d(window),
        layers.MaxPool2d(window),
        layers.AvgPool2d(window, scaled=bool(generator.integers(2))),
        layers.GlobalL2Pool2d(),
    )
    sides = [int(generator.integers(window, 14)) for _ in range(2)]
    return made[int(generator.integers(len(made)))], (_width(generator, 20), *sides)


def _norm(generator: np.random.Generator) -> Made:
    groups = int(generator.integers(1, 4))
    made = (layers.GroupNorm(groups), layers.LayerCentering(), layers.InputBall(1.0), layers.ClipGradient(1.0))
    return made[int(generator.integers(len(made)))], _map(generator, groups * _width(generator, 60))


def _residual(generator: np.random.Generator) -> Made:
    width, weight = _width(generator, 60), [None, 0.5][int(generator.integers(2))]
    if generator.integers(2):
        inside: list[nn.Module] = [Dense(width, width), layers.Tanh(), Dense(width, width)]
        return layers.Residual(inside, weight), (width,)
    channels = _width(generator, 8)
    sides = tuple(int(generator.integers(3, 10)) for _ in range(2))
    return layers.Residual([Conv2d(channels, channels, 3, padding=1), layers.ReLU()], weight), (channels, *sides)


MAKERS: dict[str, Callable[[np.random.Generator], Made]] = {
    "dense": _dense,
    "dense on tokens": _tokens,
    "1d convolution": _conv1d,
    "2d convolution": _conv2d,
    "activation": _activation,
    "sorting, reflections": _sort,
    "pooling": _pool,
    "normalisation": _norm,
    "residual": _residual,
}


# --- one layer


def judged(shape: Shape, *, even: bool) -> Verdict:
    """Look at a layer in its passes: float32 both ways, float64 forwards as scores are computed."""
    verdict, size = Verdict(), shape.size(even=even)
    generator = torch.Generator().manual_seed(size)
    form = PassShape(None, size, shape.row, CPU)
    rows = make_rows(ROWS, form, generator, shape.layer)
    verdict.depends |= dict.fromkeys((FORWARD, BACKWARD, DOUBLE), False)
    cotangents = _cotangents(shape, ROWS, generator)
    for x, g in zip(rows, cotangents, strict=True):
        outputs, pulled = _both_ways(shape.layer, _copies(x, size), _copies(g, size))
        verdict.depends[FORWARD] |= not _alike(outputs)
        verdict.depends[BACKWARD] |= not _alike(pulled)
    asked = any(verdict.depends.values()) or shape.asked
    seen = _cotangents(shape, 64, generator)

    def passed(x: Tensor, chosen_B: Tensor, counts_B: Tensor, watch: Watch) -> Mapping[str, Tensor]:
        g = torch.where(_column(counts_B, seen), seen[chosen_B.clamp(min=0) % len(seen)], 0.0)
        for found in _both_ways(shape.layer, x, g):
            watch(found)
        return {}

    if asked:
        verdict.refused[FORWARD] = verdict.refused[BACKWARD] = not is_alone(passed, form, shape.layer)
    _judge_scores(shape, rows, verdict)
    return verdict


def _judge_scores(shape: Shape, rows: Tensor, verdict: Verdict) -> None:
    size = max(1, min(256, _SCORED_ENTRIES // prod(shape.row)))
    size = 1 << (size.bit_length() - 1)
    layer = shape.layer.double()

    @torch.no_grad()
    def passed(x: Tensor, chosen_B: Tensor, counts_B: Tensor, watch: Watch) -> Mapping[str, Tensor]:
        del chosen_B, counts_B
        watch(layer(x.double()))
        return {}

    with torch.no_grad():
        verdict.depends[DOUBLE] = not all(_alike(layer(_copies(x.double(), size))) for x in rows)
    if verdict.depends[DOUBLE] or shape.asked:
        verdict.refused[DOUBLE] = not is_alone(passed, PassShape(None, size, shape.row, CPU))
    layer.float()


def _both_ways(layer: nn.Module, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    with torch.enable_grad():
        y = layer(x)
        (pulled,) = torch.autograd.grad(y, x, g)
    return y.detach(), pulled


def _cotangents(shape: Shape, count: int, generator: torch.Generator) -> Tensor:
    with torch.no_grad():
        outputs = shape.layer(torch.zeros(1, *shape.row)).shape[1:]
    return make_rows(count, PassShape(None, count, tuple(outputs), CPU), generator)


def _copies(x: Tensor, size: int) -> Tensor:
    return x.expand(size, *x.shape).contiguous()


def _alike(found: Tensor) -> bool:
    bits = found.contiguous().view(_BITS[found.element_size()])
    return bool((bits == bits[:1]).all())


def _column(values_B: Tensor, like: Tensor) -> Tensor:
    return values_B.view(-1, *[1] * (like.dim() - 1))


# --- whole private passes

SMALL: dict[str, dict[str, object]] = {
    "convnet": {"width": 4, "hidden": 9},
    "mlp": {"width": 13},
    "patch-net": {"width": 4, "hidden": 8},
    "scattering": {"orientations": 2, "hidden": 8},
    "lenet": {"width": 6, "hidden": 20},
    "vgg": {"width": 4, "hidden": 8},
    "resnet": {"width": 4},
    "wide-resnet": {"width": 2, "widening": 3},
    "mixer": {"patch": 4, "depth": 1},
}
METHODS: dict[str, tuple[dict[str, object], dict[str, bool]]] = {
    "clipless": ({"method": Method.CLIPLESS, "sensitivity_fraction": 1e-2}, {}),
    "clipless, exact norms": ({"method": Method.CLIPLESS, "sensitivity_fraction": 1e-2}, {"exact": True}),
    "lip-dp-sgd": ({"method": Method.LIP_DP_SGD, "sensitivity_fraction": 1e-2}, {}),
    "dp-sgd": ({"method": Method.DP_SGD, "clip_norm": 0.1}, {}),
    "dp-sgd, ghost": ({"method": Method.DP_SGD, "clip_norm": 0.1}, {"ghost": True}),
}
USUAL = (29, 285)  # rows that a batch is expected to have at most


def architecture(name: str) -> Network:
    """Build one of the zoo for images with an odd number of pixels where that fits, of random weights."""
    torch.manual_seed(0)
    row = (1, 8, 8) if name in ("scattering", "mixer", "vgg", "patch-net") else (1, 9, 9)
    return clipless.zoo.build(name, row, 3, input_norm=2.0, generator=torch.Generator().manual_seed(0), **SMALL[name])


def judged_pass(name: str, method: str, usual: int, *, even: bool) -> Verdict:
    """Look at the private pass of an architecture: every output, every cotangent, and its exact sums."""
    model, loss = architecture(name), clipless.TauCCE(0.5)
    options, ways = METHODS[method]
    size = Shape("", "", model, (), usual).size(even=even)
    plan = clipless.make_plan(
        *(model, loss), population=4000, batch_size=usual, delta=1e-5, noise_multiplier=1.0, epochs=1, **options
    )
    hooked = [module for module in model.modules() if module is not model]

    def passed(x: Tensor, chosen_B: Tensor, counts_B: Tensor, watch: Watch) -> Mapping[str, Tensor]:
        totals = {n: torch.zeros_like(p, dtype=torch.float64) for n, p in model.named_parameters()}

        def forward(x: Tensor) -> Tensor:
            with watch_layers(hooked, watch):
                logits: Tensor = model(x)
            return logits

        sum_gradients(
            *(model, CountedLoss(loss, counts_B), x, chosen_B.clamp(min=0) % 3, plan, totals),
            forward=forward,
            **ways,
        )
        return totals

    form = PassShape(None, size, model.input_shape, CPU)
    rows = make_rows(ROWS, form, torch.Generator().manual_seed(size), _first(model))
    verdict = Verdict({FORWARD: False, SUMS: False})
    for number, row in enumerate(rows):
        seen: list[bool] = []
        x, chosen_B = _copies(row, size), torch.full((size,), number)
        whole = passed(x, chosen_B, torch.ones(size, dtype=torch.bool), lambda t: seen.append(_alike(t)))  # noqa: B023
        one = passed(x, chosen_B, torch.arange(size) == 7 * number % size, lambda _: None)
        verdict.depends[FORWARD] |= not all(seen)
        verdict.depends[SUMS] |= not all(torch.equal(whole[n], size * one[n]) for n in whole)
    verdict.refused = dict.fromkeys(verdict.depends, not is_alone(passed, form, _first(model)))
    return verdict


def _first(model: Network) -> Callable[[Tensor], Tensor]:
    def first(x: Tensor) -> Tensor:
        for layer in model.layers:
            x = layer(x)
            if next(layer.parameters(), None) is not None:
                break
        return x

    return first
