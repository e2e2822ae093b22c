"""Sums that do not round: every figure here is exact, in whole numbers or fractions, unless it measures accuracy."""

import itertools
from fractions import Fraction
from math import exp, floor, fsum, log2

import pytest
import torch
import torch.nn.functional as F

from clipless.datasets import Split
from clipless.errors import PlanError
from clipless.guards import exact_sums, guard
from clipless.guards.convolution import guarded_conv2d
from clipless.guards.exact_sums import check_rows, grid, integer_product, outer_grid, row_norms, row_sum
from clipless.guards.guard import Guard, guarded_linear
from clipless.guards.per_channel import guarded_bias, guarded_householder, guarded_mix
from clipless.guards.potential import guarded_potential
from clipless.layers import (
    ClipGradient,
    Conv1d,
    Conv2d,
    ConvexPotential,
    Dense,
    Flatten,
    Householder,
    InputBall,
    Residual,
    ScaleByQuantile,
    Standardise,
)
from clipless.layers.statistics import PaidStatistics
from clipless.losses import MulticlassHinge
from clipless.network import Network
from clipless.plans.clipping import AdaptiveClipping, ClipNorms
from clipless.plans.input_statistics import _ContributionPass, release_statistics
from clipless.plans.method import Method
from clipless.plans.plan import make_plan
from clipless.privacy import noise_grid
from clipless.privacy.noisy_counts import release_scores
from clipless.privacy.sampling import PoissonSampler
from clipless.testing import SeededSource
from clipless.training import per_example
from clipless.training.batch_sums import sum_gradients
from clipless.training.optimizers import SGD
from clipless.training.trainer import PrivateTrainer
from tests.clipless.factories import RecordingSource, random

CPU = torch.device("cpu")
ENGINES = [exact_sums._int8, exact_sums._float32_blocks, exact_sums._float64]
LAYOUTS = {"rows": lambda x: x.contiguous(), "columns": lambda x: x.mT.contiguous().mT}


def digits(*shape, seed=0):
    return torch.randint(-127, 128, shape, generator=torch.Generator().manual_seed(seed)).to(torch.int8)


def is_within(total, delta):
    """Whether a vector of double numbers has at most this norm, in fractions."""
    return sum(Fraction(value) ** 2 for value in total.flatten().tolist()) <= Fraction(delta) ** 2


# Products of integers


@pytest.fixture(params=ENGINES)
def engine(request, monkeypatch):
    if request.param is exact_sums._int8 and exact_sums._multiplier(CPU) is not exact_sums._int8:
        pytest.skip("this processor has no exact product of 8-bit integers")
    monkeypatch.setattr(exact_sums, "_multiplier", lambda _: request.param)
    return request.param


@pytest.mark.sampled(5)
@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(("left", "right"), [*itertools.product(LAYOUTS, repeat=2)])
@pytest.mark.parametrize("size", [(1, 1, 2), (1, 5, 3), (3, 1, 5), (5, 6, 1), (2, 1041, 17), (9, 64, 33)])
def test_products_are_those_of_whole_numbers_however_the_operands_lie_in_memory(size, left, right):
    m, k, n = size
    a, b = digits(m, k), digits(k, n, seed=1)
    found = integer_product(LAYOUTS[left](a), LAYOUTS[right](b))
    assert torch.equal(found, (a.long() @ b.long()).double())


@pytest.mark.usefixtures("engine")
def test_products_of_rows_that_overlap_in_memory_are_exact():
    """Patches of one map are views of it."""
    a, b = digits(1, 3), digits(40).as_strided((3, 20), (5, 1))
    assert torch.equal(integer_product(a, b), (a.long() @ b.long()).double())


def test_operands_are_handed_on_with_strides_that_kernels_know():
    overlapping = digits(40).as_strided((3, 20), (5, 1))
    columns, column, row = digits(4, 3).mT, digits(1, 5).mT, digits(5, 1).mT
    for x, strides in ((overlapping, (20, 1)), (columns, (1, 3)), (column, (1, 1)), (row, (5, 1))):
        assert exact_sums._plain(x).stride() == strides
        assert torch.equal(exact_sums._plain(x), x)


def test_pieces_are_so_short_that_extreme_products_add_up_exactly():
    assert 127**2 * exact_sums._MOST_ADDENDS < 2**31
    assert 127**2 * exact_sums._MOST_FLOAT32_ADDENDS <= 2**24


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 2), (17, 9, 3), (24, 16, 8), (33, 1040, 144)])
@pytest.mark.parametrize("transposed", [False, True])
def test_what_cuda_multiplies_has_its_shape_and_order_and_the_same_product(m, k, n, transposed):
    a, b = (digits(q, p).mT if transposed else digits(p, q) for p, q in ((m, k), (k, n)))
    one, other = exact_sums._padded(a, b)
    assert len(one) > 16
    assert not any(size % 8 for size in (*one.shape, *other.shape))
    assert one.is_contiguous()
    assert other.mT.is_contiguous()
    product = one.double() @ other.double()
    assert torch.equal(product[:m, :n], a.double() @ b.double())


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("k", [2**17, 2**18 + 3])
def test_sums_of_extreme_products_neither_overflow_nor_round(k):
    a = torch.full((2, k), 127, dtype=torch.int8)
    a[1] = -127
    b = torch.full((k, 1), 127, dtype=torch.int8)
    assert integer_product(a, b).flatten().tolist() == [127**2 * k, -(127**2) * k]


def _saturating(a, b):
    """As processors without instructions for it multiply: pairs of products in 16 bits, one operand without sign."""
    even = a.shape[1] // 2 * 2
    a_MP2, b_NP2 = (t.long()[:, :even].unflatten(1, (-1, 2)) for t in (a, b.mT))
    pairs_MNP = torch.einsum("mpi,npi->mnp", a_MP2 + 128, b_NP2).clamp(-(2**15), 2**15 - 1)
    return pairs_MNP.sum(dim=2) - 128 * b_NP2.sum(dim=(1, 2)) + a.long()[:, even:] @ b.long()[even:]


def _rounding(a, b):
    return a.float() @ b.float()


def _missing(*_):
    raise RuntimeError("not on this device")


def _by_memory(a, b):
    """Right where the numbers of a row follow one another."""
    return a.long() @ b.as_strided(b.shape, (b.shape[1], 1)).long()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("broken", [_saturating, _rounding, _missing, _by_memory])
def test_an_engine_that_is_not_exact_is_not_taken(broken, monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    monkeypatch.setattr(exact_sums, "_int8", broken)
    exact_sums._multiplier.cache_clear()
    try:
        assert exact_sums._multiplier(CPU) is exact_sums._float32_blocks
        monkeypatch.setattr(exact_sums, "_float32_blocks", broken)
        exact_sums._multiplier.cache_clear()
        assert exact_sums._multiplier(CPU) is exact_sums._float64
    finally:
        exact_sums._multiplier.cache_clear()


def test_two_digits_hold_every_whole_number_and_never_minus_128():
    whole = torch.arange(-exact_sums._LARGEST, exact_sums._LARGEST + 1, dtype=torch.int16)
    high, low = torch.empty_like(whole, dtype=torch.int8), torch.empty_like(whole, dtype=torch.int8)
    exact_sums.two_digits(whole.clone(), high, low)
    assert torch.equal(128 * high.long() + low.long(), whole.long())
    assert high.min() == -127
    assert low.min() == -64


# Grids


@pytest.mark.parametrize("delta", [1e-25, 0.1, 1.0, 1.0000001, 3.0, 1e30])
def test_a_grid_is_a_power_of_two_between_two_shares_of_the_sensitivity(delta):
    largest = exact_sums._LARGEST
    for step in (grid(delta), outer_grid(delta, 1, 1), outer_grid(delta, 784, 128), outer_grid(delta, 2**30, 2**30)):
        assert Fraction(delta) / 2**31 < Fraction(step) <= Fraction(delta)
        assert torch.frexp(torch.tensor(step, dtype=torch.float64)).mantissa == 0.5
    assert outer_grid(delta, 1, 1) <= delta / largest


def test_more_rows_than_a_double_number_adds_up_are_refused():
    check_rows(2**21)
    with pytest.raises(PlanError, match="at most 2097152 rows"):
        check_rows(2**21 + 1)


# Norms


@pytest.mark.parametrize("size", [1, 2, 3, 17, 4095, 4096, 4097, 10_000])
def test_norms_of_rows_are_never_too_small(size):
    scales = torch.tensor([1e-44, 1e-38, 3e-23, 1.1e-19, 1e-10, 1.0, 1e15])
    rows = torch.cat([random(7, size), torch.ones(7, size), F.one_hot(torch.arange(7) % size, size)]) * scales.repeat(
        3
    ).view(-1, 1)
    for row, norm in zip(rows, row_norms(rows).tolist(), strict=True):
        assert fsum(value**2 for value in row.tolist()) <= Fraction(norm) ** 2


def test_norms_say_which_rows_are_not_finite():
    rows = torch.ones(4, 5000)
    rows[0, 4999], rows[1, 3], rows[2, 0] = float("nan"), float("inf"), 1e30
    assert row_norms(rows).isfinite().tolist() == [False, False, False, True]


# Contributions of adversarial rows


def adversarial(size):
    """Rows of one size: flat, spiked, alternating, of every magnitude, and not finite."""
    flat, spike = torch.ones(size), torch.zeros(size)
    spike[size // 2] = 1.0
    signs = torch.where(torch.arange(size) % 2 == 0, 1.0, -1.0)
    half = 0.5 + 127 * flat / 127.0  # entries between two whole numbers once the largest is 127
    half[0] = 127.0
    steps = torch.logspace(-38, 38, size) if size > 1 else flat
    rows = [flat, spike, signs, half, random(size), steps, flat * 0.0]
    rows += [scale * random(size, seed=i) for i, scale in enumerate((1e-42, 1e-30, 1e-12, 1e12, 1e38))]
    rows += [torch.where(spike > 0, value, random(size)) for value in (float("nan"), float("inf"), -float("inf"))]
    return torch.stack(rows)


def pairs(inputs, cotangents):
    """All pairs of adversarial rows of two shapes."""
    x, g = (adversarial(torch.Size(shape).numel()).view(-1, *shape) for shape in (inputs, cotangents))
    every = torch.cartesian_prod(torch.arange(len(x)), torch.arange(len(g)))
    return x[every[:, 0]].contiguous(), g[every[:, 1]].contiguous()


def backward(function):
    def run(x, g, own):
        function(x.requires_grad_(), own).backward(g)

    return run


def linear(x, own):
    return guarded_linear(x, torch.ones(3, x.shape[-1], requires_grad=True), own)


def potential(x, own):
    return guarded_potential(x, torch.eye(3, 4).requires_grad_(), None, {"weight": own})


def convolution(channels, kernel, stride, padding, groups=1):
    def run(x, own):
        weight = torch.ones(2, channels // groups, *kernel, requires_grad=True)
        return guarded_conv2d(x, weight, 0.6, stride, padding, own, groups)

    return backward(run)


def circular(x, own):
    wrapped = torch.cat([x[:, :, -1:], x, x[:, :, :1]], dim=2)
    return guarded_conv2d(wrapped, torch.ones(2, 2, 3, 1, requires_grad=True), 0.6, (1, 1), (0, 0), own)


KINDS = {
    "dense": ((5,), (3,), backward(linear)),
    "dense of one": ((1,), (3,), backward(linear)),
    "tokens": ((4, 5), (4, 3), backward(linear)),
    "potential": ((4,), (4,), backward(potential)),
    "potential of tokens": ((3, 4), (3, 4), backward(potential)),
    "many tokens": ((40, 1), (40, 3), backward(linear)),
    "3x3": ((1, 6, 6), (2, 6, 6), convolution(1, (3, 3), (1, 1), (1, 1))),
    "3x3 of 16 channels": ((16, 3, 3), (2, 3, 3), convolution(16, (3, 3), (1, 1), (1, 1))),
    "stride 2": ((2, 7, 7), (2, 4, 4), convolution(2, (3, 3), (2, 2), (1, 1))),
    "stride 2 of 16 channels": ((16, 5, 4), (2, 2, 2), convolution(16, (3, 2), (2, 2), (0, 0))),
    "1x1 of 16 channels": ((16, 1, 1), (2, 1, 1), convolution(16, (1, 1), (1, 1), (0, 0))),
    "along one axis": ((3, 1, 9), (2, 1, 9), convolution(3, (1, 5), (1, 1), (0, 2))),
    "along one axis of 15 channels": ((15, 1, 5), (2, 1, 3), convolution(15, (1, 3), (1, 1), (0, 0))),
    "circular": ((2, 4, 3), (2, 4, 3), backward(circular)),
    "groups": ((2, 5, 5), (2, 5, 5), convolution(2, (3, 3), (1, 1), (1, 1), groups=2)),
    "bias": (
        (3, 4, 4),
        (3, 4, 4),
        backward(lambda x, own: guarded_bias(x, torch.zeros(3, requires_grad=True), 1, own)),
    ),
    "bias of tokens": (
        (4, 3),
        (4, 3),
        backward(lambda x, own: guarded_bias(x, torch.zeros(3, requires_grad=True), -1, own)),
    ),
    "mix": (
        (6,),
        (6,),
        backward(lambda x, own: guarded_mix(x, x.detach().flip(1), torch.full((1,), 0.5, requires_grad=True), own)),
    ),
    "householder": (
        (6,),
        (6,),
        backward(lambda x, own: guarded_householder(x, torch.ones(3, requires_grad=True), own)),
    ),
}
OPTIONS = [
    {"sensitivity": 1.0},
    {"sensitivity": 3e-20},
    {"sensitivity": 0.7, "normalise": True},
    {"sensitivity": 0.7, "exact": True},
]


def total_of(kind, x, g, options):
    own = Guard(**options)
    KINDS[kind][2](x.clone(), g.clone(), own)
    return own.total.flatten()


# exact norms are those of other kinds where there is one place
CASES = [
    pytest.param(kind, options, id=f"{kind}, {name}")
    for kind in KINDS
    for name, options in zip(("one", "small", "normalised", "exact"), OPTIONS, strict=True)
    if not options.get("exact")
    or kind in ("potential", "potential of tokens", "tokens", "3x3", "stride 2", "circular", "groups")
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("kind", "options"), CASES)
def test_no_row_contributes_more_than_the_sensitivity_and_the_sum_is_theirs(kind, options):
    """Each row alone, others zero in their places; the sum of all is that of the rows, to the last bit."""
    x, g = pairs(*KINDS[kind][:2])
    shown = random(len(x), seed=len(kind)).argsort()[: 90 if options is OPTIONS[0] else 30]
    x, g = x[shown], g[shown]
    alone = []
    for i in range(len(x)):
        own_x, own_g = torch.zeros_like(x), torch.zeros_like(g)
        own_x[i], own_g[i] = x[i], g[i]
        alone.append(total_of(kind, own_x, own_g, options))
        assert is_within(alone[-1], options["sensitivity"])
    assert max(float(total.norm()) for total in alone) > 0.15 * options["sensitivity"]
    assert torch.equal(total_of(kind, x, g, options), torch.stack(alone).sum(dim=0))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_rows_and_the_passes_they_fall_into_change_no_bit_of_a_sum(kind):
    """Passes of one size, filled up with rows of zeros, as training makes them."""
    inputs, cotangents, _ = KINDS[kind]
    x, g = (
        random(20, *inputs),
        random(20, *cotangents, seed=1) * torch.logspace(-3, 3, 20).view(-1, *[1] * len(cotangents)),
    )
    sums = []
    for order in (torch.arange(20), torch.arange(20).flip(0), random(20, seed=2).argsort()):
        for size in (1, 7, 20):
            own = [
                total_of(kind, exact_sums.pad(x[rows], 20), exact_sums.pad(g[rows], 20), {"sensitivity": 0.1})
                for rows in order.split(size)
            ]
            sums.append(torch.stack(own).sum(dim=0))
    assert all(torch.equal(one, sums[0]) for one in sums)


def test_formed_gradients_are_held_by_their_own_norm_where_their_bound_is_too_small():
    """Gradients of groups are formed in float32, and rounded, while their bound is that of their operands."""
    own = Guard(1.0)
    ones = torch.ones(2, 1)
    guard.add_formed(own, ones, ones, lambda g, _: 1.5 * g, ones[:, 0], ones[:, 0])
    assert 1.9 < own.total.item() <= 2.0


def test_a_convolution_in_parts_has_the_sum_of_one_in_one_piece(monkeypatch):
    x, g = random(9, 2, 7, 7), random(9, 2, 4, 4, seed=1)
    whole = total_of("stride 2", x, g, {"sensitivity": 0.1})
    monkeypatch.setattr("clipless.guards.convolution._DIGITS_AT_ONCE", 2000)
    assert torch.equal(total_of("stride 2", x, g, {"sensitivity": 0.1}), whole)


FLAT = {
    "dense": ((1,), (4096,), backward(lambda x, own: guarded_linear(x, torch.ones(4096, 1, requires_grad=True), own))),
    "tokens": (
        (256, 1),
        (256, 16),
        backward(lambda x, own: guarded_linear(x, torch.ones(16, 1, requires_grad=True), own)),
    ),
    "unpadded 3x3": ((2, 40, 40), (2, 38, 38), convolution(2, (3, 3), (1, 1), (0, 0))),
    "unpadded 3x3 of 16 channels": ((16, 16, 16), (2, 14, 14), convolution(16, (3, 3), (1, 1), (0, 0))),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", FLAT)
def test_what_rounding_adds_has_room_in_the_sensitivity(kind, monkeypatch):
    """All entries of a flat row round alike, and up at some sensitivities; its bound is its norm."""
    monkeypatch.setitem(KINDS, kind, FLAT[kind])
    x, g = torch.ones(1, *FLAT[kind][0]), torch.ones(1, *FLAT[kind][1])
    for delta in torch.linspace(1.0, 1.1, 23, dtype=torch.float64).tolist():
        total = total_of(kind, x, g, {"sensitivity": delta})
        assert is_within(total, delta)
        assert total.norm() > 0.99 * delta


@pytest.mark.long
def test_ghost_sums_make_room_for_what_rounding_adds():
    for clip_norm in torch.linspace(1.0, 1.1, 23, dtype=torch.float64).tolist():
        one = per_example._OuterProducts(torch.ones(1, 4096), torch.ones(1, 1), clip_norm)
        total = sum(weight * part.double() for part, weight in one.sums(per_example._factors([one], clip_norm)))
        assert is_within(total, clip_norm)
        assert total.norm() > 0.99 * clip_norm


def test_a_row_without_room_for_its_rounding_contributes_nothing():
    own = Guard(1.0)
    assert own.scales(torch.ones(1), None, torch.tensor([2.0])).item() == 0.0


@pytest.mark.parametrize("delta", [1e-20, 1.0, 3.0])
def test_sums_of_rows_are_the_same_in_any_order(delta):
    rows = adversarial(40)[:11]
    norm_B = row_norms(rows).double()
    rows, norm_B = rows[norm_B.isfinite()], norm_B[norm_B.isfinite()]
    scale_B = delta / norm_B
    step = grid(delta)
    found = row_sum(rows, scale_B, step)
    assert torch.equal(found, row_sum(rows.flip(0), scale_B.flip(0), step))
    alone = [row_sum(rows[i : i + 1], scale_B[i : i + 1], step) for i in range(len(rows))]
    assert all(is_within(one, delta) for one in alone)
    assert torch.equal(found, torch.stack(alone).sum(dim=0))
    assert torch.equal(found / step, (found / step).round())


def test_contributions_of_rows_are_cut_towards_zero():
    rows, norm = torch.ones(1, 400), 20.0
    share = torch.tensor([0.6], dtype=torch.float64)
    assert is_within(row_sum(rows, share, 1.0), 0.6 * norm)
    assert is_within(row_sum(-3 * rows, share, 1.0), 3 * 0.6 * norm)


def test_scales_leave_room_for_their_roundings_in_float32():
    values = random(200).abs().double()
    for value in values.tolist():
        row = torch.full((1, 1), value)
        scale = 1.4 / row[0].double()
        assert is_within(row_sum(row, scale, grid(1.4)), 1.4)


# What quantisation costs


def weight_gradient(channels, stride):
    return lambda x, g: 0.6 * torch.nn.grad.conv2d_weight(x, (2, channels, 3, 3), g, stride=stride, padding=1)


GRADIENTS = {
    "dense": lambda x, g: g.mT @ x,
    "tokens": lambda x, g: (g.mT @ x).sum(dim=0),
    "3x3": weight_gradient(1, 1),
    "3x3 of 16 channels": weight_gradient(16, 1),
    "stride 2": weight_gradient(2, 2),
    "bias": lambda _, g: g.sum(dim=(0, 2, 3)),
}


@pytest.mark.parametrize("share", [1.0, 0.01, 0.001])
@pytest.mark.parametrize("kind", GRADIENTS)
def test_sums_err_by_a_per_cent_or_a_share_of_the_sensitivity_that_no_noise_shows(kind, share):
    """Sums of 64 contributions that are at most this share of what they may be."""
    inputs, cotangents, _ = KINDS[kind]
    x, g = random(64, *inputs), random(64, *cotangents, seed=1)
    measured = Guard(1.0, bounds=[])
    KINDS[kind][2](x.clone(), g.clone(), measured)
    largest = max(float(norm_B.max()) for norm_B, _ in measured.bounds)
    delta = 1.02 * largest / share
    found = total_of(kind, x, g, {"sensitivity": delta})
    expected = GRADIENTS[kind](x.double(), g.double()).flatten()
    error, grain = (2e-6, 0.0) if kind == "bias" else (0.012, 2e-3)
    assert (found - expected).norm() <= error * expected.norm() + grain * delta


# Whole networks: the paths of dp-sgd, releases and counts


def vector_network():
    layers = [InputBall(1e6), Dense(4, 4, bias=True), Householder(4), ConvexPotential(4, 3), Dense(4, 2)]
    return Network(layers, (4,))


def map_network():
    block = Residual([Conv2d(2, 2, 3, padding=1, padding_mode="circular", bias=True)])
    layers = [InputBall(1e6), Conv2d(2, 2, 3, stride=2, padding=1, groups=2), block, Flatten(), Dense(18, 2)]
    return Network(layers, (2, 5, 5))


def series_network():
    return Network([InputBall(1e6), Conv1d(2, 3, 3, padding=1, bias=True), Flatten(), Dense(15, 2)], (2, 5))


NETWORKS = {"vector": vector_network, "map": map_network, "series": series_network}
METHODS = {
    "hooks": {"method": Method.DP_SGD, "clip_norm": 0.3},
    "ghost": {"method": Method.DP_SGD, "clip_norm": 0.3},
    "clipless": {"method": Method.CLIPLESS, "sensitivity_fraction": 1e-5},
    "normalised": {"method": Method.LIP_DP_SGD, "sensitivity_fraction": 0.1},
}


def rows_of(network, size=12):
    width = torch.Size(network.input_shape).numel()
    x = adversarial(width)[:size]
    return x.view(-1, *network.input_shape), torch.arange(len(x)) % 2


def plan_of(network, name):
    return make_plan(
        network,
        MulticlassHinge(),
        population=1000,
        batch_size=100,
        delta=1e-5,
        noise_multiplier=1.0,
        epochs=1,
        **METHODS[name],
    )


def sums(network, x, y, plan, name, size=12):
    """Of the loss over the rows given, with places for ``size`` of them."""
    totals = {n: torch.zeros_like(p, dtype=torch.float64) for n, p in network.named_parameters()}
    x, y, rows = exact_sums.pad(x, size), exact_sums.pad(y, size), len(x)
    sum_gradients(network, MulticlassHinge(), x, y, plan, totals, rows=rows, ghost=name == "ghost")
    assert not any(total.requires_grad for total in totals.values()), "a graph would grow from step to step"
    return totals


def is_neighbour(one, other, plan):
    """Whether two sums of each parameter, under dp-sgd of all of them, are as near as the plan takes them to be."""
    apart = {name: one[name] - other[name] for name in one}
    if plan.method is Method.DP_SGD:
        return is_within(torch.cat([value.flatten() for value in apart.values()]), plan.clip_norm)
    return all(is_within(value, plan.sensitivities[name]) for name, value in apart.items())


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("kind", NETWORKS)
def test_sums_of_neighbours_differ_by_no_more_than_the_sensitivity(kind, name):
    """Each row in turn has no loss in its place, or is removed."""
    torch.manual_seed(0)
    network = NETWORKS[kind]()
    if name == "normalised" and kind != "vector":
        return  # takes no bias, no residual block
    plan = plan_of(network, name)
    x, y = rows_of(network)
    full = sums(network, x, y, plan, name)
    for i in range(len(x)):
        last = torch.cat([torch.arange(i), torch.arange(i + 1, len(x)), torch.tensor([i])])
        same = sums(network, x[last], y[last], plan, name)
        fewer = sums(network, x[last[:-1]], y[last[:-1]], plan, name)
        assert is_neighbour(same, fewer, plan)
        assert is_neighbour(full, fewer, plan)


@pytest.mark.parametrize("layer", [Standardise(4, 2.0, 0.1), ScaleByQuantile(0.1, 10.0)])
def test_private_statistics_of_a_row_have_norm_at_most_one_and_add_up_exactly(layer):
    x = adversarial(4)
    passed, every = _ContributionPass(Network([layer], (4,)), 0, layer), torch.ones(len(x), dtype=torch.bool)
    alone = [passed.sum(x, torch.arange(len(x)) == i) for i in range(len(x))]
    assert all(is_within(one, 1.0) for one in alone)
    assert max(float(one.norm()) for one in alone) > 0.5
    assert torch.equal(passed.sum(x, every), torch.stack(alone).sum(dim=0))


def test_a_count_of_an_adaptive_norm_moves_by_one_half_for_each_row_and_by_nothing_for_padding():
    clip = ClipGradient(1.0)
    norms = ClipNorms(Network([clip], (3,)), AdaptiveClipping(), steps=1, batch_size=8, count_std=0.0)
    g = adversarial(3)

    def count(rows):
        with norms.lowered(0):
            cotangents = exact_sums.pad(g[:rows], len(g))
            clip(torch.ones(len(g), 3, requires_grad=True)).backward(cotangents)
            norms.count(rows)
            return norms._centred_count

    counts = [count(rows) for rows in range(len(g) + 1)]
    assert {abs(b - a) for a, b in itertools.pairwise(counts)} == {0.5}


@pytest.mark.parametrize("name", METHODS)
def test_rows_that_fill_a_pass_up_contribute_nothing(name):
    """Their biases would, all in one direction."""
    network = vector_network()
    plan = plan_of(network, name)
    totals = sums(network, torch.ones(2, 4), torch.zeros(2, dtype=torch.int64), plan, name)
    for parameter, total in totals.items():
        assert is_within(total, 2 * plan.sensitivities[parameter])


def trainer_of(rows, source):
    network = vector_network()
    plan = make_plan(
        network, MulticlassHinge(), population=rows, batch_size=rows, delta=1e-5, noise_multiplier=3.0, epochs=1
    )
    data = Split(random(rows, 4), torch.arange(rows) % 2)
    return PrivateTrainer(network, MulticlassHinge(), data, plan, SGD(1e-3), 4, source), network, data, plan


@pytest.mark.parametrize("steps_in_deviation", [2**6, 2**60])
def test_noise_is_the_drawn_double_number_cut_to_the_grid_of_the_sums(monkeypatch, steps_in_deviation):
    """Of every entry of every parameter, to the last bit; eight rows are divided by without rounding.

    Noisy sums are rounded once more, to 64 to 128 steps in a deviation, or not where that is finer than the grid.
    """
    monkeypatch.setattr(noise_grid, "_RELEASED", steps_in_deviation)
    source = RecordingSource()
    trainer, network, data, plan = trainer_of(8, source)
    expected = {n: torch.zeros_like(p, dtype=torch.float64) for n, p in network.named_parameters()}
    for half in (slice(0, 4), slice(4, 8)):
        sum_gradients(network, MulticlassHinge(), data.x[half], data.y[half], plan, expected)
    trainer.step(torch.arange(8))
    noise = source.normals[-1].split(list(plan.sizes.values()))
    for (name, total), normal in zip(expected.items(), noise, strict=True):
        step = grid(plan.sensitivities[name])
        steps = (normal * (plan.noise_stds[name] / step)).floor()
        released = max(2.0 ** floor(log2(plan.noise_stds[name] / steps_in_deviation)), step)
        expected = ((total.flatten() + steps * step) / released).round() * released
        assert torch.equal(8 * trainer._totals[name].flatten(), expected)
        assert steps.abs().min() > 0


def test_a_drawn_batch_of_more_rows_than_add_up_exactly_is_refused(monkeypatch):
    trainer, *_ = trainer_of(8, SeededSource(0))
    monkeypatch.setattr(exact_sums, "MOST_ROWS", 7)
    trainer.step(torch.arange(7))
    with pytest.raises(PlanError, match="at most 7 rows in a batch, copies included") as raised:
        trainer.step(torch.arange(8))
    assert "8" not in str(raised.value), "everybody may read it, and the size of a drawn batch is secret"


def test_noise_of_every_release_is_rounded_to_its_grid():
    """Deviations so small that the last bits would show; one normal number is drawn for each."""
    source, again = SeededSource(1), SeededSource(1)
    drawn = source.noise(50, 3e-9, 2.0**-30)
    assert torch.equal(drawn, (again.normal(50) * (3e-9 * 2**30)).floor() * 2.0**-30)
    assert 0 < drawn.abs().max() < 2e-8

    class Told(PaidStatistics):
        def contributions(self, x):
            return 0.0 * x

        def settle(self, mean_M, shape):
            del shape
            self.mean_M = mean_M

    layer = Told(1)
    data, std = Split(torch.ones(8, 4), torch.zeros(8, dtype=torch.int64)), 1e-7
    sampler = PoissonSampler(8, 1.0, source)
    release_statistics(Network([layer], (4,)), data, sampler, source, noise_std=std, batch_size=8, micro_batch_size=8)
    steps = layer.mean_M.double() * 8 / grid(1.0)
    assert torch.equal(steps, steps.round())
    assert steps.abs().min() > 0

    hits = torch.arange(40).view(8, 5) % 3 == 0
    scores = torch.tensor(release_scores(hits, 8, 1e-7, source), dtype=torch.float64)
    steps = (scores - 0.5) * 8 * 2.0**42
    assert torch.equal(steps, steps.round())


def test_the_noise_of_an_adaptive_count_is_rounded_to_its_grid():
    network, clipping = Network([ClipGradient(1.0)], (3,)), AdaptiveClipping(quantile=0.1)
    norms = ClipNorms(network, clipping, steps=1, batch_size=8, count_std=100 * grid(0.5))
    norms.advance(0.807)
    assert norms.factor == exp(-0.2 * (80 * grid(0.5) / 8 + 0.5 - 0.1))
    norms = ClipNorms(network, clipping, steps=1, batch_size=8, count_std=3.0)
    norms.advance(0.807)
    assert norms.factor == exp(-0.2 * (77 / 32 / 8 + 0.5 - 0.1)), "2.421 is rounded to 64 to 128 steps in a deviation"
