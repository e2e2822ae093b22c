"""Does any request make an internal error? Generated requests to every operation of the service, valid and not.

    python benchmarks/service_fuzz.py [--examples 300]

Runs in this process, without a port and without drivers, on two imagined sweeps. Prints how often each status was
answered by operation, and ends with 1 at an internal error, or at an error of another shape than problem+json.
"""

import argparse
import contextlib
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

READ, CHANGED = "digits-20250301-090807", "digits-20250301-090807-2"  # what is read has ended, and stays so
SHAPE = {"type", "title", "status", "detail", "request_id"}


class Idle:
    """A launcher that starts nothing."""

    def start(self, arguments: Any, folder: Path) -> str:
        """Return a job that has ended."""
        del arguments, folder
        return "none"

    def is_alive(self, job: str) -> bool:
        """No driver is."""
        del job
        return False

    def is_away(self) -> bool:
        """It is here."""
        return False

    def kill(self, job: str) -> None:
        """Leave it."""
        del job


def main() -> None:
    """Print the table."""
    from large_store import write

    from sweeper.service import app as service
    from sweeper.service.responses import exports
    from sweeper.service.settings import Limits, ServiceSettings

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=300)
    options = parser.parse_args()
    service.mount_pages = lambda *_: []  # the API alone
    exports.exporter = lambda _: drawn
    with tempfile.TemporaryDirectory() as parent:
        for name in (READ, CHANGED):
            write(Path(parent) / name, 20, 3)
        limits = Limits(requests_per_second=0, queued=10**6)
        found = fuzz(service.create_app(ServiceSettings(out=Path(parent), limits=limits), Idle()), options.examples)
    print("| operation | status | answers |\n|---|---|---|")
    for (operation, status), count in sorted(found.items()):
        print(f"| {operation} | {status} | {count} |")
    print(f"\n{found.total()} requests, {sum(n for (_, status), n in found.items() if status >= 500)} internal errors")


def drawn(_: Path, path: Path, figure: str | None = None) -> Path:
    """Stand in for a browser."""
    del figure
    path.write_bytes(b"drawn")
    return path


def fuzz(app: Any, examples: int) -> "Counter[tuple[str, int]]":
    """Call every operation so many times with valid and with invalid requests, and count the answers.

    Raises:
        SystemExit: an internal error, or an error of another shape.
    """
    schema = schemathesis.openapi.from_dict(app.openapi())
    schema.app = app
    answers: Counter[tuple[str, int]] = Counter()
    for found in schema.get_all_operations():
        operation = found.ok()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            call = _caller(operation.as_strategy(generation_mode=mode), operation.label, examples, answers)
            with contextlib.suppress(Unsatisfiable):  # an operation without parameters has no wrong ones
                call()
    return answers


def _caller(strategy: Any, label: str, examples: int, answers: "Counter[tuple[str, int]]") -> Callable[[], None]:
    @settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def call(case: Any) -> None:
        named = case.path_parameters
        if isinstance(named, dict) and "sweep" in named and answers.total() % 4:
            named["sweep"] = READ if case.method.upper() == "GET" else CHANGED
        answer = case.call(base_url="http://127.0.0.1", headers={"Host": "127.0.0.1"})
        answers[label, answer.status_code] += 1
        check(label, answer)

    return call


def check(label: str, answer: Any) -> None:
    """End the program at an answer that must not be."""
    if answer.status_code >= 500 or (answer.status_code >= 400 and set(answer.json()) != SHAPE):
        sys.exit(f"{label}: {answer.status_code} {answer.text[:500]}")


if __name__ == "__main__":
    main()
