"""Submissions from request to end, with drivers that are only said to run; crashes of the service at every moment."""

import datetime
import json
import shutil
import threading
from pathlib import Path

import pytest

from sweeper.errors import RecordError, RefusalError, SpecError, SweeperError, UnknownSweepError
from sweeper.records import SweepStatus
from sweeper.service.catalog import Catalog
from sweeper.service.security.spec_policy import AcceptedSpec
from sweeper.service.settings import NO_DATA, Limits, ServiceSettings
from sweeper.service.supervision import submissions
from sweeper.service.supervision.drivers import ASK_AGAIN_SECONDS, LAUNCH_PAUSE_SECONDS
from sweeper.service.supervision.states import MOST_DEATHS
from sweeper.service.supervision.submission_queue import LONGEST_DELAY_SECONDS
from sweeper.service.supervision.submissions import Cause, Intent
from sweeper.service.supervision.supervisor import Supervisor
from sweeper.service.telemetry import Metrics
from sweeper.specification.spec import Spec
from sweeper.store.actions import SUBMISSION_NAME
from sweeper.store.lock import driver_lock
from sweeper.store.requests import Requests, ask_to_stop
from tests.factories import Clock

from ..conftest import DONE


@pytest.fixture
def clock():
    return Clock(1_750_000_000.0)


@pytest.fixture
def supervise(out, launcher, clock):
    """Make a supervisor that ticks when a test says so."""

    def make(**settings):
        given = ServiceSettings(out=out, **settings)
        made = Supervisor(given, Catalog(out), launcher, Metrics(), clock)
        made._queue.load()
        return made

    return make


@pytest.fixture
def spec(content):
    return AcceptedSpec(Spec.from_mapping(content))


RUNNABLE = {
    "name": "digits", "data": {"name": "digits"}, "model": {"architecture": "mlp"}, "training": {"epochs": 10},
    "privacy": {"epsilon": 3.0, "delta": 1e-4},
}  # fmt: skip


def begin(folder, status="running"):
    """What a driver writes first."""
    content = {"format": 1, "name": "digits", "status": status, "spec": RUNNABLE, "source": "spec.yaml"}
    (folder / "sweep.json").write_text(json.dumps(content))


def submitted(supervise, spec):
    """A supervisor and the name of the one sweep that was submitted to it."""
    supervisor = supervise()
    return supervisor, supervisor.submit(spec, None, "", "ada").name


def started(supervise, spec):
    """The same, with a driver."""
    supervisor, name = submitted(supervise, spec)
    supervisor.tick()
    return supervisor, name


def running(supervise, spec, out):
    """The same, whose driver has begun its sweep."""
    supervisor, name = started(supervise, spec)
    begin(out / name)
    return supervisor, name


def state(supervisor, name):
    return supervisor.status(name).state


def test_a_sweep_is_known_before_its_driver_is_started(supervise, spec, out, launcher):
    made = supervise().submit(spec, None, "digest", "ada")
    folder = out / made.name
    assert made.is_new
    assert made.name.startswith("digits-2025")
    assert (folder / "spec.yaml").read_text() == spec.text
    assert (folder / "models").is_dir()
    assert submissions.read(folder).intent is Intent.RUN
    assert [path.name for path in out.iterdir()] == [made.name]
    assert launcher.started == []


def test_a_driver_gets_the_folder_the_data_and_how_to_run(supervise, spec, out, launcher, tmp_path):
    supervisor = supervise(data_dir=tmp_path, tracking="http://mlflow", cluster="auto", page="https://sweeps.org/")
    name = supervisor.submit(spec, None, "", "ada").name
    supervisor.tick()
    folder = out / name
    assert launcher.started == [
        ["run", f"{folder}/spec.yaml", "--into", f"{folder}", "--data-dir", f"{tmp_path}", "--tracking", "http://mlflow",
         "--page", f"https://sweeps.org/?sweep={name}", "--cluster", "auto"]
    ]  # fmt: skip
    supervisor.tick()
    assert len(launcher.started) == 1


@pytest.mark.usefixtures("out")
def test_a_driver_without_data_is_given_an_empty_folder_so_that_it_fetches_nothing(supervise, spec, launcher):
    supervisor = supervise()
    supervisor.submit(spec, None, "", "ada")
    supervisor.tick()
    place = Path(launcher.started[0][launcher.started[0].index("--data-dir") + 1])
    assert place.is_dir()
    assert not any(place.iterdir())
    assert place.name.startswith(".")
    free = supervise(allow_fetch=True)
    free.submit(spec, None, "", "ada")
    launcher.alive.clear()
    free.tick()
    assert "--data-dir" not in launcher.started[-1]


def test_so_many_drivers_run_at_a_time_first_come_first_served(supervise, spec, launcher, clock):
    supervisor, names = supervise(drivers=2), []
    for _ in range(5):
        names.append(supervisor.submit(spec, None, "", "ada").name)
        clock.now += 0.1
    supervisor.tick()
    supervisor.tick()
    assert [Path(args[3]).name for args in launcher.started] == names[:2]
    assert [state(supervisor, name) for name in names[1:3]] == [SweepStatus.STARTING, SweepStatus.QUEUED]
    begin(supervisor._catalog.out / names[0], "completed")
    launcher.alive.discard("job1")
    supervisor.tick()
    assert Path(launcher.started[-1][3]).name == names[2]
    assert state(supervisor, names[0]) is SweepStatus.COMPLETED


def test_the_same_request_again_is_the_same_sweep_also_after_a_restart(supervise, spec):
    first = supervise()
    name = first.submit(spec, "key", "digest", "ada").name
    assert first.submit(spec, "key", "digest", "ada").name == name
    again = supervise().submit(spec, "key", "digest", "ada")
    assert (again.name, again.is_new) == (name, False)
    with pytest.raises(RefusalError, match="Expected another Idempotency-Key") as refused:
        first.submit(spec, "key", "another", "ada")
    assert refused.value.status == 422
    assert first.submit(spec, "another", "digest", "ada").name != name
    assert first.submit(spec, None, "digest", "ada").is_new
    assert first.submit(spec, None, "digest", "ada").is_new


@pytest.mark.parametrize("begun", [False, True])
def test_the_key_of_a_sweep_that_was_deleted_submits_another(begun, supervise, spec, out, launcher):
    supervisor = supervise()
    name = supervisor.submit(spec, "key", "digest", "ada").name
    if begun:
        supervisor.tick()
        begin(out / name, "completed")
        launcher.alive.clear()
    else:
        supervisor.stop(name, by="ada")
    supervisor.tick()
    (out / name).rename(out / ".deleted")
    for _ in range(2):
        supervisor.tick()
    again = supervisor.submit(spec, "key", "another digest", "ada")
    assert again.is_new
    assert state(supervisor, again.name) is SweepStatus.QUEUED
    assert not supervisor.submit(spec, "key", "another digest", "ada").is_new


@pytest.mark.usefixtures("launcher")
def test_only_so_many_may_wait(supervise, spec):
    supervisor = supervise(limits=Limits(queued=2))
    supervisor.submit(spec, None, "", "ada")
    supervisor.submit(spec, "key", "", "ada")
    with pytest.raises(RefusalError, match="Expected fewer sweeps that wait") as refused:
        supervisor.submit(spec, None, "", "ada")
    assert (refused.value.status, refused.value.headers["Retry-After"]) == (429, "60")
    assert not supervisor.submit(spec, "key", "", "ada").is_new, "one that is known is no more"
    supervisor.tick()
    assert supervisor.submit(spec, None, "", "ada").is_new


def test_a_crash_while_a_folder_is_made_leaves_nothing_of_it(supervise, spec, out, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(submissions, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(RecordError, match=r"Cannot make a folder in .*No space left"):
            supervise().submit(spec, None, "", "ada")
    assert list(out.iterdir()) == []
    (out / ".submitting-abc" / "models").mkdir(parents=True)
    assert supervise().names() == ()
    assert list(out.iterdir()) == []


def test_a_service_that_was_killed_finds_its_sweeps_again(supervise, spec, launcher, out):
    first = supervise(drivers=5)
    waiting, running, orphan = (first.submit(spec, None, "", "ada").name for _ in range(3))
    first.tick()
    begin(out / running)
    launcher.alive -= {"job1", "job3"}
    (out / waiting / SUBMISSION_NAME).write_text(
        (out / waiting / SUBMISSION_NAME).read_text().replace('"job1"', "null")
    )
    second = supervise(drivers=5)
    assert [state(second, name) for name in (waiting, running)] == [SweepStatus.QUEUED, SweepStatus.RUNNING]
    begin(out / orphan)
    with driver_lock(out / orphan):
        second.tick()
        assert state(second, orphan) is SweepStatus.RUNNING, "found by its lock"
    assert Path(launcher.started[-1][3]).name == waiting
    assert len(launcher.started) == 4


def test_a_driver_that_died_is_replaced_by_one_that_resumes(supervise, spec, out, launcher, clock):
    supervisor, name = running(supervise, spec, out)
    launcher.alive.clear()
    supervisor.tick()
    assert len(launcher.started) == 1, "not at once"
    assert state(supervisor, name) is SweepStatus.QUEUED
    clock.now += 3
    supervisor.tick()
    assert launcher.started[1] == ["resume", str(out / name), "--page", f"http://127.0.0.1:8000/?sweep={name}"]
    for _ in range(10):
        launcher.alive.clear()
        supervisor.tick()
        clock.now += 1000
        supervisor.tick()
    assert len(launcher.started) == MOST_DEATHS
    standing = supervisor.status(name)
    assert (standing.state, standing.submission.cause) == (SweepStatus.FAILED, Cause.GIVEN_UP)
    supervisor.resume(name, by="ada")
    supervisor.tick()
    assert len(launcher.started) == MOST_DEATHS + 1, "a person may ask for more"


def test_while_no_driver_can_be_started_sweeps_wait_however_long_that_lasts(supervise, spec, launcher, clock):
    supervisor = supervise(drivers=2)
    names = [supervisor.submit(spec, None, "", "ada").name for _ in range(5)]
    launcher.broken, tried = True, 0
    start = launcher.start

    def counted(*given):
        nonlocal tried
        tried += 1
        return start(*given)

    launcher.start = counted
    for _ in range(900):
        supervisor.tick()
        clock.now += 1
    assert {state(supervisor, name) for name in names} == {SweepStatus.QUEUED}
    assert all(supervisor._queue.get(name).deaths == 0 for name in names), "nothing has died"
    assert tried <= 900 / LAUNCH_PAUSE_SECONDS
    launcher.broken = False
    for _ in range(round(LONGEST_DELAY_SECONDS)):
        supervisor.tick()
        clock.now += 1
    assert len(launcher.started) == 2


def test_a_driver_that_alone_cannot_be_started_does_not_keep_others_waiting(
    supervise, spec, launcher, clock, monkeypatch
):
    supervisor = supervise()
    odd, good = (supervisor.submit(spec, None, "", "ada").name for _ in range(2))
    start = launcher.start

    def refuse(arguments, folder):
        if folder.name == odd:
            raise SweeperError("Cannot start a driver")
        return start(arguments, folder)

    monkeypatch.setattr(launcher, "start", refuse)
    for _ in range(60):
        supervisor.tick()
        clock.now += 1
    assert [Path(arguments[3]).name for arguments in launcher.started] == [good]


def test_a_folder_that_cannot_be_written_to_gets_no_driver_and_keeps_nobody_waiting(
    supervise, spec, launcher, clock, monkeypatch
):
    supervisor = supervise()
    full, good = (supervisor.submit(spec, None, "", "ada").name for _ in range(2))
    write = submissions.write

    def fail(folder, submission):
        if folder.name == full:
            raise RecordError("Cannot write: No space left on device")
        write(folder, submission)

    monkeypatch.setattr(submissions, "write", fail)
    for _ in range(10):
        supervisor.tick()
        clock.now += 1
    assert [Path(arguments[3]).name for arguments in launcher.started] == [good]
    assert state(supervisor, full) is SweepStatus.QUEUED
    monkeypatch.setattr(submissions, "write", write)
    launcher.alive.clear()
    begin(supervisor._catalog.out / good, "completed")
    clock.now += LONGEST_DELAY_SECONDS
    supervisor.tick()
    assert Path(launcher.started[-1][3]).name == full


def test_a_driver_whose_start_could_not_be_written_down_is_known_and_written_down_later(
    supervise, spec, out, launcher, clock, monkeypatch
):
    supervisor, write = supervise(), submissions.write
    name = supervisor.submit(spec, None, "", "ada").name

    def fail(folder, submission):
        if submission.job is not None:
            raise OSError(28, "No space left on device")
        write(folder, submission)

    monkeypatch.setattr(submissions, "write", fail)
    for _ in range(100):
        supervisor.tick()
        clock.now += 1
    assert len(launcher.started) == 1
    assert state(supervisor, name) is SweepStatus.STARTING
    assert submissions.read(out / name).job is None
    monkeypatch.setattr(submissions, "write", write)
    supervisor.tick()
    assert submissions.read(out / name).job == "job1"
    (out / name / SUBMISSION_NAME).write_text(
        (out / name / SUBMISSION_NAME).read_text().replace('"trials": null', '"trials": 7')
    )
    supervisor.tick()
    assert submissions.read(out / name).trials == 7, "it is written once"


def test_a_place_without_room_for_what_drivers_need_delays_them(supervise, spec, out, launcher, clock):
    (out / NO_DATA).touch()  # no folder can be made there
    supervisor, name = started(supervise, spec)
    assert (launcher.started, state(supervisor, name)) == ([], SweepStatus.QUEUED)
    (out / NO_DATA).unlink()
    clock.now += LONGEST_DELAY_SECONDS
    supervisor.tick()
    assert len(launcher.started) == 1


def test_a_driver_that_cannot_be_asked_to_stop_is_one_all_the_same(supervise, spec, out, launcher):
    supervisor, name = running(supervise, spec, out)
    (out / name / "requests.jsonl").mkdir()
    supervisor.stop(name, by="ada")
    supervisor.submit(spec, None, "", "ada")
    supervisor.tick()
    assert len(launcher.started) == 1, "as many as may run"


@pytest.mark.parametrize("status", ["completed", "stopped", "failed"])
def test_nobody_asks_whether_a_driver_lives_whose_end_was_seen(status, supervise, spec, out, launcher, monkeypatch):
    supervisor, name = started(supervise, spec)
    begin(out / name, status)
    launcher.alive.clear()
    supervisor.tick()
    monkeypatch.setattr(launcher, "is_alive", lambda _: pytest.fail("this may take long"))
    for each in (supervisor, supervise()):
        assert state(each, name) is SweepStatus(status)
    with pytest.raises(RecordError, match="has ended"):
        supervisor.stop(name, by="ada")


def test_a_spec_that_does_not_fit_its_data_fails_with_the_drivers_own_sentence(supervise, spec, out, launcher):
    supervisor, name = started(supervise, spec)
    launcher.alive.clear()
    (out / name / "failure.json").write_text('{"said": "Expected batch_size <= N"}')
    supervisor.tick()
    standing = supervisor.status(name)
    assert (standing.state, standing.reason, standing.started) == (
        SweepStatus.FAILED,
        "Expected batch_size <= N",
        False,
    )
    supervisor.resume(name, by="ada")
    supervisor.tick()
    launcher.alive.clear()
    supervisor.tick()
    assert supervisor.status(name).state is SweepStatus.QUEUED, "the driver that was killed has said nothing"


def test_a_sweep_that_waits_is_stopped_and_never_begins(supervise, spec, launcher):
    supervisor, name = submitted(supervise, spec)
    supervisor.stop(name, by="ada")
    supervisor.tick()
    assert launcher.started == []
    standing = supervisor.status(name)
    assert (standing.state, standing.submission.cause) == (SweepStatus.STOPPED, Cause.NEVER_BEGUN)
    supervisor.resume(name, by="ada")
    supervisor.tick()
    assert launcher.started[0][0] == "run"


def test_a_driver_that_has_not_begun_is_ended(supervise, spec, launcher):
    supervisor, name = started(supervise, spec)
    supervisor.stop(name, by="ada")
    assert state(supervisor, name) is SweepStatus.STOPPING
    supervisor.tick()
    supervisor.tick()
    assert launcher.killed == ["job1"]
    assert state(supervisor, name) is SweepStatus.STOPPED


def test_a_stop_is_asked_again_until_the_driver_hears_it(supervise, spec, out, launcher, clock):
    supervisor, name = running(supervise, spec, out)
    supervisor.stop(name, by="ada")
    driver = Requests(out / name)  # which begins to listen only now
    assert not driver.look().stop
    clock.now += ASK_AGAIN_SECONDS + 1
    supervisor.tick()
    supervisor.tick()
    assert driver.look().stop
    assert not driver.look().stop
    begin(out / name, "stopped")
    launcher.alive.clear()
    supervisor.tick()
    assert state(supervisor, name) is SweepStatus.STOPPED
    clock.now += 10_000
    supervisor.tick()
    assert len(launcher.started) == 1


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("how", ["service", "command"])
def test_a_stop_is_not_undone_by_a_death_or_a_restart(how, restart, supervise, spec, out, launcher, clock):
    supervisor, name = running(supervise, spec, out)
    if how == "service":
        supervisor.stop(name, by="ada")
    else:
        ask_to_stop(out / name, driven=True)
    launcher.alive.clear()  # killed before it heard
    if restart:
        supervisor = supervise()
    for _ in range(3):
        supervisor.tick()
        clock.now += 1000
    assert len(launcher.started) == 1
    assert state(supervisor, name) is SweepStatus.INTERRUPTED


def test_a_sweep_that_somebody_else_drives_is_stopped_by_asking(supervise, make_sweep):
    folder, supervisor = make_sweep(status="running"), supervise()
    assert state(supervisor, DONE) is SweepStatus.LOST
    with driver_lock(folder.path):
        assert state(supervisor, DONE) is SweepStatus.RUNNING
        driver = Requests(folder.path)
        supervisor.stop(DONE, by="ada")
        assert driver.look().stop
    with pytest.raises(RecordError, match="no process drives"):
        supervisor.stop(DONE, by="ada")


def test_one_trial_is_stopped_if_it_runs(supervise, make_sweep):
    folder, supervisor = make_sweep(status="running"), supervise()
    with driver_lock(folder.path), pytest.raises(RecordError, match="that has not ended, got"):
        supervisor.stop(DONE, "t0001", by="ada")


@pytest.mark.parametrize("trials", [1, 2, 3])
def test_a_sweep_whose_budget_was_cut_takes_no_other_number_of_trials(trials, supervise, make_sweep):
    folder, supervisor = make_sweep(), supervise()
    content = json.loads((folder.path / "sweep.json").read_text())
    content["course"]["stages"] = [1, 1]
    (folder.path / "sweep.json").write_text(json.dumps(content))
    with pytest.raises(RecordError, match=rf"was cut into 2 trials before its first result, got trials={trials}; sub"):
        supervisor.resume(DONE, trials=trials, by="ada")


@pytest.mark.usefixtures("out")
def test_an_ended_sweep_is_extended_and_goes_on_after_deaths(supervise, make_sweep, launcher, clock):
    folder, supervisor = make_sweep(), supervise()
    with pytest.raises(RecordError, match="has completed all of them; extend it"):
        supervisor.resume(DONE, by="ada")
    with pytest.raises(RecordError, match=r"Expected at least the 2 trials of .*, got trials=1"):
        supervisor.resume(DONE, trials=1, by="ada")
    supervisor.resume(DONE, trials=4, by="ada")
    with pytest.raises(RecordError, match="is queued; stop it first"):
        supervisor.resume(DONE, trials=5, by="ada")
    supervisor.tick()
    page = f"http://127.0.0.1:8000/?sweep={folder.path.name}"
    assert launcher.started == [["extend", str(folder.path), "--trials", "4", "--page", page]]
    launcher.alive.clear()
    supervisor.tick()
    assert state(supervisor, DONE) is SweepStatus.QUEUED, "it had completed, but before"
    clock.now += 10
    supervise().tick()
    assert launcher.started[1] == launcher.started[0]


def test_more_trials_than_there_are_configurations_are_refused(supervise, make_sweep, content):
    make_sweep(spec=content | {"model": {"architecture": "mlp", "width": [16, 32]}, "search": {"trials": 2}})
    with pytest.raises(SpecError, match="trials <= 2"):
        supervise().resume(DONE, trials=3, by="ada")


def test_a_stopped_sweep_is_resumed_and_a_private_one_is_not(supervise, make_sweep, launcher, content):
    make_sweep(status="stopped")
    supervisor = supervise()
    supervisor.resume(DONE, by="ada")
    supervisor.tick()
    assert launcher.started[0][0] == "resume"
    private = content | {"search": {"selection": "private"}}
    make_sweep("private-20250101-000000", status="stopped", spec=private)
    with pytest.raises(RecordError, match="selected privately; submit another one"):
        supervisor.resume("private-20250101-000000", by="ada")


@pytest.mark.parametrize("spec", [None, [], "search"])
def test_a_sweep_whose_spec_is_gone_cannot_go_on(spec, supervise, make_sweep):
    make_sweep(spec=spec)
    with pytest.raises(RecordError, match=r"Expected spec of a sweep in .*sweep\.json, got "):
        supervise().resume(DONE, by="ada")


def test_a_sweep_that_is_deleted_is_forgotten(supervise, spec, out, launcher):
    supervisor, name = submitted(supervise, spec)
    assert supervisor.names() == (name,)
    shutil.rmtree(out / name)
    assert supervisor.names() == ()
    with pytest.raises(UnknownSweepError):
        supervisor.status(name)
    supervisor.tick()
    assert launcher.started == []
    with pytest.raises(UnknownSweepError):
        supervisor.stop("none", by="ada")


@pytest.mark.usefixtures("out")
def test_a_submission_that_cannot_be_read_is_left_alone(client, make_sweep, launcher):
    folder = make_sweep(status="running")
    (folder.path / SUBMISSION_NAME).write_text('{"version": 1}')
    with pytest.raises(RecordError, match="but not in submitted; remove the file"):
        submissions.read(folder.path)
    supervisor = client.app.state.parts.supervisor
    supervisor.close()
    supervisor.open()
    supervisor.tick()
    assert launcher.started == []


def test_one_service_has_a_folder(client, out, launcher):
    other = Supervisor(ServiceSettings(out=out), Catalog(out), launcher, Metrics())
    with pytest.raises(RecordError, match=r"Expected no other service of .*, but one runs"):
        other.open()
    client.app.state.parts.supervisor.close()
    other.open()
    other.close()


def test_a_folder_that_cannot_be_taken_is_named(tmp_path, launcher):
    (tmp_path / "file").touch()
    supervisor = Supervisor(ServiceSettings(), Catalog(tmp_path / "file"), launcher, Metrics())
    with pytest.raises(RecordError, match=r"Cannot write .*choose another with --out"):
        supervisor.open()


def test_a_broken_folder_does_not_keep_others_from_running(supervise, spec, out, launcher, clock):
    supervisor = supervise(drivers=2)
    broken = supervisor.submit(spec, None, "", "ada").name
    supervisor.tick()
    (out / broken / "requests.jsonl").write_text("odd\n{}\n")
    launcher.alive.clear()
    clock.now += 1
    good = supervisor.submit(spec, None, "", "ada").name
    supervisor.tick()
    assert Path(launcher.started[-1][3]).name == good


def test_requests_that_cannot_be_read_start_no_driver_and_keep_nobody_waiting(supervise, spec, out, launcher):
    supervisor = supervise(drivers=2)
    odd, good = (supervisor.submit(spec, None, "", "ada").name for _ in range(2))
    (out / odd / "requests.jsonl").write_text("odd\n{}\n")
    supervisor.tick()
    assert [Path(arguments[3]).name for arguments in launcher.started] == [good]
    assert state(supervisor, odd) is SweepStatus.QUEUED


def test_whoever_asks_does_not_wait_for_a_driver_that_is_being_started(supervise, spec, launcher, monkeypatch):
    supervisor, name = submitted(supervise, spec)
    entered, leave, start = threading.Event(), threading.Event(), launcher.start

    def slow(*given):
        entered.set()
        assert leave.wait(300)
        return start(*given)

    monkeypatch.setattr(launcher, "start", slow)
    ticking = threading.Thread(target=supervisor.tick)
    ticking.start()
    assert entered.wait(300)
    answered = []

    def ask():
        answered.append(supervisor.status(name).state)
        answered.append(supervisor.names())

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(300)
    told = list(answered)
    leave.set()
    ticking.join()
    assert told == [SweepStatus.QUEUED, (name,)]


@pytest.mark.usefixtures("spec")
def test_a_thousand_sweeps_of_one_second_are_too_many(out, monkeypatch):
    monkeypatch.setattr(submissions, "MOST_IN_A_SECOND", 3)
    now, names = datetime.datetime(2025, 3, 1), []
    for _ in range(2):
        names.append(submissions.reserve(out, "x", "", submissions.Submission(submitted=0.0), now).name)
    assert names == ["x-20250301-000000", "x-20250301-000000-2"]
    with pytest.raises(RecordError, match="a thousand exist"):
        submissions.reserve(out, "x", "", submissions.Submission(submitted=0.0), now)
