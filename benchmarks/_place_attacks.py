"""Empty rows that join rows at kinks, restated on what trainings do: one alone by every method, and a stack.

A row whose first unit has one sign in some places of a pass and the other in others is searched for; where kernels do
not look at places there is none, and rows as near to the kink as a bisection comes take its stead. Copies of it are
drawn behind rows of zeros, one more of these at a time: what the others contribute has to stay as it is. Packed is
one behind the other; given the slots, a row keeps its own whoever joins.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

import clipless
from clipless.audits.placement import FixedPlacement
from clipless.datasets import Split
from clipless.layers import Dense, InputBall, ReLU
from clipless.network import Network, precompute, split_fixed_prefix
from clipless.plans.method import Method
from clipless.plans.placement import Placement, even_size, take_rows, whole
from clipless.plans.plan import Plan
from clipless.privacy.randomness import SecureSource
from clipless.projections import SpectralBall
from clipless.row_independence import PassShape, make_rows
from clipless.stacks.member import Member
from clipless.stacks.member_training import FixedFeatures, MemberTraining
from clipless.stacks.stack import RunningStack, rows_per_pass
from clipless.training.batch_sums import CountedLoss, sum_gradients
from clipless.training.placing import training_places

ROWS, BATCH, KINKED, EMPTY = 200, 20, 32, 3
MOST = 512
TRIED = 8  # rows
WIDTHS = (13, 5, 7, 21, 31)  # of the input; the first at which kernels look at places is attacked
METHODS: dict[str, dict[str, object]] = {
    "clipless": {"method": Method.CLIPLESS, "sensitivity_fraction": 1e-3},
    "lip-dp-sgd": {"method": Method.LIP_DP_SGD, "sensitivity_fraction": 1e-3},
    "dp-sgd": {"method": Method.DP_SGD, "clip_norm": 1e-3},
}
LOSS = clipless.MAE()

Sums = Mapping[str, Tensor]


def attacks() -> list[dict[str, Any]]:
    """Return, for each training, how much packed rows and slotted ones are moved by empty rows, in Delta."""
    size = even_size(BATCH, BATCH / ROWS, MOST)
    tried = {width: _rows(width, size) for width in WIDTHS}
    width = next((width for width, (_, split) in tried.items() if split), WIDTHS[0])
    rows, split = tried[width]
    where = f"{width} inputs, {len(split)} of {len(rows)} rows change sign" if split else f"{width} inputs"
    found = [_alone(name, width, rows[split] if split else rows) for name in METHODS]
    found.append(_stacked(width, rows[split] if split else rows))
    return [{**one, "training": f"{one['training']}, {where}"} for one in found]


def _network(width: int) -> Network:
    torch.manual_seed(1)
    layers = [InputBall(1.0), Dense(width, 2, SpectralBall(10.0)), ReLU(), Dense(2, 1, SpectralBall(1e3))]
    network = Network(layers, (width,))
    with torch.no_grad():
        network.layers[1].weight.copy_(torch.randn(2, width) * 0.3)
        network.layers[3].weight.fill_(1.0)
    return network


@torch.no_grad()
def _rows(width: int, size: int) -> tuple[Tensor, list[int]]:
    """Return rows next to the kink of the first unit, and which of them are on both sides of it by their place."""
    layer = _network(width).layers[1]
    weight = layer.weight.detach()
    x = torch.randn(2000, width, generator=torch.Generator().manual_seed(0)) * 0.2
    x[:, -1] = -((x[:, :-1].double() @ weight[0, :-1].double()) / weight[0, -1].double()).float()
    x = x[(x.norm(dim=1) < 0.9) & (x @ weight[1] < -0.05)][:300]
    form = PassShape(None, 100, (width,), torch.device("cpu"))
    near = make_rows(100, form, torch.Generator().manual_seed(0), lambda rows: layer(rows)[:, :1].repeat(1, 2))
    x = torch.cat([x, 0.5 * near / near.norm(dim=1, keepdim=True).clamp(min=1e-30)])
    sides = [layer(row.expand(size, width).contiguous())[:, 0] > 0 for row in x]
    return x, [i for i, side in enumerate(sides) if side.any() and not side.all()]


def _data(row: Tensor) -> Split:
    """Rows of zeros that may join, copies of one row at a kink, and zeros."""
    x = torch.zeros(ROWS, len(row))
    x[EMPTY : EMPTY + KINKED] = row
    return Split(x, torch.ones(ROWS, dtype=torch.int64))


def _plan(model: Network, method: str) -> Plan:
    settings: dict[str, Any] = {"delta": 1e-5, "noise_multiplier": 1.0, "epochs": 1}
    return clipless.make_plan(model, LOSS, population=ROWS, batch_size=BATCH, **settings, **METHODS[method])


def _alone(method: str, width: int, rows: Tensor) -> dict[str, Any]:
    model = _network(width)
    plan = _plan(model, method)
    prefix, trained = split_fixed_prefix(model)
    places = training_places(model, LOSS, _data(rows[0]), plan, SecureSource(), MOST)

    def sums_in(places: Placement, data: Split) -> Callable[[Tensor], Sums]:
        def sums(rows_B: Tensor) -> Sums:
            totals = {n: torch.zeros_like(p, dtype=torch.float64) for n, p in model.named_parameters()}
            for chosen in places.passes(rows_B):
                placed = whole(chosen, places.size)
                loss, x, y = CountedLoss(LOSS, placed >= 0), take_rows(data.x, placed), take_rows(data.y, placed)
                sum_gradients(model, loss, x, y, plan, totals, forward=trained)
            return totals

        return sums

    packed = Placement(even_size(BATCH, BATCH / ROWS, MOST), None)
    given = None if places.slots is None else Placement(places.size, _by_index(places.size))
    moved: list[float | None] = [
        where and max(_moved(sums_in(where, precompute(prefix, _data(row))), plan) for row in rows[:TRIED])
        for where in (packed, given)
    ]
    return {"training": method, "packed": moved[0], "slotted": moved[1]}


def _by_index(size: int) -> FixedPlacement:
    return FixedPlacement(-(-ROWS // size) * size)


def _stacked(width: int, rows: Tensor) -> dict[str, Any]:
    """Let the row of zeros join the batch of the first of two members."""
    size = rows_per_pass(BATCH, BATCH / ROWS, MOST)
    packed, slotted = 0.0, None
    for row in rows[:TRIED]:
        data = _data(row)
        members = []
        for _ in range(2):
            model = _network(width)
            plan = _plan(model, "clipless")
            members.append(Member(model=model, loss=LOSS, plan=plan, optimizer=clipless.SGD(1e-6)))
        features = FixedFeatures(data)
        stack = RunningStack([MemberTraining(member, data, size, features) for member in members], size)
        chosen, other_B = stack.places[0].slots, torch.tensor([90, 100])

        def sums(rows_B: Tensor, stack: RunningStack = stack, other_B: Tensor = other_B) -> Sums:
            return {name: total[0] for name, total in stack.sums([rows_B, other_B]).items()}

        stack.places = [Placement(size, None)] * 2
        packed = max(packed, _moved(sums, plan))
        if chosen is not None:
            stack.places = [Placement(size, _by_index(size))] * 2
            slotted = max(slotted or 0.0, _moved(sums, plan))
    return {"training": "a stack of two, clipless", "packed": packed, "slotted": slotted}


def _moved(sums: Callable[[Tensor], Sums], plan: Plan) -> float:
    """Return by how much rows of zeros that join move what the others contribute, in Delta."""
    found = 0.0
    for count in (2, 9, KINKED - EMPTY):
        kinked = torch.arange(EMPTY, EMPTY + count)
        own = sums(kinked)
        for empty in range(1, EMPTY + 1):
            joining = torch.arange(empty)
            joined, apart = sums(torch.cat([joining, kinked])), sums(joining)
            found = max(found, _norm({name: joined[name] - own[name] - apart[name] for name in own}, plan))
    return found


def _norm(difference: Sums, plan: Plan) -> float:
    if plan.method is Method.DP_SGD:
        return float(torch.cat([value.flatten() for value in difference.values()]).norm()) / float(plan.clip_norm or 0)
    return max(float(value.norm()) / plan.sensitivities[name] for name, value in difference.items())
