"""The short form of ``benchmarks/stack_faults.py``: the stack as `make stack` runs it, and what it survives."""

import contextlib
import importlib
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from mlflow import MlflowClient

from sweeper.records import TrialStatus
from sweeper.tracking import SPOOL_NAME, Tracker, replay_spool

pytestmark = [
    pytest.mark.postgresql,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy"),
]
BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"

# In the namespace: a driver that tracks a trial, one epoch before the network is cut and one while it is.
TRACKING = """
import sys, time
from pathlib import Path
from sweeper.records import TrialStatus
from sweeper.tracking import Tracker
tracker = Tracker(Path(sys.argv[1]), "cut", uri=sys.argv[2])
tracker.start_trial("t0001", {}, {})
tracker.log("t0001", 1, {"accuracy": 0.5})
while tracker.run_id("t0001") is None:
    time.sleep(0.1)
print("tracked", flush=True)
sys.stdin.readline()
tracker.log("t0001", 2, {"accuracy": 0.6})
time.sleep(3)
tracker.end_trial("t0001", TrialStatus.COMPLETED)
print("goes on", flush=True)
sys.stdin.readline()
print(tracker.close(TrialStatus.COMPLETED, timeout_seconds=120).rows, flush=True)
"""


@pytest.fixture(scope="module")
def faults():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("stack_faults")


@pytest.fixture(scope="module")
def ground(faults):
    """A stack, its folder, and, for root, what cuts its MLflow off from a network namespace."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        Path(folder).chmod(0o755)
        running, set_whole = stack.enter_context(faults.counted_stack(Path(folder)))
        yield running, Path(folder), set_whole


@pytest.fixture
def client(ground):
    running, _, _ = ground
    return MlflowClient(tracking_uri=f"http://{running.address('mlflow', 5000)}")


def ended(client, name):
    """Return the runs of an experiment by trial, all of which have ended."""
    experiment = client.get_experiment_by_name(name)
    runs = client.search_runs([experiment.experiment_id])
    assert "RUNNING" not in {run.info.status for run in runs}
    return {run.data.tags.get("sweeper.trial"): run for run in runs}


def test_nothing_is_lost_whatever_part_of_the_stack_is_killed(ground, faults):
    """A sweep that the service runs on two workers, each part killed once, the head last: it is resumed."""
    running, folder, _ = ground
    campaign = faults.StackCampaign(folder, 3, 16, random.Random(0), name="fault", stack=running)
    found = faults.kill_during_sweep(running, campaign, "worker", "service", "mlflow", "postgres", "head")
    assert dict.fromkeys(found, "") == found
    assert all(running.starts(name) >= 2 for name in faults.PARTS.values())


@pytest.mark.root
def test_files_wait_while_the_volume_of_artifacts_is_full_and_runs_do_not(ground, faults, client, tmp_path):
    running, _, _ = ground
    running.wait_until_well("mlflow")
    (tmp_path / "front.json").write_text("x" * 100_000)
    with faults.small_disk(running.folder("mlflow", "/artifacts")):
        tracker = Tracker(tmp_path, "full", uri=client.tracking_uri)
        tracker.artifact(tmp_path / "front.json")
        left = tracker.close(TrialStatus.COMPLETED, timeout_seconds=20)
        assert left.rows > 0
        assert ended(client, "full")[None].info.status == "FINISHED"
    replay_spool(tmp_path / SPOOL_NAME)
    (listed,) = client.list_artifacts(ended(client, "full")[None].info.run_id)
    assert (listed.path, listed.file_size) == ("front.json", 100_000)


@pytest.mark.root
def test_what_is_tracked_while_the_network_is_cut_arrives_afterwards(ground, faults, client, tmp_path):
    running, _, set_whole = ground
    running.wait_until_well("mlflow")
    command = ["ip", "netns", "exec", faults.NAMESPACE, sys.executable, "-c", TRACKING, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with subprocess.Popen([*command, client.tracking_uri], **pipes) as driver:
        assert driver.stdout.readline() == "tracked\n"
        set_whole(False)
        driver.stdin.write("\n")
        assert driver.stdout.readline() == "goes on\n"
        run = client.get_run(client.search_runs([client.get_experiment_by_name("cut").experiment_id])[0].info.run_id)
        assert run.info.status == "RUNNING"
        set_whole(True)
        driver.stdin.write("\n")
        assert driver.stdout.readline() == "0\n"
    run = ended(client, "cut")["t0001"]
    assert [metric.step for metric in client.get_metric_history(run.info.run_id, "accuracy")] == [1, 2]
