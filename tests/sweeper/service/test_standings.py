"""How sweeps stand: what waits, runs, has ended, and whose driver is gone; with a service and without."""

import json

import pytest

from sweeper.errors import RecordError, UnknownSweepError
from sweeper.records import SweepStatus
from sweeper.service.catalog import Catalog
from sweeper.service.responses.standings import ServiceStandings
from sweeper.service.standings import RecordedStandings, submitted_spec
from sweeper.service.supervision import submissions
from sweeper.service.supervision.states import AWAY
from sweeper.service.supervision.submissions import Intent, Submission
from sweeper.specification.spec import Spec
from sweeper.store.lock import driver_lock
from sweeper.store.manifest import Manifest
from sweeper.store.sweep_folder import HIDDEN, SweepFolder
from sweeper.store.trial_standings import LOST_REASON

from .conftest import DONE, SPEC, YAML

LATER = "tiny-20990101-000000"


@pytest.fixture
def standings(client):
    parts = client.app.state.parts
    return ServiceStandings(parts.catalog, parts.supervisor, parts.redact)


def describe_as_running(folder):
    spec = Spec.from_yaml(folder / "spec.yaml")
    manifest = Manifest(name=spec.name, status=SweepStatus.RUNNING, spec=spec.to_plain(), source="s")
    SweepFolder(folder).write_manifest(manifest)


def submit(client, text=SPEC):
    return client.post("/api/v1/sweeps", content=text, headers=YAML).json()["id"]


def test_those_that_wait_have_a_place_in_line(client, standings, supervisor):
    first, second = submit(client), submit(client)
    assert [(one.name, one.state, one.place) for one in standings.all()] == [
        (second, SweepStatus.QUEUED, 2),
        (first, SweepStatus.QUEUED, 1),
    ]
    supervisor.tick()
    standings = ServiceStandings(standings._catalog, supervisor, standings._redact)  # what was seen is kept a while
    assert (standings.one(first).state, standings.one(first).place) == (SweepStatus.STARTING, None)
    assert standings.one(second).place == 1
    assert not standings.one(second).started
    assert standings.one(second).runs


def test_a_sweep_that_failed_says_why_without_a_folder_of_this_machine(make_sweep, standings, out):
    make_sweep(status="failed", reason=f"cannot read {out}/x")
    found = standings.one(DONE)
    assert (found.state, found.reason, found.runs) == (SweepStatus.FAILED, "cannot read x", False)


def test_while_the_head_of_the_cluster_is_away_a_sweep_waits_for_it(client, standings, supervisor, launcher, out):
    names = submit(client), submit(client)
    supervisor.tick()
    describe_as_running(out / names[0])
    launcher.away = True
    for name, state in zip(names, (SweepStatus.WAITING, SweepStatus.QUEUED), strict=True):
        found = standings.one(name)
        assert (found.state, found.reason, found.runs) == (state, AWAY, True)
        told = client.get(f"/api/v1/sweeps/{name}").json()
        assert (told["state"], told["trouble"]) == (state.value, AWAY)
    assert client.post(f"/api/v1/sweeps/{names[0]}/resume").status_code == 409
    assert client.delete(f"/api/v1/sweeps/{names[0]}").status_code == 409
    with driver_lock(out / names[0]):  # the service does not reach the head, but the driver is seen
        seen = ServiceStandings(standings._catalog, supervisor, standings._redact).one(names[0])
        assert (seen.state, seen.reason) == (SweepStatus.RUNNING, "")
    launcher.away = False
    launcher.alive.clear()  # a head that was started again knows no job of before
    supervisor.tick()
    again = ServiceStandings(standings._catalog, supervisor, standings._redact)
    assert (again.one(names[0]).state, again.one(names[0]).reason) == (SweepStatus.QUEUED, "")


@pytest.mark.parametrize("kind", ["service", "records"])
def test_a_dead_driver_does_not_run(kind, make_sweep, standings, out):
    folder = make_sweep(status="running", reason="an earlier end")
    known = standings if kind == "service" else RecordedStandings(Catalog(out))
    with driver_lock(folder.path):
        found = known.one(DONE)
        assert (found.state, found.reason, found.runs) == (SweepStatus.RUNNING, "", True)
    again = RecordedStandings(Catalog(out)).one(DONE) if kind == "records" else None
    found = again or ServiceStandings(standings._catalog, standings._supervisor, standings._redact).one(DONE)
    assert (found.state, found.reason, found.runs) == (SweepStatus.LOST, LOST_REASON, False)


def test_records_alone_tell_all_states_newest_first(make_sweep, out):
    make_sweep()
    make_sweep(LATER, status="interrupted", reason="Ctrl-C")
    found = RecordedStandings(Catalog(out)).all()
    assert [(one.name, one.state.value, one.reason) for one in found] == [
        (LATER, "interrupted", "Ctrl-C"),
        (DONE, "completed", ""),
    ]


@pytest.mark.parametrize("name", ["none", "..", f"{HIDDEN}x"])
def test_what_is_no_sweep_stands_nowhere(name, make_sweep, standings, out):
    make_sweep(f"{HIDDEN}x")
    for known in (standings, RecordedStandings(Catalog(out))):
        assert known.all() == ()
        with pytest.raises(UnknownSweepError):
            known.one(name)


def test_one_that_cannot_be_read_hides_no_other(make_sweep, supervisor, standings):
    folder = make_sweep()
    make_sweep(LATER)
    submissions.write(folder.path, Submission(submitted=1.0, intent=Intent.RUN, job="gone"))
    supervisor._queue.load()
    (folder.path / "requests.jsonl").write_bytes(b"\x00\n{}\n")
    whole, broken = standings.all()
    assert (whole.name, whole.state) == (LATER, SweepStatus.COMPLETED)
    assert (broken.name, broken.state, broken.runs) == (DONE, SweepStatus.FAILED, False)
    assert broken.reason.startswith(f"Expected a JSON object on line 1 of {DONE}/requests.jsonl")
    with pytest.raises(RecordError):
        standings.one(DONE)


def test_the_spec_of_one_that_waits_is_told_without_paths(client, out):
    name = submit(client)
    assert submitted_spec(out, name)["name"] == "tiny"
    text = (
        (out / name / "spec.yaml")
        .read_text()
        .replace("name: digits", "path: /secret/rows.csv\n  ranges: /secret/r.yaml")
    )
    (out / name / "spec.yaml").write_text(text)
    told = submitted_spec(out, name)
    assert "/secret" not in json.dumps(told)
    (out / name / "spec.yaml").write_text("x: [")
    assert submitted_spec(out, name) is None
