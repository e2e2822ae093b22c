"""Processes of fuzzed sweeps: forked from one that has imported what they need, watched, and killed."""

import faulthandler
import importlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LONGEST_SECONDS = 300.0  # that a step may take before it counts as one that hangs
POLL_SECONDS = 0.02


def in_child(work: Callable[[], Any], place: Path, kills_worker: bool = False) -> Any:
    """Return what a function returns in a forked process, or how that process ended."""
    answer = place / "answer.json"
    answer.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        _be_child(work, place, answer)
    until, status = time.monotonic() + LONGEST_SECONDS, None
    while status is None:
        pid, code = os.waitpid(child, os.WNOHANG)
        if pid:
            status = code
        elif time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return {"kind": "hung", "text": _tail(place / "hung.txt", 6000), "asked": []}
        else:
            kills_worker = kills_worker and not _kill_worker(child, place)
            time.sleep(POLL_SECONDS)
    if os.WIFSIGNALED(status):
        return {"kind": "killed", "text": str(os.WTERMSIG(status)), "asked": []}
    if not answer.exists():
        return {"kind": "fault", "text": f"exit code {status}: {_tail(place / 'said.txt')}", "asked": []}
    return json.loads(answer.read_text(encoding="utf-8"))


def _be_child(work: Callable[[], Any], place: Path, answer: Path) -> None:
    """Do the work in this forked process, and end it."""
    code = 0
    try:
        said = os.open(place / "said.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(said, 1)
        os.dup2(said, 2)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        with (place / "hung.txt").open("w") as hung:
            faulthandler.dump_traceback_later(LONGEST_SECONDS - 5.0, file=hung)
            found = work()
            faulthandler.cancel_dump_traceback_later()
        answer.write_text(json.dumps(found), encoding="utf-8")
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        code = 3
    finally:
        os._exit(code)


def _kill_worker(driver: int, place: Path) -> bool:
    """Kill a training process of a driver once noise was drawn; return whether one was."""
    if b'"draw"' not in ledger_of(place):
        return False
    from kills import _descendants

    workers = [pid for pid in _descendants(driver, "fork_server") if not _descendants(pid, "fork_server")]
    for pid in workers[:1]:
        os.kill(pid, signal.SIGKILL)
    return bool(workers)


def _tail(path: Path, length: int = 1500) -> str:
    return path.read_text(errors="replace")[-length:] if path.exists() else ""


def ledger_of(place: Path) -> bytes:
    """Return the lines of the ledger of the one sweep in a place, wherever it lies."""
    found = sorted((place / "out").glob("*/ledger.jsonl"), reverse=True)  # hidden folders last
    return found[0].read_bytes() if found else b""


def prepare(root: Path) -> None:
    """Import what sweeps need, install the plug-ins, and make an empty store to copy."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    sys.path[:0] = [str(HERE)] * (str(HERE) not in sys.path)
    from _fuzz_data import install

    install(root / "plugins")
    place = root / "first"
    place.mkdir()
    store = root / "mlflow.db"

    def first() -> dict[str, Any]:
        """Run one sweep, for the modules that it imports; an empty store is what MLflow makes first."""
        import mlflow

        from sweeper.tracking.store import prepare_mlflow

        prepare_mlflow()
        mlflow.MlflowClient(tracking_uri=f"sqlite:///{store}").search_experiments()
        import optuna  # noqa: F401  # and what else takes long

        return {"kind": "ended", "text": "", "asked": []}

    in_child(first, place)
    if store.exists():
        os.environ["FUZZ_STORE"] = str(store)
    _import_all()


def _import_all() -> None:
    """Import what forked processes would each import again."""
    sys.path[:0] = [str(HERE.parent)] * (str(HERE.parent) not in sys.path)

    for name in (
        "_fuzz_checks",
        "_fuzz_runs",
        "_fuzz_views",
        "mlflow.store.tracking.sqlalchemy_store",
        "optuna.samplers",
        "sklearn.datasets",
        "scipy.stats",
        "sweeper.cli.main",
        "sweeper.audits.sweep_audit",
        "sweeper.search.samplers",
        "sweeper.schedulers.hyperband",
        "sweeper.backend.workers.worker",
        "sweeper.backend.workers.pool",
        "sweeper.trials.trial",
        "sweeper.privacy.ledger",
        "sweeper.results.models.registry",
        "clipless.stacks",
        "clipless.attacks",
        "clipless.privacy.accounting.claim",
        "clipless.privacy.accounting.domination",
        "clipless.privacy.accounting.selection_composed",
        "anyio._backends._asyncio",
        "dashboards.pages.report",
        "mlflow.store.artifact.local_artifact_repo",
        "mlflow.pyfunc",
        "plotly.graph_objs",
        "pydantic.v1",
        "sqlalchemy.dialects.sqlite",
        "tests.sweeper.in_process",
    ):
        importlib.import_module(name)
    import plotly.graph_objs

    for name in plotly.graph_objs.__all__:
        getattr(plotly.graph_objs, name)
