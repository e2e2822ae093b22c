"""What MLflow, the tables, the card and the service say of a fuzzed sweep: the same as its records, to the digit."""

import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

from _fuzz_checks import is_final, is_scored, released_of
from _fuzz_left import Left, run_checks
from _fuzz_prices import composed
from _fuzz_runs import call_program
from fastapi import FastAPI
from fastapi.testclient import TestClient
from mlflow import MlflowClient

from sweeper.errors import PickError
from sweeper.results.sweep import load
from sweeper.service import app as service
from sweeper.service.settings import Limits, ServiceSettings

LARGEST = 1e300  # what a store keeps of infinity is above


class Idle:
    """A launcher that starts nothing."""

    def start(self, arguments: Any, folder: Any) -> str:
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


def check_views(left: Left) -> Iterator[str]:
    """Yield where what is shown differs from what is recorded."""
    yield from run_checks((check_csv, check_card, check_service, check_tracking, check_program), left)


def _differs(shown: Mapping[str, Any], point: Mapping[str, Any]) -> Iterator[str]:
    for name, value in point["values"].items():
        if not _alike(shown.get(name), value):
            yield f"{point['trial']}-{point['epoch']} {name} is {shown.get(name)!r}, recorded is {value!r}"
    for name, value in (point["test"] or {}).items():
        if not _alike(shown.get(f"test.{name}"), value):
            told = shown.get(f"test.{name}")
            yield f"{point['trial']}-{point['epoch']} test {name} is {told!r}, recorded is {value!r}"


def _alike(shown: Any, recorded: Any) -> bool:
    if shown is None or shown == "":
        return False
    a, b = float(shown), float(recorded)
    return a == b or (math.isnan(a) and math.isnan(b))


def check_csv(left: Left) -> Iterator[str]:
    """front.csv has the numbers of front.json."""
    if not left.has_ended:
        return
    rows = list(csv.DictReader(io.StringIO((left.folder / "front.csv").read_text(encoding="utf-8"))))
    yield from _compare_table(left, rows, left.front["points"])


def _compare_table(left: Left, rows: list[dict[str, Any]], points: list[dict[str, Any]]) -> Iterator[str]:
    if len(rows) != len(points):
        yield f"{len(rows)} rows for {len(points)} points"
        return
    price = float(left.front["ledger"]["winner"]["epsilon"])
    for row, point in zip(rows, points, strict=True):
        yield from _differs(row, point)
        told = row.get("price")
        if told and float(told) != price:
            yield f"a row has the price {told}, recorded is {price}"


def check_card(left: Left) -> Iterator[str]:
    """The point that is picked is the best one, and its card states what is recorded."""
    if not left.has_ended:
        return
    try:
        picked = load(left.folder).pick()
    except PickError:
        if any(point["on_front"] for point in left.front["points"]):
            yield "nothing can be picked of a front with points"
        return
    point = next(
        one for one in left.front["points"] if (one["trial"], one["epoch"], one["made_from"]) == picked.point.key
    )
    utility = next(name for name in left.objectives if name != "epsilon")
    front = [one for one in left.front["points"] if one["on_front"]]
    best = max(float(one["values"][utility]) for one in [one for one in front if is_final(one)] or front)
    noisy = point.get("noisy")
    beyond = noisy is not None and noisy["intervals"][utility][0] > best
    if (not beyond and float(point["values"][utility]) != best) or not point["on_front"]:
        yield f"{picked.point.label} was picked, the best {utility} is {best}"
    trouble = picked.write(left.folder / "picked-here")
    if trouble:
        yield f"the picked model lacks something: {trouble}"
    card = json.loads((left.folder / "picked-here" / "card.json").read_text(encoding="utf-8"))
    yield from _compare_card(left, card, point)


def _compare_card(left: Left, card: Mapping[str, Any], point: Mapping[str, Any]) -> Iterator[str]:
    stated = card["guarantee"]
    if not _alike(stated["fixed_in_advance"]["epsilon"], point["values"]["epsilon"]):
        yield f"the card says {stated['fixed_in_advance']['epsilon']}, the point {point['values']['epsilon']}"
    told, price = stated["price"], left.front["ledger"]["winner"]["epsilon"]
    if told is not None and not _alike(told["epsilon"], price):
        yield f"the card has the price {told['epsilon']}, front.json {price}"
    if not _alike(card["ledger"]["everything"]["epsilon"], left.front["ledger"]["everything"]["epsilon"]):
        yield "the card's ledger is another one"
    if card["scores"]["validation"] != point["values"] or (card["scores"]["test"] or None) != (point["test"] or None):
        yield f"the card has the scores {card['scores']}"
    mine = [one for one in left.account.of(point["trial"]) if one.charged]
    if mine and len({one.event.with_steps(0) for one in mine}) == 1:
        whole = mine[0].event.with_steps(sum(one.charged for one in mine))
        charged = composed([whole], left.delta, tight=True)
        if not _alike(stated["chosen_afterwards"]["epsilon"], charged):
            yield f"the card says {stated['chosen_afterwards']['epsilon']} for the trial, which is charged {charged}"


def app_of(left: Left) -> FastAPI:
    """Return the service over the folder of a sweep, without pages."""
    limits = Limits(requests_per_second=0, queued=10**6)
    with mock.patch.object(service, "mount_pages", return_value=[]):
        return service.create_app(ServiceSettings(out=left.folder.parent, limits=limits), Idle())


def check_service(left: Left) -> Iterator[str]:
    """What the service answers is what is recorded."""
    client = TestClient(app_of(left), base_url="http://127.0.0.1")
    base = f"/api/v1/sweeps/{left.folder.name}"

    def ask(path: str) -> Any:
        answer = client.get(base + path)
        if answer.status_code != 200:
            raise AssertionError(f"{path or '/'}: {answer.status_code} {answer.text[:300]}")
        return answer

    try:
        told = ask("").json()
        if (told["status"], told["name"]) != (left.manifest["status"], left.manifest["name"]):
            yield f"it is {told['status']}, recorded is {left.manifest['status']}"
        yield from _compare_front(left, told, ask("/front").json())
        points = ask("/points?limit=1000").json()["points"]
        recorded = [json.loads(json.dumps(point)) for point in left.points.values()]
        if [released_of(one) for one in points] != [one["values"] for one in recorded]:
            yield "other points than recorded"
        if left.has_ended:
            rows = list(csv.DictReader(io.StringIO(ask("/points?format=csv").text)))
            yield from _compare_table(left, rows, left.front["points"])
        if any(point["on_front"] for point in left.front["points"]) and left.has_ended:
            yield from _compare_pick(left, ask("/pick").json(), ask("/card?format=json").json())
    except AssertionError as error:
        yield str(error)


def _compare_front(left: Left, told: Mapping[str, Any], front: Mapping[str, Any]) -> Iterator[str]:
    points = [point for point in left.front["points"] if point["on_front"]]
    if front["points"] != points:
        yield "its front has other points"
    if left.has_ended and not front["ledger"] == told["front"]["ledger"] == left.front["ledger"]:
        yield f"its prices are {front['ledger']}, recorded are {left.front['ledger']}"


def _compare_pick(left: Left, picked: Mapping[str, Any], card: Mapping[str, Any]) -> Iterator[str]:
    written = json.loads((left.folder / "picked-here" / "card.json").read_text(encoding="utf-8"))
    if not written.pop("files"):
        yield "its card has no hashes of the files beside it"
    if card != written or picked["card"] != written:
        yield "its card is not the one that is written"


def check_tracking(left: Left) -> Iterator[str]:
    """MLflow has one ended run for each trial and one for the sweep, with every point."""
    store = left.folder.parent / "mlflow.db"
    if not left.case.tracked or not left.has_ended or not store.exists():
        return
    client = MlflowClient(tracking_uri=f"sqlite:///{store}")
    experiment = client.get_experiment_by_name(left.case.spec["name"])
    if experiment is None:
        yield "no experiment"
        return
    runs = client.search_runs([experiment.experiment_id], max_results=1000)
    names = Counter(run.data.tags.get("sweeper.trial") for run in runs)
    if set(names.values()) != {1} or set(names) - {None} != set(left.trials):
        yield f"runs {dict(names)} for the trials {sorted(left.trials)}"
    for run in runs:
        trial = run.data.tags.get("sweeper.trial")
        if run.info.status == "RUNNING":
            yield f"the run of {trial} is running"
        if trial is None:
            yield from _compare_prices(left, run.data.metrics)
        elif trial in left.trials:
            yield from _compare_run(left, client, run.info.run_id, trial)


ACCUSED = "An audit contradicts a claim|is refused by an audit"  # as one of twenty correct trainings may be


def check_program(left: Left) -> Iterator[str]:
    """Commands that only read say something of every sweep, a third of them here, and no traceback."""
    if left.case.seed % 3 or not left.has_ended:
        return
    sweep, first = str(left.folder), next(iter(left.trials), None)
    commands = [["list", "--out", str(left.folder.parent)], ["show", sweep]]
    commands += [["log", sweep, first]] if first else []
    commands += [["front", sweep, "--format", kind, "--output", f"{sweep}/again.{kind}"] for kind in ("html", "csv")]
    if any(point["on_front"] for point in left.front["points"]):
        commands += [["pick", sweep], *([["audit", sweep, "--no-price"]] if left.case.seed % 9 == 0 else [])]
        table = left.folder.parents[1] / left.case.table
        is_whole = not left.front.get("refused")  # whose points were outdone by refused ones have no models
        can_predict = left.case.table and is_whole
        commands += [["predict", sweep, str(table), "--output", f"{sweep}/said.csv"]] if can_predict else []
    for arguments in commands:
        try:
            call_program(arguments)
        except Exception as error:
            if not re.search(ACCUSED, str(error)):
                yield f"sweeper {' '.join(arguments)}: {type(error).__name__}: {error}"
    yield from _compare_predictions(left)


def _compare_predictions(left: Left) -> Iterator[str]:
    path = left.folder / "said.csv"
    if path.exists():
        rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
        odd = [
            row
            for row in rows
            if row["class"] not in left.data.metadata.classes or not float(row["certified_radius"]) >= 0
        ]
        yield from (f"predict says {row}" for row in odd[:1])
        if len(rows) < len(left.data.train):
            yield f"predict says {len(rows)} rows"


def _compare_prices(left: Left, metrics: Mapping[str, float]) -> Iterator[str]:
    one, shown = left.front["ledger"]["winner"], metrics.get("price")
    released = one["events"] > 0 or math.isfinite(float(one["epsilon"]))
    if released and not _stored(shown, float(one["epsilon"])):
        yield f"the metric price is {shown}, recorded is {one['epsilon']}"
    if not released and shown is not None:
        yield f"the metric price is {shown}, and is no price"


def _compare_run(left: Left, client: MlflowClient, run: str, trial: str) -> Iterator[str]:
    for prefix in sorted({made_from for name, _, made_from in left.points if name == trial}):
        start = f"{prefix}/" if prefix else ""
        mine = {epoch: point for (name, epoch, made), point in left.points.items() if (name, made) == (trial, prefix)}
        for key, metric in (("epsilon", f"{start}epsilon"), ("accuracy", f"{start}val/accuracy")):
            if prefix and key == "epsilon":
                continue
            noisy = key != "epsilon" and left.case.evaluation == "private"
            found = client.get_metric_history(run, f"released/{metric}" if noisy else metric)
            told = {one.step: one.value for one in found if one.step}
            expected = {epoch for epoch, point in mine.items() if not noisy or is_scored(left, point)}
            if set(told) != expected:
                yield f"{trial} has {metric} at {sorted(told)}, points at {sorted(expected)}"
                continue
            for epoch, value in told.items():
                if not _stored(value, float(mine[epoch]["values"][key])):
                    yield f"{trial} has {metric} {value} at {epoch}, recorded is {mine[epoch]['values'][key]}"


def _stored(shown: float | None, recorded: float) -> bool:
    if shown is None:
        return False
    return (
        shown == recorded or (math.isinf(recorded) and shown > LARGEST) or (math.isnan(shown) and math.isnan(recorded))
    )
