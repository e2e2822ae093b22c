"""Drivers as jobs of a cluster: what is submitted, what is known of them, and what happens when the head is gone."""

import socket
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from sweeper.backend.interruption import Interruption
from sweeper.backend.on_ray import jobs
from sweeper.backend.on_ray.jobs import RayJobLauncher, is_job_server, run_as_job
from sweeper.cli.commands.running import with_whole_paths
from sweeper.cli.main import main
from sweeper.errors import SweeperError
from sweeper.service.supervision.launcher import Launcher
from sweeper.specification.spec import Spec


class Server:
    """A job server that a test leads."""

    def __init__(self):
        self.submitted, self.stopped, self.asked = [], [], 0
        self.statuses, self.log, self.error = ["RUNNING"], "", None

    def submit_job(self, **job):
        self._answer()
        self.submitted.append(job)
        return job["submission_id"]

    def get_job_status(self, _job):
        self._answer()
        self.asked += 1
        value = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return SimpleNamespace(value=value, is_terminal=lambda: value in ("SUCCEEDED", "FAILED", "STOPPED"))

    def get_job_logs(self, _job):
        self._answer()
        return self.log

    def stop_job(self, job):
        self._answer()
        self.stopped.append(job)
        self.statuses = ["STOPPED"]

    def _answer(self):
        if self.error is not None:
            raise self.error


@pytest.fixture
def server(monkeypatch):
    made = Server()
    monkeypatch.setattr(RayJobLauncher, "_client", lambda _self: made)
    monkeypatch.setattr(jobs, "FORGET_SECONDS", 0.0)
    monkeypatch.setattr(jobs, "SILENT_SECONDS", 0.0)
    monkeypatch.setattr(jobs, "LOOK_SECONDS", 0.0)
    return made


@pytest.fixture
def launcher(server):  # noqa: ARG001
    launcher: Launcher = RayJobLauncher("http://head:8265")
    return launcher


def test_a_head_that_takes_a_question_and_never_answers_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(jobs, "ANSWER_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        launcher = RayJobLauncher(f"http://127.0.0.1:{silent.getsockname()[1]}")
        found = []

        def ask():
            found.append(launcher.is_alive("x-1"))
            with pytest.raises(SweeperError, match="Cannot submit to the Ray cluster"):
                launcher.start(["run", "spec.yaml"], Path("x"))
            found.append("refused")

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(300)  # it would wait for ever
        assert found == [True, "refused"], "it may be alive"


@pytest.mark.parametrize(
    ("address", "found"),
    [("http://head:8265", True), ("https://head", True), ("head:6379", False), ("auto", False), (None, False)],
)
def test_a_job_server_is_told_from_a_cluster_by_its_address(address, found):
    assert is_job_server(address) is found


def test_a_driver_runs_on_the_cluster_that_it_is_sent_to(launcher, server, tmp_path):
    arguments = ["run", "a b.yaml", "--cluster", "http://head:8265", "--into", str(tmp_path)]
    job = launcher.start(arguments, tmp_path)
    (made,) = server.submitted
    assert made["submission_id"] == job
    assert job.startswith(tmp_path.name)
    assert made["entrypoint"].startswith("python -c ")
    assert made["entrypoint"].endswith(f"run 'a b.yaml' --cluster auto --into {tmp_path}")


def test_a_sweep_that_goes_on_keeps_the_cluster_that_it_began_with(launcher, server, tmp_path):
    launcher.start(["resume", str(tmp_path)], tmp_path)
    assert server.submitted[0]["entrypoint"].endswith(f"resume {tmp_path}")


def test_two_drivers_of_a_sweep_have_different_names(launcher, tmp_path):
    assert launcher.start(["resume", "x"], tmp_path) != launcher.start(["resume", "x"], tmp_path)


def test_a_job_is_alive_until_it_has_ended(launcher, server):
    server.statuses = ["PENDING", "RUNNING", "FAILED"]
    assert [launcher.is_alive("j") for _ in range(4)] == [True, True, False, False]
    assert server.asked == 3, "a job that has ended is not asked about again"


def test_answers_are_shared_for_a_while(launcher, server, monkeypatch):
    monkeypatch.setattr(jobs, "FORGET_SECONDS", 1e9)
    assert all(launcher.is_alive("j") for _ in range(5))
    assert server.asked == 1


def test_while_the_head_does_not_answer_nobody_is_declared_dead(launcher, server):
    server.error = ConnectionError("refused")
    assert launcher.is_alive("j")
    assert launcher.log("j") == ""
    assert not launcher.has_succeeded("j")
    launcher.kill("j")
    server.error = RuntimeError("Request failed with status code 404: Job j does not exist.")
    assert not launcher.is_alive("j"), "a head that was started again knows no job of before"


def test_whether_the_head_is_away_is_what_the_last_question_or_start_says(launcher, server, monkeypatch, tmp_path):
    monkeypatch.setattr(jobs, "SILENT_SECONDS", 0.0)
    server.statuses = ["RUNNING"]
    assert launcher.is_alive("j")
    assert not launcher.is_away()
    server.error = ConnectionError("refused")
    assert launcher.is_alive("k")
    assert launcher.is_away()
    server.error = RuntimeError("Request failed with status code 404: Job k does not exist.")
    assert not launcher.is_alive("k")
    assert not launcher.is_away(), "it has answered"
    server.error = ConnectionError("refused")
    with pytest.raises(SweeperError, match="Cannot submit"):
        launcher.start(["resume", "x"], tmp_path)
    assert launcher.is_away()
    server.error = None
    launcher.start(["resume", "x"], tmp_path)
    assert not launcher.is_away()


def test_a_head_that_did_not_answer_about_one_job_is_not_asked_about_others_for_a_while(launcher, server, monkeypatch):
    monkeypatch.setattr(jobs, "SILENT_SECONDS", 600.0)
    calls = []
    monkeypatch.setattr(server, "_answer", lambda: calls.append(1) or (_ for _ in ()).throw(TimeoutError("hung")))
    assert all(launcher.is_alive(f"j{i}") for i in range(5))
    assert len(calls) == 1


def test_a_job_that_was_taken_though_the_answer_was_lost_is_not_started_twice(launcher, server, monkeypatch, tmp_path):
    taken, submit = [], server.submit_job

    def lossy(submission_id, **_job):
        if submission_id in taken:
            raise RuntimeError(f"Job with submission_id {submission_id} already exists. Please use a different one.")
        taken.append(submission_id)
        raise TimeoutError("no answer")

    monkeypatch.setattr(server, "submit_job", lossy)
    with pytest.raises(SweeperError, match="Cannot submit"):
        launcher.start(["resume", "x"], tmp_path)
    assert [launcher.start(["resume", "x"], tmp_path)] == taken
    monkeypatch.setattr(server, "submit_job", submit)
    assert launcher.start(["resume", "x"], tmp_path) not in taken, "it has ended, and goes on"


def test_a_server_that_cannot_be_reached_is_one_sentence(launcher, server, tmp_path):
    server.error = ConnectionError("Failed to connect to Ray")
    with pytest.raises(SweeperError, match="Cannot submit to the Ray cluster at http://head:8265: ConnectionError"):
        launcher.start(["resume", "x"], tmp_path)


def test_no_client_is_made_for_an_address_where_nobody_listens(tmp_path):
    with pytest.raises(SweeperError, match=r"127\.0\.0\.1:9"):
        RayJobLauncher("http://127.0.0.1:9").start(["resume", "x"], tmp_path)


@pytest.fixture
def spec(content, tmp_path):
    return Spec.from_mapping(content, str(tmp_path / "spec.yaml"))


def test_the_text_of_a_job_is_told_once(server, spec):
    server.statuses, server.log, said = ["RUNNING", "RUNNING", "SUCCEEDED"], "tiny: 1 of 3\n", []
    assert run_as_job("tiny", spec.to_yaml(), "http://head:8265", ["--out", "/sweeps"], said.append, Interruption())
    assert said[1:] == ["tiny: 1 of 3\n"]
    (made,) = server.submitted
    assert made["entrypoint"].endswith("run spec.yaml --out /sweeps --cluster auto")
    assert "working_dir" in made["runtime_env"]


def test_a_job_that_fails_is_told(server, spec):
    server.statuses = ["FAILED"]
    assert not run_as_job("tiny", spec.to_yaml(), "http://head:8265", [], lambda _: None, Interruption())


def test_an_interruption_tells_the_driver_to_stop_and_waits_for_it(server, spec):
    interruption = Interruption()
    interruption.requested = True
    assert not run_as_job("tiny", spec.to_yaml(), "http://head:8265", [], lambda _: None, interruption)
    assert len(server.stopped) == 1


@pytest.mark.parametrize(("well", "code"), [(True, 0), (False, 2)])
def test_the_program_runs_a_sweep_as_a_job_with_paths_that_mean_the_same_there(
    content, tmp_path, monkeypatch, well, code
):
    given = []
    monkeypatch.setattr(jobs, "run_as_job", lambda *given_: given.append(given_) or well)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.yaml").write_text(Spec.from_mapping(content).to_yaml())
    arguments = ["run", "spec.yaml", "--cluster", "http://head:8265", "--tracking", "http://m:5000", "--seed", "7"]
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert (ended.value.code or 0) == code
    ((_, text, address, more, _, _),) = given
    assert "seed: 7" in text
    assert address == "http://head:8265"
    assert more == ["--set", "search.seed=7", "--out", str(tmp_path / "sweeps-out"), "--tracking", "http://m:5000"]


def test_a_store_with_a_password_in_the_environment_is_refused_before_a_job_names_it(
    content, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(jobs, "run_as_job", lambda *_: pytest.fail("submitted"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://ada:hunter2@m:5000")
    (tmp_path / "spec.yaml").write_text(Spec.from_mapping(content).to_yaml())
    with pytest.raises(SystemExit):
        main(["run", str(tmp_path / "spec.yaml"), "--cluster", "http://head:8265"])
    said = capsys.readouterr().err
    assert "without a password" in said
    assert "hunter2" not in said


def test_a_spec_names_the_same_files_from_everywhere(content, tmp_path):
    (tmp_path / "patients.csv").write_text("a,y\n1,0\n")
    (tmp_path / "ranges.yaml").write_text("a: [0, 1]\n")
    (tmp_path / "earlier").mkdir()
    content["data"] = {"path": "patients.csv", "target": "y", "ranges": "ranges.yaml", "evaluation": "public"}
    content["search"] = {"warm_start": "earlier"}
    found = with_whole_paths(Spec.from_mapping(content, str(tmp_path / "spec.yaml")))
    assert found.data.path == str(tmp_path / "patients.csv")
    assert found.data.ranges == str(tmp_path / "ranges.yaml")
    assert found.search.warm_start == str(tmp_path / "earlier")
