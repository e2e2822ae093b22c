"""What one member is given can move nothing of another's, and rows that fill a batch up count nowhere."""

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from torch import Tensor

from clipless import row_independence
from clipless.errors import PlanError, UnsupportedError
from clipless.layers import ConvexPotential, Dense, Flatten, InputBall
from clipless.network import Network
from clipless.privacy.sampling import RandomPlacement, slots_for
from clipless.row_independence import VECTOR, Watch
from clipless.stacks import fit_stack
from clipless.stacks.forward import GuardedPass, SeparateLayers, StackedNetwork, StackedPotential
from clipless.stacks.gradients import StackedLoss
from clipless.stacks.member_training import FixedFeatures, MemberTraining
from clipless.stacks.stack import RunningStack, rows_per_pass

from .members import ARCHITECTURES, member, split, trained_alone, weights

ROWS = 6  # of a member


def stacked(networks: Sequence[Network]) -> tuple[StackedNetwork, dict[str, Tensor]]:
    names = [name for name, _ in networks[0].named_parameters()]
    together = {name: torch.stack([n.get_parameter(name).detach() for n in networks]) for name in names}
    for name, values in together.items():
        for network, value in zip(networks, values, strict=True):
            network.get_parameter(name).data = value
    return StackedNetwork(networks, together), together


def sums(
    architecture: str, x: Tensor, counted: Tensor, broken: int | None = None, factor: float = 1.0
) -> dict[str, Tensor]:
    """Return the guarded sums of one pass, (members, ...) by parameter.

    The weights of one member may be ``broken``, and those of all be too large by a factor.
    """
    members = [member(seed, architecture=architecture) for seed in range(3)]
    for parameter in (p for one in members for p in one.model.parameters()):
        parameter.data *= factor
    if broken is not None:
        for parameter in members[broken].model.parameters():
            parameter.data.fill_(float("nan"))
    network, together = stacked([one.model for one in members])
    totals = {name: torch.zeros_like(values, dtype=torch.float64) for name, values in together.items()}
    guards = GuardedPass([one.plan.sensitivities for one in members], len(x), totals, normalise=False, exact=False)
    loss = StackedLoss([one.loss for one in members])
    with network.guarded(guards):
        loss(network(x), torch.arange(len(x)) % 3).backward(counted)
    return totals


def same(a: dict[str, Tensor], b: dict[str, Tensor], member: int) -> bool:
    return all(torch.equal(a[name][member], b[name][member]) for name in a)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_no_row_and_no_weight_of_a_neighbour_moves_a_members_sums_by_one_bit(architecture: str) -> None:
    x = torch.rand((3 * ROWS, 1, 8, 8), generator=torch.Generator().manual_seed(0))
    counted = torch.ones(len(x))
    before = sums(architecture, x, counted)
    assert all(total.any() for totals in before.values() for total in totals)
    for value in (float("nan"), float("inf"), 1e38, 0.0):
        moved = x.clone()
        moved[:ROWS] = value
        moved[2 * ROWS :] = -value
        after = sums(architecture, moved, counted, broken=0)
        assert same(before, after, 1)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_rows_that_fill_up_contribute_exactly_nothing(architecture: str) -> None:
    x = torch.rand((3 * ROWS, 1, 8, 8), generator=torch.Generator().manual_seed(0))
    counted = torch.ones(len(x))
    counted[ROWS : 2 * ROWS] = 0.0
    counted[2 * ROWS + 2 :] = 0.0
    before = sums(architecture, x, counted)
    assert not any(total[1].any() for total in before.values())
    others = torch.where((counted == 1.0).view(-1, 1, 1, 1), x, 0.25)
    after = sums(architecture, others, counted)
    assert same(before, after, 2)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_one_row_moves_its_members_sums_by_at_most_the_members_sensitivity(architecture: str) -> None:
    x = torch.rand((3 * ROWS, 1, 8, 8), generator=torch.Generator().manual_seed(0))
    counted = torch.ones(len(x))
    full, reached = sums(architecture, x, counted, factor=30.0), 0.0
    for m in range(3):
        fewer = counted.clone()
        fewer[m * ROWS + 1] = 0.0
        without = sums(architecture, x, fewer, factor=30.0)
        deltas = member(m, architecture=architecture).plan.sensitivities
        for name, delta in deltas.items():
            moved = float((full[name][m] - without[name][m]).norm()) / delta
            assert moved <= 1.0 + 1e-12
            reached = max(reached, moved)
    assert reached > 0.5


def mixed(x: Tensor) -> Tensor:
    """Add the mean of all rows to every row."""
    return x + x.mean(dim=0, keepdim=True)


def swapped(x: Tensor) -> Tensor:
    """Add half of the next member's rows to each row."""
    return x + 0.5 * x.roll(len(x) // 3, dims=0)


@pytest.fixture
def _forgetful() -> Iterator[None]:
    row_independence.forget()
    yield
    row_independence.forget()


def running() -> RunningStack:
    features, members = FixedFeatures(split()), [member(number) for number in range(3)]
    return RunningStack([MemberTraining(one, split(), VECTOR, features) for one in members], VECTOR)


@pytest.mark.usefixtures("_forgetful")
@pytest.mark.parametrize("change", [mixed, swapped])
def test_a_stack_that_mixes_rows_is_refused(
    change: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert all(places.slots is None for places in running().places)
    passed = StackedNetwork.__call__
    monkeypatch.setattr(StackedNetwork, "__call__", lambda self, x, watch=None: passed(self, change(x), watch))
    row_independence.forget()
    with pytest.raises(UnsupportedError, match="mixes rows"):
        running()


@pytest.mark.usefixtures("_forgetful")
def test_a_stack_whose_rows_depend_on_their_place_trains_in_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = StackedNetwork.__call__

    def placed(self: StackedNetwork, x: Tensor, watch: Watch | None = None) -> Tensor:
        shifted = torch.arange(len(x)).view(-1, *[1] * (x.dim() - 1)) % 4 == 0
        return passed(self, torch.where(shifted, x * (1.0 + 2.0**-23), x), watch)

    monkeypatch.setattr(StackedNetwork, "__call__", placed)
    stack = running()
    assert {places.slots.count >= slots_for(len(split()), 0.1) for places in stack.places if places.slots} == {True}
    assert all(places.slots is not None for places in stack.places)
    draws = [torch.arange(number + 1) for number in range(3)]
    assert all(total.isfinite().all() and total.any() for total in stack.sums(draws).values())


def test_a_stack_in_slots_adds_up_to_what_its_rows_in_order_do() -> None:
    stack = running()
    draws = [torch.randperm(len(split()), generator=torch.Generator().manual_seed(m))[: 40 + m] for m in range(3)]
    expected = stack.sums(draws)
    for places, training in zip(stack.places, stack.trainings, strict=True):
        places.slots = RandomPlacement(5 * stack.places[0].size, training.source)
    found = stack.sums(draws)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_parameter_that_no_guard_reaches_is_refused() -> None:
    networks = [Network([InputBall(1.0), Flatten(), Dense(64, 3)], (1, 8, 8)) for _ in range(2)]
    together = {"layers.2.weight": torch.zeros((2, 3, 64)), "layers.2.other": torch.zeros((2, 3))}
    with pytest.raises(PlanError, match=r"none for layers\.2\.other"):
        StackedNetwork(networks, together)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("size", [None, VECTOR, 1])
def test_the_number_of_rows_in_a_pass_changes_nothing(size: int | None) -> None:
    alone = trained_alone(member(1, epochs=2), split())
    one = member(1, epochs=2)
    for _ in fit_stack([member(0, epochs=1), one], split(), micro_batch_size=size):
        pass
    assert float((weights(one.model) - weights(alone)).norm()) <= 1e-6 * float(weights(alone).norm())


def test_passes_have_room_for_most_batches_and_are_even() -> None:
    room = rows_per_pass(128.0, 0.1, 10_000)
    assert 128 + 2 * 10.7 < room < 128 + 4 * 10.8
    assert rows_per_pass(128.0, 0.1, 100) == room // 2 + -(room // 2) % 32 == 96
    assert rows_per_pass(10.0, 1.0, 100) == 32
    assert rows_per_pass(128.0, 0.1, 1) == 1


@pytest.mark.parametrize(("radii", "kind"), [((0.5, 0.5), StackedPotential), ((0.5, 2.0), SeparateLayers)])
def test_potentials_of_other_radii_are_applied_apart(radii: tuple[float, float], kind: type) -> None:
    """Normalised training divides by a number that the radius is in."""
    networks = [Network([InputBall(1.0), ConvexPotential(4, bias=True, bias_norm=r), Dense(4, 2)], (4,)) for r in radii]
    network, _ = stacked(networks)
    assert type(network._layers[1]) is kind
