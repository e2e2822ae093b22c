"""The stack as `make stack` runs it: a sweep as its users see it, and the short form of ``benchmarks/stack_faults.py``."""

import contextlib
import importlib
import json
import os
import random
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
import torch
from mlflow import MlflowClient
from playwright.sync_api import expect, sync_playwright

import clipless
import sweeper
from dashboards.export.pictures import find_browser
from sweeper.records import SweepStatus, TrialStatus
from sweeper.tracking.tracker import SPOOL_NAME, Tracker, replay_spool

pytestmark = [
    pytest.mark.postgresql,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy"),
]
PATIENCE = 420_000
DRAWN = """(document.querySelector('#figure-front .js-plotly-plot')?.data ?? [])
    .filter((trace) => trace.mode === 'markers' && trace.text && !trace.name.startsWith('models of the line'))
    .reduce((sum, trace) => sum + trace.x.length, 0)"""
BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"

# In the namespace: a driver that tracks a trial, one epoch before the network is cut and one while it is.
TRACKING = """
import sys, time
from pathlib import Path
from sweeper.records import TrialStatus
from sweeper.tracking.tracker import Tracker
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
    """A stack, its folder, and, for root, the cable between its MLflow and a network namespace."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        Path(folder).chmod(0o755)
        running, cable = stack.enter_context(faults.counted_stack(Path(folder)))
        yield running, Path(folder), cable


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


@pytest.fixture
def page():
    """A browser's page, in which nothing may go wrong."""
    troubles = []
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=str(find_browser()), args=arguments, timeout=300_000)
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda said: troubles.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        yield page
        browser.close()
    assert troubles == []


def taken(page, link):
    """Return the bytes of a file that a link of the page downloads."""
    with page.expect_download() as download:
        page.get_by_role("link", name=link, exact=True).click()
    return download.value.path().read_bytes()


@pytest.mark.chromium
def test_a_submitted_sweep_is_watched_filtered_picked_and_taken_away_in_a_browser(
    ground, faults, client, page, tmp_path
):
    running, folder, _ = ground
    campaign = faults.StackCampaign(folder, 48, 60, random.Random(0), name="watched", stack=running)
    campaign.submit()
    service = f"http://{running.address('sweeper', 8600)}"

    def ask(what, **query):
        url = f"{service}/api/v1/sweeps/{campaign.id}{what}?{urlencode(query)}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {running.token}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()

    page.goto(service)
    page.get_by_label("Token").fill(running.token)
    page.get_by_role("button", name="Sign in to read").click()
    page.get_by_role("link", name=campaign.id).click()
    page.wait_for_function(f"{DRAWN} > 0")
    page.wait_for_function(f"(before) => {DRAWN} !== before", arg=page.evaluate(DRAWN))
    assert campaign.state() is SweepStatus.RUNNING
    expect(page.locator("#pulse")).to_have_text("live")
    campaign.wait_for_end()
    expect(page.locator("#pulse")).to_have_text("ended", timeout=PATIENCE)
    swept = sweeper.load(campaign.sweep)
    page.wait_for_function(f"(count) => {DRAWN} === count", arg=len(swept.front().points))
    assert {trial.placed["node"] for trial in swept.folder.trials().values()} == {
        place.name for place in running.places if place.of == "ray-worker"
    }

    page.get_by_role("slider", name="epsilon ≤").focus()
    for _ in range(4):
        page.keyboard.press("PageDown")
    page.wait_for_function(  # an address that an earlier key has led to is not the last one
        """() => {
            const limit = new URLSearchParams(location.search).get('max-epsilon');
            return limit && Math.abs(Math.log10(limit) - document.getElementById('max-epsilon').value) < 0.006;
        }"""
    )
    limit = float(parse_qs(urlsplit(page.url).query)["max-epsilon"][0])
    picked = json.loads(ask("/pick", max_epsilon=limit))
    assert picked["values"]["epsilon"] <= limit < 10
    made = filter(None, [picked["trial"], f"epoch {picked['epoch']}", picked.get("made_from")])
    expect(page.locator("#part-picked h3")).to_have_text(", ".join(made), timeout=PATIENCE)
    (tmp_path / "model.safetensors").write_bytes(taken(page, "Model"))
    network = clipless.load(tmp_path / "model.safetensors")
    assert network(torch.zeros(1, *network.input_shape)).shape == (1, 10)
    assert taken(page, "Card") == ask("/card", max_epsilon=limit)
    run = client.get_run(urlsplit(page.get_by_role("link", name="MLflow run").get_attribute("href")).fragment[6:])
    assert (run.data.tags["sweeper.trial"], run.info.status) == (picked["trial"], "FINISHED")
    assert len(ended(client, "watched")) == 49

    page.get_by_role("link", name="Export", exact=True).click()
    assert taken(page, "CSV") == ask("/front", format="csv")
    assert taken(page, "PNG").startswith(b"\x89PNG")


def test_nothing_is_lost_whatever_part_of_the_stack_is_killed(ground, faults):
    """A sweep that the service runs on two workers, each part killed once, the head last: it is resumed."""
    running, folder, _ = ground
    campaign = faults.StackCampaign(folder, 4, 64, random.Random(0), name="fault", stack=running)
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
def test_what_is_tracked_while_the_network_is_cut_arrives_afterwards(ground, client, tmp_path):
    running, _, cable = ground
    running.wait_until_well("mlflow")
    command = [*cable.within, sys.executable, "-c", TRACKING, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with subprocess.Popen([*command, client.tracking_uri], **pipes) as driver:
        assert driver.stdout.readline() == "tracked\n"
        cable.cut()
        driver.stdin.write("\n")
        assert driver.stdout.readline() == "goes on\n"
        run = client.get_run(client.search_runs([client.get_experiment_by_name("cut").experiment_id])[0].info.run_id)
        assert run.info.status == "RUNNING"
        cable.mend()
        driver.stdin.write("\n")
        assert driver.stdout.readline() == "0\n"
    run = ended(client, "cut")["t0001"]
    assert [metric.step for metric in client.get_metric_history(run.info.run_id, "accuracy")] == [1, 2]
