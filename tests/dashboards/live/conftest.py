"""Sweeps on disk as a service would have them: an ended one, and one that grows row by row."""

import contextlib
import gzip
import json
import os
import socket
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

from clipless.privacy.events import PoissonGaussian, Relation
from dashboards.export.pictures import find_browser
from dashboards.live.dynamic import PARTS, DynamicFragments, Rights
from dashboards.live.resources import Resources
from dashboards.live.snapshots import Snapshots
from dashboards.live.view import View
from sweeper.adapters import parse
from sweeper.records import Point, SweepStatus, Trial, TrialPlan, TrialStatus
from sweeper.service.catalog import Catalog
from sweeper.service.settings import Limits, ServiceSettings
from sweeper.service.standings import RecordedStandings
from sweeper.store.lock import driver_lock
from sweeper.store.manifest import Manifest
from sweeper.store.sweep_folder import SweepFolder

from .browsing import PATIENCE, is_foreign, serving

ENDED = "digits-20260101-120000"
RUNNING = "grows-20260102-120000"
EVENT = PoissonGaussian(noise_multiplier=2.0, sampling_rate=0.2, steps=50, relation=Relation.ADD_OR_REMOVE_ONE)
PLAN = parse(
    TrialPlan,
    {
        "population": 1000,
        "batch_size": 200,
        "sampling_rate": 0.2,
        "steps_per_epoch": 5,
        "preliminary_steps": 0,
        "epochs": 10,
        "noise_multiplier": 2.0,
        "delta": 1e-4,
        "relation": "add-or-remove-one",
        "allocation": "min-variance",
        "method": "clipless",
        "clip_norm": None,
        "follow_weights": False,
        "clipping": {"kind": "constant"},
        "count_std": 0.0,
        "freezing": None,
        "sensitivity_fraction": 0.3,
        "sensitivities": {"1.weight": 2.5},
        "noise_stds": {"1.weight": 7.5},
        "event": EVENT.to_json(),
        "repeats": 1,
        "secure_generator": True,
        "epsilon_curve": [0.1 * epoch for epoch in range(1, 11)],
        "accountants": {"pld": [0.1 * epoch for epoch in range(1, 11)]},
    },
)


class Growing:
    """A sweep that runs, driven by hand; its front is rewritten only when it is asked for."""

    def __init__(self, path: Path, front: dict) -> None:
        path.mkdir(parents=True)
        self.folder = SweepFolder(path)
        self._front = front | {"sweep": "grows", "trials": {}, "points": []}
        self.describe("running")
        self.write_front()
        self.stop_driving: Callable[[], None] = lambda: None

    def describe(self, status: str, **more: object) -> None:
        self.folder.write_manifest(
            Manifest(name="grows", status=SweepStatus(status), spec={}, source="spec.yaml", **more)
        )

    def write_front(self) -> None:
        (self.folder.path / "front.json").write_text(json.dumps(self._front))

    def start(self, id_: str, architecture: str = "mlp", plan: TrialPlan | None = None) -> None:
        config = {"model": {"architecture": architecture}}
        self.folder.save_trial(Trial(id=id_, config=config, plan=PLAN if plan is None else plan))

    def end(self, id_: str, status: TrialStatus = TrialStatus.COMPLETED, reason: str = "") -> None:
        config = {"model": {"architecture": "mlp"}}
        self.folder.save_trial(Trial(id=id_, config=config, plan=PLAN, status=status, reason=reason))

    def add(self, id_: str, epoch: int, epsilon: float, accuracy: float, certified: float = 0.1) -> None:
        values = {"epsilon": epsilon, "accuracy": accuracy, "certified@0.25": certified}
        self.folder.save_points([Point(trial=id_, epoch=epoch, values=values, accountants={"rdp": epsilon})])


@pytest.fixture
def out(tmp_path: Path, write_sweep: Callable[..., Path]) -> Path:
    """Where the sweeps live."""
    folder = tmp_path / "out"
    write_sweep(folder / ENDED)
    return folder


@pytest.fixture
def growing(out: Path, make_front: Callable[..., dict]) -> Iterator[Growing]:
    """A second sweep, which runs."""
    growing = Growing(out / RUNNING, make_front())
    with contextlib.ExitStack() as stack:
        stack.enter_context(driver_lock(growing.folder.path))
        growing.stop_driving = stack.close
        yield growing


@pytest.fixture
def catalog(out: Path) -> Catalog:
    return Catalog(out)


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def snapshots(catalog: Catalog, clock: Clock) -> Snapshots:
    return Snapshots(catalog, clock)


@pytest.fixture
def parts(snapshots: Snapshots, catalog: Catalog, clock: Clock) -> DynamicFragments:
    """What depends on who asks, as it is without a service."""
    standings = RecordedStandings(catalog, clock)
    return DynamicFragments(snapshots, catalog, standings, now=lambda: datetime(2026, 1, 1, 15, 30))


@pytest.fixture
def resources(snapshots: Snapshots) -> Resources:
    return Resources(snapshots)


@pytest.fixture
def show(resources: Resources, parts: DynamicFragments) -> Callable[..., object]:
    """The content of a resource: JSON as values, markup as text."""

    def get(kind: str, name: str, view: View = View(sweep=ENDED), rights: Rights = Rights()) -> object:  # noqa: B008
        own = kind == "part" and name in PARTS
        made = parts.get(name, view, rights) if own else resources.get(kind, name, view)
        text = gzip.decompress(made.content).decode()
        return json.loads(text) if made.media_type == "application/json" else text

    return get


@pytest.fixture(scope="module")
def browsers():
    """What starts a browser, and how."""
    with sync_playwright() as playwright:
        expect.set_options(timeout=PATIENCE)
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        options = {"executable_path": str(find_browser()), "args": [*arguments, "--enable-unsafe-swiftshader"]}
        yield playwright.chromium, options


@pytest.fixture(scope="module")
def chromium(browsers):
    kind, options = browsers
    with contextlib.closing(kind.launch(timeout=300_000, **options)) as browser:
        yield browser


@pytest.fixture(scope="module")
def context(browsers, tmp_path_factory):
    """A browser that keeps from one page to the next what it has compiled, which costs more than all the rest."""
    kind, options = browsers
    with contextlib.closing(kind.launch_persistent_context(tmp_path_factory.mktemp("browser"), **options)) as context:
        yield context


@pytest.fixture(scope="module")
def listening():
    """One port for the services of all tests: a browser keeps scripts by address."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        yield listening


@pytest.fixture
def accounts():
    """Accounts of data sets of the service."""
    return {}


@pytest.fixture
def address(out, listening, accounts):
    """Where a service of these sweeps listens."""
    settings = ServiceSettings(out=out, limits=Limits(requests_per_second=0), accounts=accounts)
    with serving(settings, listening) as address:
        yield address


@pytest.fixture
def visit(request, context, address):
    """Open the page; at the end nothing may have gone wrong in the browser, and nothing have been asked elsewhere.

    A page with options of its own remembers nothing of others, nor they of it.
    """
    troubles, opened = [], []

    def open_(search="", *, width=1300, height=900, **options):
        own = request.getfixturevalue("chromium").new_context(**options) if options else context
        page = own.new_page()
        opened.append(own if options else page)
        page.set_viewport_size({"width": width, "height": height})
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda said: troubles.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: troubles.append(f"dialog {dialog.message}") or dialog.dismiss())
        page.on("request", lambda asked: troubles.append(asked.url) if is_foreign(asked.url, address) else None)
        page.goto(f"{address}/{search}")
        return page

    yield open_
    for one in opened:
        one.close()
    assert troubles == []
