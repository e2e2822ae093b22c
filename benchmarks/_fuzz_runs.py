"""What happens to a fuzzed sweep: it is run, killed, interrupted, stopped, resumed, extended, deleted.

Trials train in a thread of the driver's process, so that a sweep takes about a second, and every write to the disk
passes by a `Clock`, which ends the process, or asks something of the driver, at the write that the case names. A few
sweeps train in worker processes of their own, of which one is killed.
"""

import contextlib
import io
import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from _fuzz_specs import Case
from torch import Tensor

from clipless.errors import CliplessError
from clipless.privacy.randomness import RandomSource, SecureSource
from sweeper.backend.trainable import CliplessTrial
from sweeper.driver import driver, finished
from sweeper.driver.options import Options
from sweeper.driver.runner import resume_sweep, run_sweep
from sweeper.driver.selection import selection_run
from sweeper.driver.selection.private_run import SelectionWaitsError
from sweeper.errors import SpecError, SweeperError
from sweeper.results.housekeeping import delete_sweep
from sweeper.results.notes import add_note
from sweeper.specification.spec import Spec
from sweeper.store import jsonl
from sweeper.store.requests import ask_to_stop, enqueue, steer
from sweeper.store.sweep_folder import HIDDEN
from sweeper.tracking.outbox import Undelivered

REPOSITORY = Path(__file__).resolve().parents[1]
LONGEST_SENTENCE = 1000
NOISE = "FUZZ_NOISE"  # names the folder in which draws are counted


@dataclass(frozen=True)
class Outcome:
    """How a step ended.

    Attributes:
        kind: ``ended``, ``refused``, ``interrupted``, ``killed``, ``skipped`` or ``fault``.
        text: what was said.
        asked: what was asked of the driver, and how that went.
    """

    kind: str
    text: str = ""
    asked: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"kind": self.kind, "text": self.text, "asked": list(self.asked)}


class LoggedSource(SecureSource):  # type: ignore[misc]  # final for users: a subclass could be seeded
    """A secure source that writes a letter before each draw: of a step, a count, or a release of something else."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def normal(self, count: int, device: torch.device | str = "cpu") -> Tensor:
        """Count the draw, and draw."""
        os.write(self._file, b"." if count > 1 else b"c")
        return super().normal(count, device)

    def noise(self, count: int, std: float, step: float, device: torch.device | str = "cpu") -> Tensor:
        """Count the release, and draw."""
        os.write(self._file, b"r")
        return (super().normal(count, device).double() * (std / step)).round_() * step


class LoggedTrial(CliplessTrial):
    """A trial whose noise is counted."""

    def source(self) -> RandomSource:
        """Return a source that counts its draws under the trial's name."""
        return LoggedSource(Path(os.environ[NOISE]) / str(self._config["trial"]))


class Nobody:
    """Stands for a tracker whose store takes everything."""

    def __init__(self, *_args: object, **_options: object) -> None:
        self.destination, self.refused = SimpleNamespace(uri="nowhere", sweep="x"), ()

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_args, **_options: None

    def close(self, *_args: object, **_options: object) -> Undelivered:
        """Have delivered everything."""
        return Undelivered()


class Clock:
    """Counts writes to the disk, and does at some of them what was planned."""

    def __init__(self, out: Path, step: dict[str, Any]) -> None:
        self._out, self._writes, self._busy = out, 0, False
        self._ends: dict[str, Any] = step.get("ends", {})
        self._asks: list[dict[str, Any]] = list(step.get("asks", []))
        self.asked: list[str] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Count the writes of the rows and of the whole files of this process."""
        row, whole = jsonl._write_at, Path.replace

        def write_row(handle: int, data: bytes, offset: int) -> None:
            torn = self._tick() == "torn"
            row(handle, data[: data.index(b"\n") // 2] if torn else data, offset)
            self._tock(torn=torn)

        def replace(path: Path, target: Any) -> Path:
            self._tick()
            moved = whole(path, target)
            self._tock()
            return moved

        with mock.patch.object(jsonl, "_write_at", write_row), mock.patch.object(Path, "replace", replace):
            yield

    def _tick(self) -> str:
        """Count a write that is about to happen; return how this process ends at it."""
        self._writes += not self._busy
        if self._busy or self._writes != self._ends.get("write"):
            return ""
        kind = str(self._ends["kind"])
        if kind == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        return kind

    def _tock(self, *, torn: bool = False) -> None:
        if self._busy:
            return
        if torn or (self._writes == self._ends.get("write") and self._ends["kind"] in ("after", "torn")):
            os.kill(os.getpid(), signal.SIGKILL)
        self._busy = True
        try:
            if self._writes == self._ends.get("write"):
                self._end(str(self._ends["kind"]))
            for ask in [one for one in self._asks if one["write"] <= self._writes]:
                self._ask(ask)
        finally:
            self._busy = False

    def _end(self, kind: str) -> None:
        if kind == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        elif kind == "stop":
            for folder in sweeps_in(self._out):
                ask_to_stop(folder, driven=True)

    def _ask(self, ask: dict[str, Any]) -> None:
        for folder in sweeps_in(self._out):
            self._asks.remove(ask)
            try:
                ASKS[ask["what"]](folder)
                self.asked.append(ask["what"])
            except SweeperError as error:
                self.asked.append(f"{ask['what']}: {error}")


def _stop_trial(folder: Path) -> None:
    ask_to_stop(folder, "t0001", driven=True)


ASKS: dict[str, Callable[[Path], object]] = {
    "enqueue": lambda folder: enqueue(folder, {"training.learning_rate": 0.03}),
    "steer": lambda folder: steer(folder, ["accuracy >= 0.5"]),
    "stop trial": _stop_trial,
    "note": lambda folder: add_note(folder, "t0001", "looked at"),
}


def sweeps_in(out: Path) -> list[Path]:
    """Return the folders of sweeps that may be seen, oldest first."""
    return [file.parent for file in sorted(out.glob("*/sweep.json")) if not file.parent.name.startswith(HIDDEN)]


def resumable(out: Path) -> Path | None:
    """Return the folder of the one sweep there is, that of a private selection only if nothing has left it."""
    found = [*sweeps_in(out), *(file.parent for file in sorted(out.glob(f"{HIDDEN}*/sweep.json")))]
    return found[0] if found else None


@contextlib.contextmanager
def stage(case: Case, step: dict[str, Any]) -> Iterator[None]:
    """Let the product run inside this process, without a report and a store where the case has none."""
    sys.path[:0] = [str(REPOSITORY)] * (str(REPOSITORY) not in sys.path)  # beside the tests of the product
    from tests.sweeper.in_process import trained_in_process

    with contextlib.ExitStack() as stack:
        if step.get("how") != "workers":
            stack.enter_context(trained_in_process())
            stack.enter_context(mock.patch.object(driver, "CliplessTrial", LoggedTrial))
            stack.enter_context(mock.patch.object(selection_run, "CliplessTrial", LoggedTrial))
        stack.enter_context(mock.patch.object(driver, "SHOW_SECONDS", 0.02))
        stack.enter_context(mock.patch("sweeper.cli.commands.running.start_ahead"))
        if not case.tracked:
            stack.enter_context(mock.patch.object(driver, "Tracker", Nobody))
            stack.enter_context(mock.patch.object(finished, "exporter"))
        yield


def perform(case: Case, place: Path, step: dict[str, Any]) -> Outcome:
    """Do one step of a case in this process, and return how it ended."""
    out = place / "out"
    (place / "noise").mkdir(exist_ok=True)
    clock = Clock(out, step)
    try:
        with mock.patch.dict(os.environ, {NOISE: str(place / "noise")}), stage(case, step), clock.running():
            said = STEPS[step["do"]](place, step)
        return Outcome("ended", said, tuple(clock.asked))
    except NothingThereError as reason:
        return Outcome("skipped", str(reason))
    except (KeyboardInterrupt, SelectionWaitsError):
        return Outcome("interrupted", asked=tuple(clock.asked))
    except (SweeperError, CliplessError) as error:
        return Outcome("refused", _sentence(error), tuple(clock.asked))
    except BaseException:  # whatever else leaves the product is a fault of it
        return Outcome("fault", traceback.format_exc())


class NothingThereError(Exception):
    """There is nothing to do this with."""


def _sentence(error: Exception) -> str:
    """Return what a user is told, with what is wrong about that."""
    mistakes = error.mistakes if isinstance(error, SpecError) else (str(error),)
    odd = [text for text in mistakes if "\n" in text.strip() or not text.strip() or len(text) > LONGEST_SENTENCE]
    return f"{type(error).__name__}: {' | '.join(mistakes)}" + (f" [NO SENTENCE: {odd}]" if odd else "")


def _run(place: Path, step: dict[str, Any]) -> str:
    if step.get("how") == "program":
        return call_program(["run", str(place / "spec.yaml"), "--out", str(place / "out")])
    options = Options(out=place / "out")
    return _said(run_sweep(Spec.from_yaml(place / "spec.yaml"), options))


def _resume(place: Path, step: dict[str, Any]) -> str:
    del step
    folder = resumable(place / "out")
    if folder is None:
        raise NothingThereError("no sweep had begun")
    return _said(resume_sweep(folder))


def _extend(place: Path, step: dict[str, Any]) -> str:
    folder = _seen(place)
    trials = Spec.from_mapping(_manifest(folder)["spec"], str(place / "spec.yaml")).trials
    return _said(resume_sweep(folder, trials=trials + int(step["more"])))


def _enqueue(place: Path, step: dict[str, Any]) -> str:
    return str(enqueue(_seen(place), step["values"]))


def _delete(place: Path, step: dict[str, Any]) -> str:
    return str(delete_sweep(_seen(place), forget=step["forget"]).kept)


def _check(place: Path, step: dict[str, Any]) -> str:
    del step
    return call_program(["check", str(place / "spec.yaml"), "--no-estimate"])


STEPS: dict[str, Callable[[Path, dict[str, Any]], str]] = {
    "run": _run,
    "resume": _resume,
    "extend": _extend,
    "enqueue": _enqueue,
    "delete": _delete,
    "check": _check,
}


def _seen(place: Path) -> Path:
    found = sweeps_in(place / "out")
    if not found:
        raise NothingThereError("no sweep that may be seen")
    return found[0]


def _manifest(folder: Path) -> dict[str, Any]:
    return jsonl.read_object(folder / "sweep.json")


def _said(done: finished.FinishedSweep) -> str:
    return " | ".join([done.outcome.in_words(), *done.troubles])


class ProgramError(SweeperError):
    """The program ended with its code for errors of users, and this sentence."""


def call_program(arguments: list[str]) -> str:
    """Call the command line, and return what it said."""
    from sweeper.cli import main as program

    said, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
        try:
            with mock.patch.object(program, "leave", sys.exit):
                program.main(arguments)
            code: Any = 0
        except SystemExit as ended:
            code = ended.code
    if code == program.EXIT_USER_ERROR:
        raise ProgramError(errors.getvalue().strip().removeprefix("sweeper: ").replace("\n  ", " | "))
    if code not in (0, None):
        if code == 130:
            raise KeyboardInterrupt
        raise RuntimeError(f"exit code {code} of {arguments[0]}: {errors.getvalue()}")
    return said.getvalue()


def drawn(place: Path) -> dict[str, Counter[str]]:
    """Return how often each trial has drawn noise: ``.`` of steps, ``c`` of counts, ``r`` of other releases."""
    return {file.name: Counter(file.read_text()) for file in (place / "noise").iterdir()}
