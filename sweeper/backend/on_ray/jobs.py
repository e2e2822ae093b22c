"""Drivers as jobs of a Ray cluster: they run on its head, and continue when the client that submitted them has left.

The head needs this package installed, and sees the sweeps' folders under the same paths as the client. Ray is
imported when it is first used: that takes seconds.
"""

import shlex
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sweeper.errors import SweeperError, one_line

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

    from sweeper.backend.interruption import Interruption

INSIDE = "auto"  # how a driver that is a job names the cluster it runs on
STOP_SECONDS = 600  # for a driver that has to stop to end its epochs and write the front
LOOK_SECONDS = 1.0
ANSWER_SECONDS = 20.0  # for the job server to answer
FORGET_SECONDS = 2.0  # how long an answer about a job is good for
SILENT_SECONDS = 20.0  # how long a head that did not answer is not asked about any job
_PROGRAM = "from sweeper.cli.main import main; main()"
_ENVIRONMENT = {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS)}}
_UNKNOWN_JOB = "does not exist"
_TAKEN = "already exists"


def is_job_server(address: str | None) -> bool:
    """Whether an address is that of a cluster's job server, ``http://HOST:8265``, not of the cluster itself."""
    return address is not None and address.startswith(("http://", "https://"))


class RayJobLauncher:
    """Starts drivers as jobs; a launcher as the service wants one."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._made: JobSubmissionClient | None = None
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, bool]] = {}
        self._silent_until = 0.0
        self._away = False
        self._unanswered: dict[tuple[str, ...], str] = {}

    def start(self, arguments: Sequence[str], folder: Path, *, runtime: dict[str, Any] | None = None) -> str:
        """Start ``sweeper ARGUMENTS`` on the cluster and return the job's name.

        A ``--cluster`` among the arguments becomes the cluster that the job runs on; ``runtime`` is more of Ray's
        ``runtime_env``.

        Raises:
            SweeperError: the job server cannot be reached, or does not take it.

        Guarantees:
            Tried again after such an error, it is the same job: one that was taken, though the answer was lost, is not
            started twice.
        """
        asked = (str(folder), *arguments)
        job = self._unanswered.setdefault(asked, f"{folder.name}-{uuid4().hex[:8]}")
        command = shlex.join(["python", "-c", _PROGRAM, *_with_cluster_inside(arguments)])
        try:
            self._client().submit_job(entrypoint=command, submission_id=job, runtime_env=_ENVIRONMENT | (runtime or {}))
        except Exception as error:
            if _TAKEN not in str(error):
                self._away = True
                raise self._unreachable(error) from error
        self._away = False
        del self._unanswered[asked]
        return job

    def is_alive(self, job: str) -> bool:
        """Return whether a driver has not ended; as long as the cluster's head does not answer, it may not have."""
        now = time.monotonic()
        asked, alive = self._known.get(job, (now - FORGET_SECONDS, True))
        if not alive or now - asked < FORGET_SECONDS or now < self._silent_until:
            return alive
        try:
            alive = not self._client().get_job_status(job).is_terminal()
        except Exception as error:
            alive = _UNKNOWN_JOB not in str(error)  # a head that was started again knows no job of before
            self._away = alive
            self._silent_until = time.monotonic() + SILENT_SECONDS if alive else 0.0
        else:
            self._away = False
        self._known[job] = (time.monotonic(), alive)
        return alive

    def is_away(self) -> bool:
        """Return whether the cluster's head did not answer, or took no job, when it was last asked."""
        return self._away

    def log(self, job: str) -> str:
        """Return what a driver has written so far, empty if that is not known."""
        try:
            return str(self._client().get_job_logs(job))
        except Exception:
            return ""

    def has_succeeded(self, job: str) -> bool:
        """Whether a driver has ended well."""
        try:
            return str(self._client().get_job_status(job).value) == "SUCCEEDED"
        except Exception:
            return False

    def kill(self, job: str) -> None:
        """Tell a driver to stop; one that is gone, or out of reach, is no error."""
        try:
            self._client().stop_job(job)
        except Exception:
            return

    def _client(self) -> "JobSubmissionClient":
        with self._lock:
            if self._made is None:
                from ray.job_submission import JobSubmissionClient

                class Client(JobSubmissionClient):
                    """Does not wait for ever for a machine that is gone."""

                    def _do_request(self, *given: Any, **more: Any) -> Any:
                        return super()._do_request(*given, **{"timeout": ANSWER_SECONDS, **more})

                self._made = Client(self._address)
            return self._made

    def _unreachable(self, error: Exception) -> SweeperError:
        return SweeperError(
            f"Cannot submit to the Ray cluster at {self._address}: {one_line(error)}; is its head running, with "
            "ray[default], and does RAY_AUTH_TOKEN_PATH name its token?"
        )


def run_as_job(
    name: str,
    spec: str,
    address: str,
    arguments: Sequence[str],
    say: Callable[[str], None],
    interruption: "Interruption",
) -> bool:
    """Run a sweep as a job of a cluster, say what it says until it has ended, and return whether it ended well.

    ``spec`` is the text of a spec, and ``name`` that of its sweep; files that it names must be where they are here on
    the cluster's nodes too. An interruption stops the driver, whose end is waited for.

    Raises:
        SweeperError: the job server cannot be reached, or does not take it.
        KeyboardInterrupt: on a second Ctrl-C; the driver goes on to stop.
    """
    launcher = RayJobLauncher(address)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "spec.yaml").write_text(spec, encoding="utf-8")
        job = launcher.start(["run", "spec.yaml", *arguments], Path(name), runtime={"working_dir": folder})
    say(f"job {job} at {address}\n")
    shown, is_stopping = 0, False
    while launcher.is_alive(job):
        if interruption.requested and not is_stopping:
            is_stopping = True
            launcher.kill(job)
        time.sleep(LOOK_SECONDS)
        shown = _show_new(launcher.log(job), shown, say)
    _show_new(launcher.log(job), shown, say)
    return launcher.has_succeeded(job)


def _show_new(text: str, shown: int, say: Callable[[str], None]) -> int:
    if len(text) > shown:
        say(text[shown:])
    return max(shown, len(text))


def _with_cluster_inside(arguments: Sequence[str]) -> list[str]:
    inside, given = list(arguments), "--cluster" in arguments
    if given:
        inside[inside.index("--cluster") + 1] = INSIDE
    elif inside[0] == "run":
        inside += ["--cluster", INSIDE]
    return inside
