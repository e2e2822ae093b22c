"""Does any request make an internal error, or do what its sender may not? Generated requests to every operation.

    python benchmarks/service_fuzz.py [--examples 300]

Runs in this process, without a port and without drivers, on two imagined sweeps. Prints how often each status was
answered by operation, to valid requests and others of somebody who may do everything; then the same by visitor: those
without a token, with one that is not or no longer known, readers, and browsers without the key of their forms. Ends
with 1 at an internal error, at an answer that its schema does not allow, at an error of another shape than
problem+json, and where somebody is answered who may not ask, is refused who may, or leaves a trace in the folder of
sweeps.
"""

import argparse
import contextlib
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import response_schema_conformance

READ, CHANGED = "digits-20250301-090807", "digits-20250301-090807-2"  # what is read has ended, and stays so
SHAPE = {"type", "title", "status", "detail", "request_id"}


@dataclass(frozen=True)
class Visitor:
    """Somebody who asks.

    Attributes:
        headers: what they show.
        reads: whether they may read.
        writes: whether they may change something.
    """

    headers: Mapping[str, str]
    reads: bool = False
    writes: bool = False

    def may(self, method: str) -> bool:
        """Whether they may send a request of this method."""
        return self.reads if method.upper() == "GET" else self.writes


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
        alone, guarded, tokens = Path(parent) / "alone", Path(parent) / "guarded", Path(parent) / "tokens.json"
        for folder in (alone, guarded):
            folder.mkdir()
            for name in (READ, CHANGED):
                write(folder / name, 20, 3)
        limits, known = Limits(requests_per_second=0, queued=10**6), visitors(tokens)
        found = fuzz(service.create_app(ServiceSettings(out=alone, limits=limits), Idle()), options.examples)
        settings_ = ServiceSettings(out=guarded, tokens=tokens, limits=limits)
        answered = trespass(service.create_app(settings_, Idle()), known, guarded, max(1, options.examples // 10))
    print_table("operation", found)
    print_table("visitor", answered)
    print(
        f"\n{found.total()} requests and {answered.total()} of visitors, no internal error, nothing beyond their rights"
    )


def print_table(what: str, found: "Counter[tuple[str, int]]") -> None:
    """Print how often each status was answered."""
    print(f"\n| {what} | status | answers |\n|---|---|---|")
    for (name, status), answers in sorted(found.items()):
        print(f"| {name} | {status} | {answers} |")


def drawn(_: Path, path: Path, *_arguments: object, **_options: object) -> Path:
    """Stand in for a browser."""
    path.write_bytes(b'{"figure": "drawn", "rows": []}')
    return path


def visitors(path: Path) -> Mapping[str, Visitor]:
    """Return everybody who may ask, with tokens that are written to a file of tokens."""
    from sweeper.service.security.access import COOKIE, FORM_KEY, make_cookie, read_cookie
    from sweeper.service.security.tokens import KnownTokens, Role, make_token, revoke_token

    reader, writer, gone = (make_token(path, role, 1, "client") for role in (Role.READ, Role.WRITE, Role.WRITE))
    revoke_token(path, gone.split("_")[1])
    tokens = KnownTokens(path)

    def bearer(token: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {token}"}

    def signed_in(token: str, role: Role) -> tuple[dict[str, str], str]:
        holder = tokens.find(token)
        assert holder is not None
        value = make_cookie(tokens, replace(holder, role=role))
        seen = read_cookie(tokens, value)
        return {"Cookie": f"{COOKIE}={value}"}, "" if seen is None else seen.form_key

    reading, none = signed_in(reader, Role.WRITE)
    only_reading, no_key = signed_in(writer, Role.READ)
    writing, key = signed_in(writer, Role.WRITE)
    assert (bool(key), none, no_key) == (True, "", "")
    return {
        "nobody": Visitor({}),
        "a token that is none": Visitor(bearer(writer[:-1] + ("A" if writer[-1] != "A" else "B"))),
        "a token that was taken back": Visitor(bearer(gone)),
        "another scheme": Visitor({"Authorization": f"Basic {writer}"}),
        "a forged cookie": Visitor({"Cookie": writing["Cookie"] + "x", FORM_KEY: key}),
        "a reader": Visitor(bearer(reader), reads=True),
        "a reader's browser": Visitor({**reading, FORM_KEY: key}, reads=True),
        "a writer's browser that only reads": Visitor({**only_reading, FORM_KEY: key}, reads=True),
        "a writer's browser without the key": Visitor(writing, reads=True),
        "a writer's browser with another key": Visitor({**writing, FORM_KEY: key[::-1]}, reads=True),
        "a page from elsewhere": Visitor({**writing, FORM_KEY: key, "Origin": "http://elsewhere.example"}, reads=True),
        "a writer": Visitor(bearer(writer), reads=True, writes=True),  # last: they change what the others ask for
        "a writer's browser": Visitor({**writing, FORM_KEY: key}, reads=True, writes=True),
    }


def trespass(app: Any, known: Mapping[str, Visitor], out: Path, examples: int) -> "Counter[tuple[str, int]]":
    """Let every visitor call every operation so many times with valid requests, and count the answers by visitor.

    Raises:
        SystemExit: as `fuzz`; somebody was answered who may not ask, or refused who may, or left a trace in ``out``.
    """
    answers: Counter[tuple[str, int]] = Counter()
    for name, visitor in known.items():
        for operation in operations_of(app):
            if operation.path == "/healthz":  # for everybody
                continue
            may, before = visitor.may(operation.method), trace_of(out)

            def judge(_: str, answer: Any, name: str = name, may: bool = may, label: str = operation.label) -> None:
                answers[name, answer.status_code] += 1
                check(label, answer)
                if (answer.status_code in (401, 403)) is may:
                    sys.exit(f"{label} was answered to {name} with {answer.status_code}")

            _caller(operation.as_strategy(), operation.label, examples, judge, visitor.headers)()
            left = {str(path) for path, _ in trace_of(out).items() ^ before.items()}
            if left and not may:
                sys.exit(f"{operation.label} left a trace of {name} in {', '.join(sorted(left))}")
    return answers


def trace_of(out: Path) -> Mapping[Path, tuple[int, int]]:
    """Return size and time of every file but the one that the service makes when it starts."""
    from sweeper.store.lock import SERVICE_LOCK_NAME

    files = (path for path in out.rglob("*") if path.is_file() and path.name != SERVICE_LOCK_NAME)
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def operations_of(app: Any) -> list[Any]:
    """Return the operations of a service, as its schema has them."""
    schema = schemathesis.openapi.from_dict(app.openapi())
    schema.app = app
    return [found.ok() for found in schema.get_all_operations()]


def fuzz(app: Any, examples: int) -> "Counter[tuple[str, int]]":
    """Call every operation so many times with valid and with invalid requests, and count the answers.

    Raises:
        SystemExit: an internal error, or an error of another shape.
    """
    answers: Counter[tuple[str, int]] = Counter()

    def judge(label: str, answer: Any) -> None:
        answers[label, answer.status_code] += 1
        check(label, answer)

    for operation in operations_of(app):
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            call = _caller(operation.as_strategy(generation_mode=mode), operation.label, examples, judge)
            with contextlib.suppress(Unsatisfiable):  # an operation without parameters has no wrong ones
                call()
    return answers


def _caller(
    strategy: Any,
    label: str,
    examples: int,
    judge: Callable[[str, Any], None],
    headers: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[], None]:
    calls = count()

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
        if isinstance(named, dict) and "sweep" in named and next(calls) % 4 < 3:
            named["sweep"] = READ if case.method.upper() == "GET" else CHANGED
        answer = case.call(base_url="http://127.0.0.1", headers={"Host": "127.0.0.1", **headers})
        judge(label, answer)
        case.validate_response(answer, checks=[response_schema_conformance])

    return call


def check(label: str, answer: Any) -> None:
    """End the program at an answer that must not be."""
    if answer.status_code >= 500 or (answer.status_code >= 400 and set(answer.json()) != SHAPE):
        sys.exit(f"{label}: {answer.status_code} {answer.text[:500]}")


if __name__ == "__main__":
    main()
