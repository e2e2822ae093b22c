"""Do whole sweeps hold what they promise where features meet? Random sweeps over all keys of a spec, and their records.

    python benchmarks/sweep_fuzz.py [--sweeps 2000] [--seconds S] [--seed 0] [--workers 1] [--only SEED] [--keep FOLDER]

A sweep follows from its seed, but for the noise: a small table or a few small images, a spec over the keys of every
section, and what happens to it: it is run, killed at a write to the disk, interrupted, stopped, resumed, steered,
extended, deleted. Each runs in a process of its own, which trains in a thread; what it leaves is then compared with a
second computation of everything that can be computed twice:

* no trial was charged that has no rows, unless it was killed or stopped;
* every price is that of the lines of the ledger, and no budget is exceeded;
* the ledger's steps are those for which noise was drawn, counted in another file;
* records, MLflow, front.json, tables, cards and the service agree to the digit;
* the front is that of moocore, every model of it loads and reaches its scores again;
* what was refused was refused in one sentence, before anything was drawn; `check` and `run` refuse the same specs;
* nothing unfinished is left, and a resumed sweep neither repeats nor forgets a charge.

Prints a line for each sweep in which something does not hold, with its seed, which ``--only`` repeats, and its spec;
at the end a table. Exits with 1 if there was one.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from _fuzz_processes import in_child, ledger_of, prepare


@dataclass
class Report:
    """What was found of one sweep.

    Attributes:
        seed: of the sweep.
        wrong: what does not hold, in sentences.
        counts: what happened, by kind.
    """

    seed: int
    wrong: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def fuzz_one(seed: int, place: Path, *, apart: bool = True) -> Report:
    """Run the sweep of a seed in an empty folder, and return what was found.

    ``apart``: every step in a process of its own, so that it can be killed; otherwise in this one, without kills.
    """
    from _fuzz_runs import drawn
    from _fuzz_specs import make_case

    case, report = make_case(seed, kills=apart), Report(seed)
    case.write(place)
    _give_store(place, tracked=case.tracked)
    outcomes: list[dict[str, Any]] = []
    ledgers: list[bytes] = []
    checked: list[str] = []
    for step in case.steps:
        if step["do"] == "delete":
            checked = _look(case, place, case.steps[: len(outcomes)], outcomes, ledgers, drawn(place), apart=apart)
            if checked:
                shutil.copytree(place / "out", place / "before-it-was-deleted", dirs_exist_ok=True)
        outcome = _perform(case, place, step, apart=apart)
        outcomes.append(outcome)
        ledgers.append(ledger_of(place))
        report.counts[f"{step['do']} {outcome['kind']}"] += 1
        report.wrong += _odd_outcome(step, outcome, place)
        if outcome["kind"] in ("fault", "hung") or (step["do"] == "run" and outcome["kind"] == "refused"):
            break
        if step["do"] == "delete" and outcome["kind"] == "ended":
            report.wrong += _deleted(place, ledgers, forget=step["forget"])
    report.wrong += _refused_alike(case.steps, outcomes)
    report.wrong += checked or _look(
        case, place, case.steps[: len(outcomes)], outcomes, ledgers, drawn(place), apart=apart
    )
    return report


def _perform(case: Any, place: Path, step: Mapping[str, Any], *, apart: bool) -> dict[str, Any]:
    from _fuzz_runs import perform

    def work() -> dict[str, Any]:
        outcome: dict[str, Any] = perform(case, place, dict(step)).to_json()
        return outcome

    if not apart:
        return work()
    found: dict[str, Any] = in_child(work, place, step.get("how") == "workers")
    if found["kind"] == "killed" and "ends" not in step:
        return {"kind": "fault", "text": f"its process died of signal {found['text']}", "asked": []}
    return found


def _odd_outcome(step: Mapping[str, Any], outcome: Mapping[str, Any], place: Path) -> Iterator[str]:
    """Yield what no step may end with."""
    label = f"{step['do']}"
    if outcome["kind"] in ("fault", "hung"):
        yield f"{label}: {outcome['kind']}: {outcome['text']}"
    if "[NO SENTENCE" in outcome["text"] or "Traceback" in outcome["text"] or "unexpected" in outcome["text"]:
        yield f"{label}: said {outcome['text'][-1500:]}"
    if outcome["kind"] == "refused" and step["do"] == "run" and ledger_of(place).count(b'"draw"'):
        yield f"{label}: refused after noise was drawn: {outcome['text']}"
    if outcome["kind"] == "refused" and step["do"] == "resume" and "drawn once" not in outcome["text"]:
        yield f"{label}: refused: {outcome['text']}"


def _refused_alike(steps: Any, outcomes: list[dict[str, Any]]) -> Iterator[str]:
    kinds = {step["do"]: one for step, one in zip(steps, outcomes, strict=False) if step["do"] in ("check", "run")}
    if "check" in kinds and "run" in kinds:
        checked, ran = kinds["check"], kinds["run"]
        if (checked["kind"] == "refused") != (ran["kind"] == "refused"):
            yield f"check: {checked['kind']} ({checked['text'][-300:]}), run: {ran['kind']} ({ran['text'][-300:]})"


def _deleted(place: Path, ledgers: list[bytes], *, forget: bool) -> Iterator[str]:
    out = place / "out"
    left = [file.parent.name for file in out.glob("*/sweep.json")]
    kept = [file.read_bytes() for file in out.glob("spent/*/ledger.jsonl")]
    before = [one for one in ledgers[:-1] if one][-1:]
    if left:
        yield f"delete: {left} are left"
    if kept != ([] if forget else before):
        yield f"delete: the ledger that was kept is {kept}, it was {before}"


def _look(
    case: Any,
    place: Path,
    steps: Any,
    outcomes: list[dict[str, Any]],
    ledgers: list[bytes],
    noise: Mapping[str, Counter[str]],
    *,
    apart: bool,
) -> list[str]:
    """Return what does not hold of what a sweep has left."""
    from _fuzz_left import History

    history = History(tuple(steps), tuple(outcomes), tuple(ledgers), noise)
    if any(one["kind"] in ("fault", "hung") for one in outcomes):
        return []

    def work() -> list[str]:
        try:
            return list(_found(case, place, history))
        except Exception:
            return [f"checks: {traceback.format_exc()}"]

    found = in_child(work, place) if apart else work()
    return found if isinstance(found, list) else [f"checks: {found['kind']}: {found['text']}"]


def _found(case: Any, place: Path, history: Any) -> Iterator[str]:
    from _fuzz_checks import check_records
    from _fuzz_left import Left
    from _fuzz_prices import read_account
    from _fuzz_runs import sweeps_in
    from _fuzz_views import check_views

    seen = sweeps_in(place / "out")
    if not seen:
        drawn = [file for file in (place / "out").rglob("ledger.jsonl") if read_account(file).spends()]
        ended = any(
            one["kind"] == "ended"
            for step, one in zip(history.steps, history.outcomes, strict=True)
            if step["do"] != "check"
        )
        if ended and not any(step["do"] == "delete" for step in history.steps):
            yield "no sweep is left"
        if drawn and history.outcomes[-1]["kind"] == "refused":
            yield f"refused, and {drawn} has drawn noise"
        return
    if not (seen[0] / "front.json").exists():
        if history.outcomes[-1]["kind"] not in ("killed", "interrupted"):
            yield "no front.json"
        return
    left = Left(case, seen[0], history)
    yield from check_records(left)
    yield from check_views(left)


def _give_store(place: Path, *, tracked: bool) -> None:
    """Copy an empty MLflow store, which takes seconds to make."""
    (place / "out").mkdir()
    template = os.environ.get("FUZZ_STORE")
    if tracked and template:
        shutil.copyfile(template, place / "out" / "mlflow.db")


def fuzz(seeds: Iterator[int], workers: int, keep: Path | None, until: float, root: Path) -> Iterator[Report]:
    """Yield what was found of each sweep."""

    def one(seed: int) -> Report:
        place = (keep or root) / f"sweep-{seed}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        try:
            report = fuzz_one(seed, place)
        except Exception:
            report = Report(seed, [f"fuzzer: {traceback.format_exc()}"])
        if not (report.wrong and keep):
            shutil.rmtree(place, ignore_errors=True)
        return report

    with ThreadPoolExecutor(workers) as pool:
        while time.monotonic() < until:
            batch = list(islice(seeds, workers))
            if not batch:
                return
            yield from pool.map(one, batch) if workers > 1 else map(one, batch)


def show(report: Report) -> None:
    """Print what does not hold of a sweep, with its spec."""
    from _fuzz_specs import make_case

    case = make_case(report.seed)
    print(f"\n== seed {report.seed}: {len(report.wrong)} do not hold", flush=True)
    for wrong in report.wrong:
        print(f"   {wrong}")
    print(f"   steps: {json.dumps(case.steps)}\n   spec: {json.dumps(case.spec)}", flush=True)


def main() -> None:
    """Run sweeps and print what does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=0, help="of the first sweep; the others follow")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", type=int, help="the one sweep of this seed")
    parser.add_argument("--keep", type=Path, help="where the folders of failing sweeps are left")
    options = parser.parse_args()
    seeds = [options.only] if options.only is not None else range(options.seed, options.seed + options.sweeps)
    counts: Counter[str] = Counter()
    begun, failing = time.monotonic(), []
    with tempfile.TemporaryDirectory() as root:
        prepare(Path(root))
        for report in fuzz(iter(seeds), options.workers, options.keep, begun + options.seconds, Path(root)):
            counts.update(["sweeps", *report.counts.elements()])
            if report.wrong:
                failing.append(report.seed)
                show(report)
            if counts["sweeps"] % 50 == 0:
                print(
                    f"{counts['sweeps']} sweeps, {time.monotonic() - begun:.0f} s, {len(failing)} failing", flush=True
                )
    print("\n| | |\n|---|---|")
    for name, count in sorted(counts.items()):
        print(f"| {name} | {count} |")
    print(f"\n{time.monotonic() - begun:.0f} s, {len(failing)} failing: {failing}")
    sys.exit(bool(failing))


if __name__ == "__main__":
    main()
