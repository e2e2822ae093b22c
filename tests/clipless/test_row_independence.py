"""Passes whose kernels look at places or at other rows are found out; those that do not, pass."""

import os
import subprocess
import sys

import pytest
import torch

import clipless
from clipless import row_independence, zoo
from clipless.datasets import Split
from clipless.guards import exact_sums, potential
from clipless.layers import ConvexPotential, Dense, Flatten, GroupSort, InputBall, MaxPool2d, ReLU
from clipless.network import Network
from clipless.plans import placement
from clipless.plans.method import Method
from clipless.plans.placement import Placement, evenly, needs_slots, slotted_size, take_rows
from clipless.plans.trainable import check_rows_apart
from clipless.privacy.randomness import SecureSource
from clipless.privacy.sampling import OVERFLOW, RandomPlacement, slots_for
from clipless.projections import SpectralBall
from clipless.row_independence import PassShape, is_alone, is_apart, make_rows
from clipless.stacks import Member, fit_stack
from clipless.stacks.forward import StackedNetwork
from clipless.testing import SeededSource
from clipless.training.placing import training_places
from clipless.training.trainer import PrivateTrainer
from tests.clipless.zoo.test_zoo import SMALL

CPU = torch.device("cpu")
KERNELS_DO_NOT_LOOK = pytest.mark.skipif(
    not torch.backends.mkl.is_available(), reason="products of another library than MKL, which may look at places"
)
N, B = 400, 60


@pytest.fixture(autouse=True)
def _whole_test(monkeypatch):
    """All arrangements, and nothing remembered of other tests."""
    monkeypatch.setattr(row_independence, "_FEWEST", 6)
    monkeypatch.setattr(row_independence, "_MOST", 16)
    row_independence.forget()
    yield
    row_independence.forget()


def nudged(x, where):
    """``x`` with the last bit of the chosen rows' first entry moved."""
    moved = x.clone().flatten(1)
    first = moved[where, 0].detach()
    moved[where, 0] += torch.nextafter(first, torch.full_like(first, torch.inf)) - first
    return moved.view_as(x)


PLACES = {
    "place mod 4": lambda x: nudged(x, torch.arange(len(x)) % 4 == 1),
    "second half": lambda x: nudged(x, torch.arange(len(x)) >= len(x) // 2),
    "last row": lambda x: nudged(x, torch.arange(len(x)) == len(x) - 1),
    "first row": lambda x: nudged(x, torch.arange(len(x)) == 0),
}


def form(rows=64, width=13):
    return PassShape(None, rows, (width,), CPU)


def summed(f):
    """A pass of one map whose sums are whole numbers."""

    def passed(x, _, counts_B, watch):
        y = f(x)
        watch(y)
        return {"": torch.where(counts_B[:, None], (y * 16).nan_to_num().clamp(-1e6, 1e6).trunc(), 0.0).double().sum(0)}

    return passed


@pytest.mark.parametrize("name", PLACES)
def test_a_map_that_looks_at_places_is_found_out_and_one_that_does_not_passes(name):
    assert is_alone(summed(torch.tanh), form())
    assert not is_alone(summed(PLACES[name]), form())
    assert is_apart(summed(PLACES[name]), form())


@pytest.mark.parametrize("mixed", [lambda x: x + x.nan_to_num().mean(dim=0), lambda x: x + 1e-7 * x.roll(1, dims=0)])
def test_a_map_that_mixes_rows_passes_neither(mixed):
    assert not is_alone(summed(mixed), form())
    assert not is_apart(summed(mixed), form())


def test_sums_that_look_at_places_are_found_out_though_nothing_in_front_does():
    def passed(x, _, counts_B, watch):
        watch(x)
        return {"": (counts_B & (torch.arange(len(x)) != 5)).sum().double()}

    assert not is_alone(passed, form())


def test_sums_that_other_rows_enter_are_found_out_though_nothing_in_front_mixes():
    def passed(x, _, counts_B, watch):
        watch(x)
        return {"": x.isfinite().all().double() * counts_B.sum()}

    assert not is_apart(passed, form())


def test_a_form_that_has_passed_is_tested_again_with_other_weights():
    shape = PassShape("net", 64, (13,), CPU)
    assert is_alone(summed(torch.tanh), shape)
    for name in PLACES:
        assert not is_alone(summed(PLACES[name]), shape)
    assert is_alone(summed(torch.tanh), shape)


def test_what_is_remembered_depends_on_threads(monkeypatch):
    shape, before = PassShape("net", 64, (13,), CPU), torch.get_num_threads()
    tested = []
    monkeypatch.setattr(row_independence, "_holds", lambda *given: tested.append(given[2]) or True)
    assert is_alone(summed(torch.tanh), shape)
    torch.set_num_threads(before + 1)
    try:
        assert is_alone(summed(torch.tanh), shape)
    finally:
        torch.set_num_threads(before)
    assert is_alone(summed(torch.tanh), shape)
    assert tested == [*range(16), *range(16), 1]


@pytest.mark.parametrize("rows", [2, 7, 31, 33, 836])
def test_passes_that_are_no_whole_vectors_are_not_alone(rows):
    """A tail may round one number in thousands in another way, which no few hundred rows are sure to show."""
    assert not is_alone(summed(torch.tanh), form(rows, 9))
    assert is_alone(summed(torch.tanh), form(rows + -rows % 32, 9))
    assert is_alone(summed(torch.tanh), form(1, 9))


def test_made_up_rows_are_of_every_kind():
    generator = torch.Generator().manual_seed(0)
    layer = Dense(13, 8)
    x = make_rows(256, form(), generator, layer)
    with torch.no_grad():
        y = layer(x)
    relative = (y.abs() / x.norm(dim=1, keepdim=True)).amin(dim=1)
    apart = ((y[:, :, None] - y[:, None, :]).abs() + torch.eye(8)).flatten(1).amin(dim=1) / x.norm(dim=1)
    assert int(((relative < 1e-6) | (apart < 1e-6)).sum()) > 32  # at kinks, or ties
    assert int(((x == 0).float().mean(dim=1) > 0.7).sum()) > 16
    assert int((x.norm(dim=1) < 1e-12).sum()) > 16
    assert int((x.norm(dim=1) > 1e6).sum()) > 16
    assert int(((x > 0) & (x < 1e-38)).any(dim=1).sum()) > 16
    assert int((x == x[:, :1]).all(dim=1).sum()) > 16


# --- trainings


def network(width=13):
    ball = SpectralBall(1.0)
    return Network(
        [InputBall(1.0), Dense(width, 16, ball), GroupSort(2), Dense(16, 8, ball), ReLU(), Dense(8, 3, ball)], (width,)
    )


def split(width=13, count=N):
    generator = torch.Generator().manual_seed(0)
    return Split(torch.randn(count, width, generator=generator), torch.arange(count) % 3)


METHODS = {
    "clipless": {"method": Method.CLIPLESS},
    "clipping": {"method": Method.CLIPLESS, "sensitivity_fraction": 1e-3},
    "lip-dp-sgd": {"method": Method.LIP_DP_SGD},
    "dp-sgd": {"method": Method.DP_SGD, "clip_norm": 0.1},
}


def planned(model, count=N, **options):
    loss = clipless.TauCCE(0.5)
    settings = {"population": count, "batch_size": B, "delta": 1e-4, "noise_multiplier": 1.0, "epochs": 1}
    return loss, clipless.make_plan(model, loss, **settings, **options)


def placed(model, method="clipless", data=None, micro_batch_size=512, **options):
    loss, plan = planned(model, **METHODS[method])
    return training_places(model, loss, data or split(), plan, SecureSource(), micro_batch_size, **options)


def plant(monkeypatch, change):
    """Let a dense layer round its rows as ``change`` says."""
    whole = Dense.forward
    monkeypatch.setattr(Dense, "forward", lambda layer, x: change(whole(layer, x)))


@pytest.mark.sampled(7)
@KERNELS_DO_NOT_LOOK
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("width", [4, 7, 13, 30, 31])
def test_rows_of_any_width_are_alone_in_every_method(method, width):
    assert placed(network(width), method, split(width)).slots is None


@pytest.mark.sampled(2)
@KERNELS_DO_NOT_LOOK
@pytest.mark.parametrize("options", [{"ghost": True}, {"exact": True}])
def test_other_ways_of_summing_are_tested_too(options):
    method = "dp-sgd" if "ghost" in options else "clipless"
    assert placed(network(), method, **options).slots is None


@pytest.mark.sampled(2)
@pytest.mark.parametrize("value", [0.0, 1.0], ids=["zeros", "ones"])
def test_weights_with_which_nothing_is_rounded_hide_no_kernel(value, monkeypatch):
    """The test is made with dense weights first: those of later steps are dense."""
    whole = Dense.forward

    def rounded(layer, x):
        y = whole(layer, x)
        return y if torch.all(layer.weight == value) else PLACES["place mod 4"](y)

    model = network()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)
    monkeypatch.setattr(Dense, "forward", rounded)
    assert placed(model).slots is not None
    assert all((parameter == value).all() for parameter in model.parameters())
    row_independence.forget()
    monkeypatch.setattr(Dense, "forward", whole)
    assert placed(model).slots is None


@pytest.mark.sampled(4)
@KERNELS_DO_NOT_LOOK
@pytest.mark.parametrize("name", SMALL)
def test_every_architecture_is_alone(name):
    model = zoo.build(name, (1, 8, 8), 3, input_norm=2.0, **SMALL[name])
    data = Split(torch.zeros(N, 1, 8, 8), torch.zeros(N, dtype=torch.int64))
    assert placed(model, data=data).slots is None


@pytest.mark.sampled(5)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", PLACES)
def test_a_layer_that_looks_at_places_gets_slots(method, name, monkeypatch):
    plant(monkeypatch, PLACES[name])
    found = placed(network(), method)
    assert found.slots is not None
    assert found.slots.count >= slots_for(N, B / N)
    assert found.slots.count % found.size == 0


def test_cotangents_that_look_at_places_get_slots(monkeypatch):
    class Backwards(torch.autograd.Function):
        @staticmethod
        def forward(_, x):
            return x.clone()

        @staticmethod
        def backward(_, g):
            return PLACES["place mod 4"](g)

    plant(monkeypatch, Backwards.apply)
    assert placed(network()).slots is not None


@pytest.mark.parametrize("seam", ["whole_operand", "row_norms"])
def test_guards_that_look_at_places_get_slots(seam, monkeypatch):
    whole = getattr(exact_sums, seam)

    def moved(*given):
        found = whole(*given)
        found.view(len(found), -1)[::4] += 1
        return found

    monkeypatch.setattr(exact_sums, seam, moved)
    assert placed(network(), "clipping").slots is not None


def test_hidden_features_of_a_convex_potential_layer_that_look_at_places_get_slots(monkeypatch):
    """They are no layer's output: what they round shows in that of the layer around them."""
    whole = potential._hidden
    monkeypatch.setattr(potential, "_hidden", lambda *given: PLACES["place mod 4"](whole(*given)))
    model = Network([InputBall(2.0), ConvexPotential(13), Dense(13, 3)], (13,))
    assert placed(model).slots is not None


def test_a_network_that_mixes_rows_is_refused_before_anything_is_drawn(monkeypatch):
    class Silent(SeededSource):
        def random_bytes(self, _):
            pytest.fail("drawn")

    plant(monkeypatch, lambda x: x + x.mean(dim=0))
    model, data = network(), split()
    loss, plan = planned(model)
    with pytest.raises(clipless.errors.UnsupportedError, match="mixes rows"):
        PrivateTrainer(model, loss, data, plan, clipless.SGD(0.1), 512, Silent(0))


@pytest.mark.parametrize("method", [*METHODS, "stack", "test before a plan"])
def test_no_pass_uses_convolutions_that_add_in_another_order_each_time(method, monkeypatch):
    """By itself cuDNN takes some for cotangents: on an H100 every convolutional network was refused."""
    seen = []

    class Watched(torch.autograd.Function):
        @staticmethod
        def forward(_, x):
            return x.clone()

        @staticmethod
        def backward(_, g):
            seen.append(torch.backends.cudnn.deterministic)
            return g

    plant(monkeypatch, Watched.apply)
    stacked = StackedNetwork.__call__
    monkeypatch.setattr(StackedNetwork, "__call__", lambda *given: Watched.apply(stacked(*given)))
    model, data = network(), split()
    if method == "test before a plan":
        check_rows_apart(model)
    elif method == "stack":
        loss, plan = planned(model)
        next(iter(fit_stack([Member(model=model, loss=loss, plan=plan)], data)))
    else:
        loss, plan = planned(model, **METHODS[method])
        PrivateTrainer(model, loss, data, plan, clipless.SGD(0.1), 512, SeededSource(0)).step(torch.arange(9))
    assert seen
    assert all(seen)
    assert not torch.backends.cudnn.deterministic


def test_devices_whose_kernels_choose_by_themselves_always_have_slots(monkeypatch):
    monkeypatch.setattr(placement, "is_tested", lambda _: False)
    assert placed(network()).slots is not None


# --- an empty row joins


def released(model, data, rows, plan, loss, slots=None):
    """What a step adds up before its noise."""

    class Chosen(SeededSource):
        def normal(self, count, _="cpu"):
            return torch.zeros(count, dtype=torch.float64)

    sums = []
    trainer = PrivateTrainer(model, loss, data, plan, clipless.SGD(1e-9), 512, Chosen(0))
    if slots is not None:
        trainer._places = Placement(trainer._places.size, slots)
    add_noise = trainer._add_noise
    trainer._add_noise = lambda *given: (
        sums.append({n: t.clone() for n, t in trainer._totals.items()}),
        add_noise(*given),
    )
    trainer.step(torch.tensor(rows))
    return sums[0]


def kinked(model, width, generator):
    """Rows at kinks of the first layer, between two of its entries or of one alone."""
    layer = model.layers[1]
    rows = [make_rows(64, PassShape(None, 64, (width,), CPU), generator, layer) for _ in range(4)]
    x = torch.cat(rows)
    return 0.5 * x / x.norm(dim=1, keepdim=True).clamp(min=1e-30)


@pytest.mark.sampled(5)
@KERNELS_DO_NOT_LOOK
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("width", [5, 13, 30])
def test_an_empty_row_that_joins_in_front_moves_no_bit_of_a_sum(method, width):
    """Rows at kinks, where the last bit of an activation decides about a whole contribution."""
    model = network(width)
    x = kinked(model, width, torch.Generator().manual_seed(1))
    x[0] = 0.0
    data = Split(x, torch.arange(len(x)) % 3)
    loss, plan = planned(model, len(x), **METHODS[method])
    rows = list(range(1, 40))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    without = released(model, data, rows, plan, loss)
    for count in (1, 2, 3, 5):
        model.load_state_dict(before, strict=False)
        own = released(model, data, [0] * count, plan, loss)
        model.load_state_dict(before, strict=False)
        joined = released(model, data, [0] * count + rows, plan, loss)
        for name in without:
            assert torch.equal(joined[name], without[name] + own[name])


class Fixed:
    """RandomPlacement that place rows by their index: what the coupling of random ones is about."""

    def __init__(self, count, order):
        self.count, self._order = count, order

    def place(self, rows_B):
        slots = rows_B.new_full((self.count,), -1)
        slots[self._order[rows_B]] = rows_B
        return slots


def test_given_its_slots_a_step_moves_by_one_contribution_whatever_kernels_make_of_places(monkeypatch):
    """The theorem of slots: nothing of a row but its own contribution joins or leaves, though places change roundings."""
    plant(monkeypatch, PLACES["place mod 4"])
    model, generator = network(), torch.Generator().manual_seed(2)
    x = kinked(model, 13, generator)
    data = Split(x, torch.arange(len(x)) % 3)
    loss, plan = planned(model, len(x), sensitivity_fraction=1e-3)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}

    def sums(rows, slots):
        model.load_state_dict(before, strict=False)
        return released(model, data, rows, plan, loss, slots)

    size = PrivateTrainer(model, loss, data, plan, clipless.SGD(1e-9), 512, SeededSource(0))._places.slots.count
    for _ in range(10):
        rows = torch.randperm(len(x), generator=generator)[:40].tolist()
        order = torch.zeros(len(x), dtype=torch.int64)
        order[rows] = torch.randperm(size, generator=generator)[:40]
        slots = Fixed(size, order)
        full, fewer = sums(rows, slots), sums(rows[1:], slots)
        for name, delta in plan.sensitivities.items():
            assert float((full[name] - fewer[name]).norm()) <= delta


def biased():
    """Weights and biases that let every row through, so that a zero row contributes, too."""
    return Network([InputBall(1.0), Dense(13, 8, SpectralBall(1.0), bias=True), ReLU(), Dense(8, 3, bias=True)], (13,))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("number", range(3))
def test_slots_add_up_to_what_the_rows_in_order_do(number):
    """A zero row would contribute by its biases: places without a row may not."""
    model, generator = biased(), torch.Generator().manual_seed(number)
    data = split()
    loss, plan = planned(model)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    rows = torch.randperm(N, generator=generator)[:50]
    order = torch.randperm(160, generator=generator)[:50]
    places_N = torch.zeros(N, dtype=torch.int64)
    places_N[rows] = order
    expected = released(model, data, rows.tolist(), plan, loss)
    model.load_state_dict(before, strict=False)
    found = released(model, data, rows.tolist(), plan, loss, Fixed(160, places_N))
    for name in expected:
        assert torch.equal(found[name], expected[name])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("setting", ["threads", "precision"])
def test_a_training_goes_on_under_the_arithmetic_that_it_began_with(setting):
    model = network()
    loss, plan = planned(model)
    epochs = clipless.fit(model, loss, split(), plan, source=SeededSource(0))
    change, before, other = {
        "threads": (torch.set_num_threads, torch.get_num_threads(), torch.get_num_threads() + 1),
        "precision": (torch.set_float32_matmul_precision, torch.get_float32_matmul_precision(), "medium"),
    }[setting]
    change(other)
    try:
        with pytest.raises(clipless.errors.PlanError, match=f"{setting} {before!r}, got {other!r}"):
            next(epochs)
    finally:
        change(before)


def test_cotangents_that_look_at_places_are_seen():
    """Of a map whose outputs do not, and whose sums hide it."""

    class Backwards(torch.autograd.Function):
        @staticmethod
        def forward(_, x):
            return x.clone()

        @staticmethod
        def backward(_, g):
            return nudged(g, torch.arange(len(g)) % 4 == 1)

    def passed(x, _, counts_B, watch):
        x = x.nan_to_num().clamp(-1e3, 1e3).requires_grad_()
        row_independence.show(x, watch)
        torch.where(counts_B, Backwards.apply(x).square().sum(dim=1), 0.0).sum().backward()
        return {"": counts_B.sum().double()}

    assert not is_alone(passed, form())


@pytest.mark.long
def test_kernels_are_asked_not_to_look_at_addresses():
    """In a process of its own: this one may have been told otherwise."""
    environment = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}
    code = "import torch, clipless, os; print(os.environ['MKL_CBWR'])"
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "AUTO,STRICT"
    environment["MKL_CBWR"] = "AVX2"
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "AVX2"


@pytest.mark.parametrize("slotted", [False, True])
@pytest.mark.parametrize("shape", [(3, 8, 8), (8, 3, 13)])
def test_every_pass_has_the_memory_layout_that_was_tested(shape, slotted, monkeypatch):
    """Of data with other strides a full pass would keep them, and one that is filled up would not: other kernels."""
    whole, seen = Network.forward, []
    monkeypatch.setattr(placement, "is_tested", lambda _: not slotted)
    flat = torch.randn(N, *shape[1:], shape[0], generator=torch.Generator().manual_seed(0))
    data = Split(flat.movedim(-1, 1), torch.arange(N) % 3)
    assert not data.x.is_contiguous()
    model = Network([Dense(shape[-1], 4), ReLU(), Flatten(), Dense(4 * shape[0] * shape[1], 3)], shape)
    loss, plan = planned(model, method=Method.DP_SGD, clip_norm=1.0)
    trainer = PrivateTrainer(model, loss, data, plan, clipless.SGD(1e-9), 32, SeededSource(0))
    monkeypatch.setattr(Network, "forward", lambda self, x: seen.append(x.is_contiguous()) or whole(self, x))
    trainer.step(torch.arange(40))
    assert len(seen) >= 2
    assert all(seen)


# --- slots


def test_slots_overflow_as_rarely_as_prices_say():
    from scipy.stats import binom

    for population, rate in (
        (60, 0.5),
        (400, 0.15),
        (10_000, 0.01),
        (60_000, 0.0085),
        (10**6, 0.004),
        (50, 1.0),
        (5, 1e-6),
    ):
        slots = slots_for(population, rate)
        assert slots == population or binom.sf(slots - 1, population, rate) <= OVERFLOW / 2
        deviation = (population * rate * (1 - rate)) ** 0.5
        assert slots <= min(population, population * rate + 10.5 * deviation + 40)


def test_places_of_rows_are_uniform_and_distinct():
    source, counts = SeededSource(3), torch.zeros(6, 6)
    for _ in range(3000):
        order = source.permutation(6)
        assert sorted(order.tolist()) == list(range(6))
        counts[torch.arange(6), order] += 1
    assert float((counts - 500).abs().max()) < 5 * 500**0.5


@pytest.mark.long
def test_a_row_that_joins_leaves_the_law_of_other_places_as_it_was():
    """All injections of two and of three rows into four slots: the two stand alike in both."""
    source, pairs = SeededSource(5), torch.zeros(2, 4, 4)
    tried = 12_000
    for _ in range(tried):
        for number, rows in enumerate((torch.tensor([1, 2]), torch.tensor([0, 1, 2]))):
            slots = RandomPlacement(4, source).place(rows).tolist()
            pairs[number, slots.index(1), slots.index(2)] += 1
    expected = tried / 12 * (1 - torch.eye(4))
    assert float((pairs - expected).abs().max()) < 5 * (tried / 12) ** 0.5


def test_more_rows_than_slots_all_get_a_place():
    slots = RandomPlacement(4, SeededSource(0)).place(torch.arange(7))
    assert sorted(slots.tolist()) == list(range(7))


def test_passes_are_of_whole_vectors():
    assert [evenly(rows, most) for rows, most in ((100, 512), (558, 512), (20, 512), (20, 7), (100, 40))] == [
        128, 288, 32, 7, 32,
    ]  # fmt: skip
    assert slotted_size(N, B / N, 512) == 160


def test_places_without_a_row_hold_zeros():
    x = torch.tensor([[1.0, torch.nan], [2.0, 3.0]])
    assert torch.equal(take_rows(x, torch.tensor([1, -1])), torch.tensor([[2.0, 3.0], [0.0, 0.0]]))


def test_a_pass_whose_rows_are_alone_needs_no_slots():
    assert not needs_slots(summed(torch.tanh), form())


@pytest.mark.parametrize("shape", [(2, 6, 6)])
def test_ties_of_pooling_do_not_look_at_places(shape):
    layer = MaxPool2d(2)
    assert is_alone(summed(lambda x: layer(x).flatten(1)), PassShape(None, 32, shape, CPU), layer)
