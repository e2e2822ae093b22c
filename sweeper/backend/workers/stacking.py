"""A stack of trials: members of `clipless.stacks`, with the rows that a trial reports.

A round is one epoch of every member. Epochs that members resume from and that the driver does not have are a round of
their own, so that nothing is drawn before they are answered.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

from clipless.stacks import Member, Stack, fit_stack, shape_key, stack_size
from clipless.training.private_training import Epoch
from sweeper.backend.trainable import CliplessTrial
from sweeper.errors import TrialError
from sweeper.trials.stream import EpochRow

MOST = 16  # members, where a spec names no number


def stack_key(work: CliplessTrial) -> Hashable:
    """Return what trials of one stack have in common; ``None`` for a trial that is trained alone."""
    member = work.member()
    shape = None if member is None else shape_key(member)
    if shape is None:
        return None
    rows, micro_batch_size = work.stack_rows
    scored = work.scored_rows
    return shape, rows.x.data_ptr(), micro_batch_size, None if scored is None else scored.x.data_ptr()


def size_that_pays(work: CliplessTrial, there: int) -> int:
    """Return how many of the trials like this one that ``there`` are train quickest as one, measured on zeros."""
    member = work.member()
    return 1 if member is None or there < 2 else stack_size(member, work.stack_rows[0], most=min(there, MOST))


@dataclass(slots=True)
class _StackMember:
    """A member of the stack; ``held`` is the epoch that it resumes from and has not shown, 0 for none."""

    trial: str
    work: CliplessTrial
    held: int


class TrialStack:
    """Trials in training as one.

    Args:
        report: takes the row of a trial, or the error with which it failed.
    """

    def __init__(self, report: Callable[[str, EpochRow | Exception], None]) -> None:
        self._report = report
        self._stack: Stack | None = None
        self._epochs: Iterator[tuple[int, Epoch]] = iter(())
        self._places: dict[int, _StackMember | None] = {}

    def enter(self, trial: str, work: CliplessTrial) -> None:
        """Add a trial, which trains from the next round on; its private statistics are drawn now.

        Raises:
            CliplessError: it cannot be trained, or not in this stack, which stays as it was.
        """
        member = work.member()
        if member is None:
            raise ValueError(f"Expected a trial that stacks, got {trial}")
        if work.is_over:  # it would never say so, and its place would be waited for
            raise TrialError("the driver has its last epoch already")
        self._places[self._put(member, work)] = _StackMember(trial, work, work.held())

    def _put(self, member: Member, work: CliplessTrial) -> int:
        if self._stack is None:
            rows, micro_batch_size = work.stack_rows
            self._stack = fit_stack([member], rows, micro_batch_size=micro_batch_size, scored=work.scored_rows)
            self._epochs = iter(self._stack)
            return 0
        empty = [place for place, one in self._places.items() if one is None]
        if not empty:
            return self._stack.add(member)
        self._stack.refill(empty[0], member)
        return empty[0]

    def stop(self, trial: str) -> None:
        """Train a member no further."""
        for place, one in self._places.items():
            if self._stack is not None and one is not None and one.trial == trial:
                self._stack.stop(place)
                self._places[place] = None

    def round(self) -> None:
        """Train every member for an epoch, unless some resume with an epoch that the driver does not have.

        Raises:
            Exception: that of a step, which is no single member's.

        Guarantees:
            No member draws noise beyond the first epoch that nobody has reported.
        """
        resumed = {place for place, one in self._places.items() if one is not None and one.held}
        if resumed and self._advance(resumed):
            return
        self._advance({place for place, one in self._places.items() if one is not None})

    def _advance(self, expected: set[int]) -> int:
        """Train each of these places for an epoch; return how many rows they have reported."""
        rows = 0
        while expected:
            place, epoch = next(self._epochs)
            expected.discard(place)
            rows += self._take(place, epoch)
        return rows

    def _take(self, place: int, epoch: Epoch) -> int:
        one = self._places[place]
        if one is None:
            return 0
        one.held = 0
        try:
            row = one.work.epoch_row(epoch)
        except Exception as error:
            self.stop(one.trial)
            self._report(one.trial, error)
            return 1
        if row is not None:
            if row.done:
                self._places[place] = None  # the stack has emptied it
            self._report(one.trial, row)
        return int(row is not None)
