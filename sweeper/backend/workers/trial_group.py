"""The trials of one worker process, of which those of one shape are trained as one, and the others one at a time.

A trial is *waiting* until its plan is answered and it has said that it will draw noise; then it is *training*. Rows are
those that a lone trial reports, in the same order: whether a trial is trained in a stack shows in none of them.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from clipless.training.memory import is_out_of_memory
from sweeper.backend.trainable import CliplessTrial, PlacedConstants, end_if_lost
from sweeper.backend.trial_states import TrialStart
from sweeper.backend.workers.messages import Assignment, Failure, TrialReport
from sweeper.backend.workers.stacking import TrialStack, size_that_pays, stack_key
from sweeper.trials.stream import EpochRow, PlanRow, TrialRow


@dataclass(slots=True, eq=False)
class _Trial:
    """A trial of this process.

    Attributes:
        work: trains it.
        is_announced: whether it has said that it will draw noise.
        key: of the stacks it fits into, ``None`` for none.
    """

    work: CliplessTrial
    is_announced: bool = False
    key: Hashable = None


class TrialGroup:
    """Trains what the driver orders, a round at a time: one epoch of every trial that is training.

    It has more than fifteen methods because each way from one state of a trial to another is one.

    Args:
        kind: of the trials.
        constants: what every configuration holds.
        most: how many trials are trained as one; ``None`` for as many as pay.
    """

    def __init__(self, kind: type[CliplessTrial], constants: PlacedConstants, most: int | None = 1) -> None:
        self._kind, self._constants, self._most = kind, constants, most
        self._caps: dict[Hashable, int] = {}  # of stacks that ran out of memory
        self._size = most or 1  # of the stack that is formed next, or trains
        self._more = 0  # trials that the driver could give beyond those that are here
        self._waiting: dict[str, _Trial] = {}
        self._training: dict[str, _Trial] = {}
        self._stack: TrialStack | None = None
        self._reports: list[TrialReport] = []

    @property
    def free(self) -> int:
        """How many more trials it can take."""
        is_alone = bool(self._training) and self._stack is None
        return 0 if is_alone else max(0, self._size - len(self._waiting) - len(self._training))

    def follow(self, assignment: Assignment) -> list[TrialReport]:
        """Do what the driver assigns, and return what it has to hear before anything more is drawn."""
        self._reports, self._more = [], assignment.more
        for trial in assignment.stopped:
            self._stop(trial)
        for start in assignment.trials:
            self._begin(start)
        self._announce()
        if not self._reports:
            self._round()
        return self._reports

    def _begin(self, start: TrialStart) -> None:
        trial = start["trial"]
        try:
            one = self._waiting[trial] = self._make(start)
            self._tell(trial, one, one.work.step())
            one.key = None if self._most == 1 else stack_key(one.work)
        except Exception as error:
            self._fail(trial, error)

    def _make(self, start: TrialStart) -> _Trial:
        made = _Trial(self._kind.__new__(self._kind))
        made.work.setup({**self._constants, **start})
        return made

    def _announce(self) -> None:
        """Tell of the first draws of those that train next and have not said so."""
        for trial, one in self._next():
            if not one.is_announced:
                one.is_announced = True
                self._step(trial, one)

    def _next(self) -> list[tuple[str, _Trial]]:
        """Return the waiting trials that train from the next round on."""
        waiting, training = list(self._waiting.items()), list(self._training.values())
        if not waiting or (training and self._stack is None):
            return []
        first = next(((trial, one) for trial, one in waiting if one.is_announced), waiting[0])
        leader = training[0] if training else first[1]  # who has announced its draws is in the next round: it leads
        self._size = self._size_for(leader)
        if leader.key is None or self._size == 1:
            return [] if training else [first]
        return [(trial, one) for trial, one in waiting if one.key == leader.key][: self._size - len(training)]

    def _size_for(self, one: _Trial) -> int:
        if one.key is None:
            return 1
        here = [*self._waiting.values(), *self._training.values()]
        there = self._more + sum(other.key == one.key for other in here)
        try:
            most = size_that_pays(one.work, there) if self._most is None else self._most
        except Exception:  # trained alone, it says itself what is wrong with it
            one.key = None
            return 1
        return min(most, self._caps.get(one.key, most))

    def _round(self) -> None:
        entering = [(trial, one) for trial, one in self._waiting.items() if one.is_announced]
        for trial, _ in entering:
            self._training[trial] = self._waiting.pop(trial)
        if self._stack is None and any(one.key is not None for _, one in entering):
            self._stack = TrialStack(self._take)  # also for one: its step is quicker than that of a training alone
        if self._stack is None:
            for trial, one in list(self._training.items()):
                self._step(trial, one)
        else:
            self._train(self._stack, entering)

    def _train(self, stack: TrialStack, entering: list[tuple[str, _Trial]]) -> None:
        for trial, one in entering:
            try:
                stack.enter(trial, one.work)
            except Exception as error:
                if is_out_of_memory(error):
                    self._dissolve(error)
                    return
                self._fail(trial, error)
        try:
            stack.round()
        except Exception as error:
            self._dissolve(error)
        if not self._training:
            self._stack = None

    def _dissolve(self, error: Exception) -> None:
        """Begin the trials of a stack again: with half as many where memory ran out, otherwise each alone."""
        end_if_lost(error)
        self._stack = None
        trials, self._training = self._training, {}
        for trial, one in trials.items():
            if is_out_of_memory(error) and len(trials) > 1:
                self._caps[one.key] = len(trials) // 2
            else:  # alone, it takes smaller passes where memory runs out
                one.key = None
            self._waiting[trial] = one
            try:
                self._tell(trial, one, one.work.begin_again())
            except Exception as another:
                self._fail(trial, another)

    def _step(self, trial: str, one: _Trial) -> None:
        try:
            self._tell(trial, one, one.work.step())
        except Exception as error:
            self._fail(trial, error)

    def _take(self, trial: str, row: EpochRow | Exception) -> None:
        """Take what a stack tells."""
        if isinstance(row, Exception):
            self._fail(trial, row)
        else:
            self._tell(trial, self._training[trial], row)

    def _tell(self, trial: str, one: _Trial, row: TrialRow) -> None:
        self._reports.append((trial, row))
        if isinstance(row, PlanRow):
            one.is_announced = False
            self._waiting[trial] = self._training.pop(trial, one)  # from training: it begins again, smaller
        elif isinstance(row, EpochRow) and row.done:
            self._drop(trial)

    def _fail(self, trial: str, error: Exception) -> None:
        end_if_lost(error)
        self._drop(trial)
        self._reports.append((trial, Failure.of(error)))

    def _stop(self, trial: str) -> None:
        if self._stack is not None:
            self._stack.stop(trial)
        self._drop(trial)
        if not self._training:
            self._stack = None

    def _drop(self, trial: str) -> None:
        one = self._waiting.pop(trial, None) or self._training.pop(trial, None)
        if one is not None:
            one.work.cleanup()
