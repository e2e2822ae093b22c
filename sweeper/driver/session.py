"""Sessions: a caller proposes configurations, Sweeper trains each within the plan and the budget of one sweep.

    with sweeper.open("sweep.yaml") as session:
        while session.left:
            trained = session.train({"training.learning_rate": propose()})

The driver of a session is that of every sweep, in a thread of this process.
"""

import contextlib
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from sweeper.calls import called_by_users
from sweeper.driver import runner
from sweeper.driver.api import OPTIONS, in_notebook, with_display
from sweeper.driver.caller import TrainedTrial, TrialCaller
from sweeper.driver.options import Options
from sweeper.errors import RecordError, TrialError
from sweeper.planning.sources import AnySpec, as_called_spec
from sweeper.results.sweep import Sweep
from sweeper.store.manifest import MANIFEST_NAME
from sweeper.store.requests import ask_to_stop


class Session:
    """A sweep whose trials the caller proposes; made by `open`.

    Guarantees:
        A trial trains only within the sweep's plan: its number, its slot of the budget and what the ledger has room
        for. What is refused before it begins costs nothing.
    """

    def __init__(self, caller: TrialCaller, driver: threading.Thread, display: contextlib.ExitStack) -> None:
        self._caller, self._driver, self._display = caller, driver, display

    @property
    def sweep(self) -> Sweep:
        """The sweep as it is on the disk."""
        return Sweep(self._caller.folder)

    @property
    def left(self) -> int:
        """How many trials may still be proposed."""
        return self._caller.left

    @property
    def trained(self) -> list[TrainedTrial]:
        """The trials that have ended, those of earlier sessions included, in order."""
        return self._caller.results

    def __repr__(self) -> str:
        """Return what a terminal shows."""
        return f"a session with {self.left} trials left and {len(self.trained)} trained, in {self._caller.folder}"

    @called_by_users()
    def train(self, configuration: Mapping[str, object] | None = None) -> TrainedTrial:
        """Train a configuration, and return what that has shown.

        A configuration whose trial was interrupted, in an earlier session, goes on.

        Args:
            configuration: open hyperparameters by dotted name, as in ``search.first``; those you omit are sampled.

        Raises:
            SpecError: not values of the sweep's open hyperparameters.
            TrialError: no trial is left, or the sweep has ended: nothing is charged. Or the trial failed: the
                ledger has what it drew.
        """
        return self.train_all([configuration or {}])[0]

    @called_by_users()
    def train_all(self, configurations: Iterable[Mapping[str, object]]) -> list[TrainedTrial]:
        """Train configurations, as many at a time as there are places, and return what each has shown, in order.

        Args, raises: as `train`. Where one is refused, none is trained; where one fails, ``trained`` has the others.
        """
        proposals = self._caller.propose(configurations)
        found: list[TrainedTrial] = []
        failed: TrialError | None = None
        for proposal in proposals:
            try:
                found.append(self._caller.wait_for(proposal))
            except TrialError as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return found

    def close(self) -> Sweep:
        """Let trials that run come to their end, audit the front, write the report, and return the sweep.

        It can be opened again as long as trials are left; `sweeper.resume` lets the sweep's own search propose them.
        """
        self._caller.close()
        self._driver.join()
        self._display.close()
        return self.sweep

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it; after an error, trials that run are interrupted, and go on when the sweep is opened again."""
        if kind is not None:
            with contextlib.suppress(RecordError):  # closed below all the same
                ask_to_stop(self._caller.folder, driven=self._driver.is_alive())
                self._driver.join()
        self.close()


@called_by_users(OPTIONS)
def open(
    spec: AnySpec | Sweep, options: Options | None = None, *, trials: int | None = None, progress: bool | None = None
) -> Session:
    """Open a session: a sweep whose configurations the caller proposes.

    A spec begins a sweep; a `Sweep` or its folder goes on with one that was closed, interrupted or killed. Left out of
    the spec, ``search.rehearse`` and ``search.prior`` are off: nothing is trained that the caller has not proposed. Of
    a sweep that was begun otherwise, what was enqueued before, or stands in ``search.first``, is trained first.

    Args:
        spec: what to do, as for `sweeper.run`; or the sweep to go on with, or its folder.
        options: how to run it.
        trials: how many in all, those that ran included; as many as before, or as the spec says, by default.
        progress: whether to show how it stands; left out, in notebooks, where the caller's own lines stay apart.

    Raises:
        TrialError: a private selection, a sweep that rehearses, or a cluster.
        SpecError, RecordError, clipless.errors.DataError: as `sweeper.run` and `sweeper.resume`.
    """
    caller, folder, display = TrialCaller(), _folder(spec), contextlib.ExitStack()
    if folder is None:
        wanted = as_called_spec(spec, trials)  # type: ignore[arg-type]

    shows = in_notebook() if progress is None else progress
    given = display.enter_context(with_display(options or Options(), shows))

    def drive() -> None:
        try:
            if folder is None:
                runner.run_sweep(wanted, given, caller=caller)
            else:
                runner.resume_sweep(folder, given, trials=trials, caller=caller)
        except BaseException as error:
            caller.end(error)
        else:
            caller.end()

    driver = threading.Thread(target=drive, name="sweep", daemon=True)
    driver.start()
    try:
        caller.wait_for_start()
    except BaseException:
        display.close()
        raise
    return Session(caller, driver, display)


def _folder(spec: AnySpec | Sweep) -> Path | None:
    """Return the folder of the sweep to go on with, ``None`` for a spec."""
    if isinstance(spec, Sweep):
        return spec.directory
    is_folder = isinstance(spec, str | Path) and (Path(spec) / MANIFEST_NAME).is_file()
    return Path(spec) if is_folder else None  # type: ignore[arg-type]
