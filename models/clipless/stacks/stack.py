r"""Stacks: many trainings of one shape as one.

A small network leaves most of a device idle, and the cost of a step is that of calling its operations. Clipless
training keeps no gradients of single examples, so that members of one shape stack: their weights lie in tensors with
a leading axis, their batches one behind the other, and each operation serves all of them.

Every member keeps what makes it a training: its own Poisson batches and its own noise, from a source of its own, its
own sensitivities and their guard, clipping norms, learning rate, averages, checkpoint. What it releases is what
`clipless.fit` releases, and it is priced alike. Members end, are stopped and are replaced on their own.

Shape letters: M members, B rows of a member in a pass, R = M B, D all trainable entries of a member.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import zip_longest
from math import ceil, erf, sqrt

import torch
from torch import Tensor

from clipless.datasets import Split
from clipless.errors import PlanError
from clipless.guards.exact_sums import check_rows
from clipless.plans.placement import evenly, take_rows
from clipless.plans.plan import Plan
from clipless.plans.trainable import check_arithmetic, check_settings
from clipless.row_independence import arithmetic
from clipless.stacks.descent import StackedProjection, descend
from clipless.stacks.forward import StackedNetwork, by_parameter
from clipless.stacks.gradients import StackedGradients, placement_of
from clipless.stacks.member import Member, check_shape, shape_key
from clipless.stacks.member_training import FixedFeatures, MemberTraining
from clipless.stacks.outputs import StackEvaluator
from clipless.training.noise_scales import NoiseScales
from clipless.training.private_training import Epoch
from clipless.training.trainer import check_micro_batch

_USUAL_MEMBERS = 8


def fit_stack(
    members: Sequence[Member], data: Split, *, micro_batch_size: int | None = None, scored: Split | None = None
) -> "Stack":
    """Train members of one shape as one; private statistics are released at the call.

    Args:
        members: at least one, with networks of their own on the device of the data.
        data: training rows, the same for all.
        micro_batch_size: most rows of one member per forward pass, as for `clipless.fit`. Does not change privacy.
        scored: other rows, on which the epochs of all members are looked at in one pass; each then has its outputs.

    Returns:
        A `Stack`, which trains whenever its next value is asked for.

    Raises:
        PlanError: no member; members of several shapes; a plan that was made for something else.
        UnsupportedError: a member that cannot be guarded, or rows that are mixed; autocast is on.

    Guarantees:
        Those of `clipless.fit` for every member, with the epsilon of its own plan, whatever else is in the stack: its
        weights depend in no way on what the other members are.
    """
    if not members:
        raise PlanError("Expected at least one member in a stack, got none")
    plan, most = members[0].plan, check_micro_batch(micro_batch_size, data) // members[0].copies
    rows = rows_per_pass(plan.batch_size, plan.sampling_rate, max(1, most))
    stack = Stack(shape_key(members[0]), data, rows, scored)
    for member in members:
        stack.add(member)
    return stack


class Stack:
    """Members in training; iterate it for their epochs.

    In each round every member takes one epoch; then (place, `Epoch`) is yielded for each, in the order of their places,
    and the member's model holds its weights until the next value is asked for. A member that resumes first yields the
    epoch that its checkpoint holds. The iteration ends when every place is empty.

    Args:
        key: the `shape_key` of its members.
        data: training rows.
        rows: of each member in a pass; the same whoever comes and goes, since kernels round by the shape of a batch.
        scored: see `fit_stack`; what a member resumes with is not looked at.
    """

    def __init__(self, key: Hashable, data: Split, rows: int, scored: Split | None = None) -> None:
        self._key, self._data, self._rows = key, data, rows
        self._evaluator = None if scored is None else StackEvaluator(scored)
        self._failed = False
        self._features = FixedFeatures(data)
        self._places: list[MemberTraining | None] = []
        self._running: RunningStack | None = None

    def add(self, member: Member) -> int:
        """Add a member in a new place and return the place; it trains from the next round on."""
        training = self._admit(member)
        self._places.append(training)
        return len(self._places) - 1

    def refill(self, place: int, member: Member) -> None:
        """Put a member into an empty place: one whose member has ended or was stopped.

        Raises:
            PlanError: the place is taken; the errors of `fit_stack`, which leave the stack as it was.
        """
        if self._places[place] is not None:
            raise PlanError(f"Expected an empty place, got {place}, whose member still trains; stop it first")
        self._places[place] = self._admit(member)

    def stop(self, place: int) -> None:
        """Train the member in this place no further; its model keeps the weights of the last step."""
        training, self._places[place] = self._places[place], None
        if training is not None:
            training.release()

    def __iter__(self) -> Iterator[tuple[int, Epoch]]:
        """Train a round whenever all epochs of the last one have been yielded."""
        while any(training is not None for training in self._places):
            yield from self._completed_epochs()  # of those that resume
            running = [training for training in self._places if training is not None]
            if running:
                self._train(running)
            yield from self._completed_epochs()

    def _admit(self, member: Member) -> MemberTraining:
        check_shape(member, self._key)
        own = set(member.model.modules())
        if any(not own.isdisjoint(other.member.model.modules()) for other in self._places if other is not None):
            raise PlanError("Expected layers of its own for every member, got some that are in the stack already")
        return MemberTraining(member, self._data, self._rows * member.copies, self._features)

    def _completed_epochs(self) -> Iterator[tuple[int, Epoch]]:
        """Yield every epoch that is done and has not been yielded."""
        for place, training in enumerate(self._places):
            if training is None or training.yielded == training.epoch:
                continue
            if training.ended:
                self.stop(place)
            with training.shown() as epoch:
                yield place, epoch

    def _train(self, trainings: list[MemberTraining]) -> None:
        if self._failed:
            raise PlanError("Expected a stack without a failure, got one whose last round broke off; begin another")
        self._failed = True  # a step that is not counted may have drawn noise: no second one may follow it
        if self._running is None or self._running.trainings != trainings:
            self._running = None  # its memory first
            self._running = RunningStack(trainings, self._rows)
        self._running.epoch()
        self._failed = False
        if self._evaluator is not None:
            for training, outputs in zip(trainings, self._evaluator.evaluate(trainings), strict=True):
                training.outputs = outputs


class RunningStack:
    """The tensors of the members that train now, and their steps.

    Args:
        trainings: of one shape; their entries move into the tensors of this stack.
        rows: of each member in a pass.
        slotted: whether batches have slots; by default that is tested.

    Raises:
        UnsupportedError: what other rows hold changes what is computed for a row.

    Attributes:
        trainings: as given.
        places: of each, where its batches stand.
    """

    def __init__(self, trainings: list[MemberTraining], rows: int, *, slotted: bool | None = None) -> None:
        first = trainings[0]
        self.trainings, self._plan, self.device = trainings, first.member.plan, first.data.x.device
        self._copies = first.member.copies
        entries = {name: torch.stack([one.entries[name] for one in trainings]) for name in first.entries}
        self._weights_MD = entries.pop("weights")
        self._carried = entries
        self._totals_MD = torch.zeros_like(self._weights_MD, dtype=torch.float64)
        self._noise_scales_MD = NoiseScales.like(self._totals_MD)
        for m, one in enumerate(trainings):
            own = {"weights": self._weights_MD[m], **{name: tensor[m] for name, tensor in entries.items()}}
            one.place(own, self._noise_scales_MD[m])
        self._totals = self._by_parameter(self._totals_MD)
        networks, weights = [one.member.model for one in trainings], self._by_parameter(self._weights_MD)
        self._network = StackedNetwork(networks, weights, first=first.first, exact=first.member.exact_norms)
        self._gradients = StackedGradients(trainings, self._network)
        self._project = StackedProjection(networks, weights)
        self._settings = arithmetic()
        if slotted is None:
            slotted = self._gradients.need_slots(rows * self._copies)
        self.places = [placement_of(one, rows, slotted=slotted) for one in trainings]
        self._rows = rows

    def epoch(self) -> None:
        """Train every member for one epoch."""
        check_arithmetic(self.device)
        check_settings(self._settings)
        for one in self.trainings:
            one.check()
        for draws in self.draw(self._plan.steps_per_epoch):
            self.step(draws)
        for one in self.trainings:
            one.epoch += 1
            one.save(one.member.checkpoint)

    def draw(self, steps: int) -> Iterator[tuple[Tensor, ...]]:
        """Yield a batch of each member for so many steps, drawn by its own sampler."""
        return zip(*(one.sampler.batches(steps, self.device) for one in self.trainings), strict=True)

    def step(self, draws: Sequence[Tensor]) -> None:
        """Take one step of every member, on the batches that their samplers drew."""
        try:
            self._step(draws)
        except BaseException:
            self._totals_MD.zero_()  # sums of an unfinished step carry no noise yet
            raise

    def sums(self, draws: Sequence[Tensor]) -> Mapping[str, Tensor]:
        """Return the sums of a step before the noise, (M, *shape) float64: for audits of public rows."""
        self._gather(draws)
        found = {name: total.clone() for name, total in self._totals.items()}
        self._totals_MD.zero_()
        return found

    def _gather(self, draws: Sequence[Tensor]) -> list[tuple[Plan, frozenset[str]]]:
        """Add up the gradients of every member's rows; return the plans of the step and the resting parameters."""
        check_rows(max(map(len, draws)) * self._copies)
        self._totals_MD.zero_()
        with ExitStack() as stack:
            now = [stack.enter_context(one.at_step()) for one in self.trainings]
            members = [list(places.passes(drawn)) for places, drawn in zip(self.places, draws, strict=True)]
            for chosen in zip_longest(*members, fillvalue=draws[0][:0]):
                self._pass(chosen, [plan for plan, _ in now])
        return now

    def _step(self, draws: Sequence[Tensor]) -> None:
        now = self._gather(draws)
        resting = [rest for _, rest in now]
        mask_MD = self._mask(resting)
        if mask_MD is not None:  # sums that receive no noise
            self._totals_MD.masked_fill_(mask_MD, 0.0)
        self._add_noise(now)
        self._totals_MD.div_(self._copies * self._plan.batch_size)
        descend(
            self._weights_MD,
            self._totals_MD.float(),
            self._carried,
            [one.member.optimizer for one in self.trainings],
            [one.learning_rate for one in self.trainings],
            [one.steps + 1 for one in self.trainings],
            mask_MD,
        )
        self._project_all(resting)
        for one, rest in zip(self.trainings, resting, strict=True):
            one.count_step(rest)

    def _pass(self, chosen: Sequence[Tensor], plans: list[Plan]) -> None:
        """Add the gradients of one pass to the totals: the chosen rows of every member, rows of zeros elsewhere."""
        x, y, counts = self._batch(chosen)
        sensitivities = [
            {**one.member.plan.sensitivities, **plan.sensitivities}
            for one, plan in zip(self.trainings, plans, strict=True)
        ]
        self._gradients.add(x, y, counts, sensitivities, self._totals)
        self._check_gathered()
        size = self._rows * self._copies
        for one, own_B, rows in zip(self.trainings, counts.split(size), chosen, strict=True):
            drawn = len(rows) * self._copies
            one.clip_norms.count(drawn, own_B[:drawn])

    def _batch(self, chosen: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return rows, targets and whether each counts, or fills up."""
        size = self._rows * self._copies
        data = self.trainings[0].data
        x = data.x.new_zeros((len(chosen) * size, *data.x.shape[1:]))
        y = data.y.new_zeros((len(chosen) * size, *data.y.shape[1:]))
        counts = torch.zeros(len(x), dtype=torch.bool, device=self.device)
        for m, (one, drawn, places) in enumerate(zip(self.trainings, chosen, self.places, strict=True)):
            rows = slice(m * size, m * size + len(drawn) * self._copies)
            if len(drawn) and (one.member.augmentation is not None or places.slots is not None):
                x[rows] = one.augment(take_rows(one.data.x, drawn))
                y[rows] = take_rows(one.data.y, drawn).repeat_interleave(self._copies, dim=0)
                counts[rows] = (drawn >= 0).repeat_interleave(self._copies)
            else:
                torch.index_select(one.data.x, 0, drawn, out=x[rows])
                torch.index_select(one.data.y, 0, drawn, out=y[rows])
                counts[rows] = True
        return x, y, counts

    def _add_noise(self, now: list[tuple[Plan, frozenset[str]]]) -> None:
        """Add noise in whole steps of the grid on which the sums lie, each member's from its own source."""
        for one, (plan, resting) in zip(self.trainings, now, strict=True):
            one.scale_noise(plan, resting)
        size = self._totals_MD.shape[1]
        noise_MD = torch.stack([one.source.normal(size, self.device) for one in self.trainings])
        self._noise_scales_MD.add_noise(self._totals_MD, noise_MD)
        for one in self.trainings:
            one.release_count(self.device)

    def _project_all(self, resting: list[frozenset[str]]) -> None:
        if not any(resting):
            return self._project()
        for one, rest in zip(self.trainings, resting, strict=True):
            one.project(rest)
        return None

    def _mask(self, resting: list[frozenset[str]]) -> Tensor | None:
        """Return which entries rest, (M, D); None if all move."""
        if not any(resting):
            return None
        mask_MD = torch.zeros_like(self._weights_MD, dtype=torch.bool)
        by_name = self._by_parameter(mask_MD)
        for m, rest in enumerate(resting):
            for name in rest:
                by_name[name][m] = True
        return mask_MD

    def _check_gathered(self) -> None:
        """Refuse gradients that were formed where neither guard nor noise reaches them."""
        gathered = (p.grad is None for one in self.trainings for p in one.parameters.values())
        if not (all(gathered) and self._network.gathered_nothing()):
            raise PlanError(
                "Expected gradients to gather where the noise is added; one was formed elsewhere during the step"
            )

    def _by_parameter(self, entries_MD: Tensor) -> dict[str, Tensor]:
        return by_parameter(entries_MD, self.trainings[0].parameters)


def rows_per_pass(batch_size: float, sampling_rate: float, most: int) -> int:
    """Return B, at most ``most``: passes of one size for every member.

    A batch that is larger costs another pass of all members, so that more of them want more room: there is that with
    the least expected cost for `_USUAL_MEMBERS`, however many there are, since kernels round by the shape of a batch.
    """
    deviation = sqrt(batch_size * (1.0 - sampling_rate))

    def cost(deviations: float) -> float:
        within = (1.0 + erf(deviations / sqrt(2.0))) / 2.0
        return (batch_size + deviations * deviation) * (2.0 - within**_USUAL_MEMBERS)

    usual = ceil(batch_size + min((i / 4.0 for i in range(21)), key=cost) * deviation)
    return evenly(usual, most)
