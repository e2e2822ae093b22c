"""How long the live page takes to show a first figure of 20,000 points, and what ten browsers on one live sweep cost.

    python benchmarks/live_page.py [--trials 1000] [--epochs 20] [--browsers 10] [--seconds 20]

Writes an imagined sweep, serves it as `sweeper serve` does, and looks at it with the Chromium of this machine. Seconds
pass on the wall unless said otherwise: other work on the machine makes them longer.
"""

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from large_store import write
from playwright.sync_api import Browser, BrowserContext, CDPSession, Page, sync_playwright

from dashboards.data import read
from dashboards.export.files import export_front
from dashboards.export.pictures import find_browser
from sweeper.records import Point, SweepStatus
from sweeper.service.app import create_app, warm_up
from sweeper.service.settings import Limits, ServiceSettings
from sweeper.store.manifest import Manifest
from sweeper.store.sweep_folder import SweepFolder

NAME = "imagined-20260101-120000"
FRONT = "document.querySelector('#figure-front .js-plotly-plot')"
DRAWN = f"({FRONT}?.querySelectorAll('.scatterlayer .point').length ?? 0) > 0"
PICTURE = f"({DRAWN}) || document.querySelectorAll('#figure-front .sketch circle').length > 0"
ALONE = "document.querySelectorAll('#plot-front .scatterlayer .point').length > 0"
CHROMIUM = {"executable_path": str(find_browser()), "args": ["--no-sandbox"] if os.geteuid() == 0 else []}
EPOCH = 50  # beyond those that were written


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--browsers", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as parent:
        out = Path(parent)
        said = write(out / NAME, options.trials, options.epochs)
        print(f"{options.trials} trials x {options.epochs} epochs, {said}; load {os.getloadavg()[0]:.1f}\n", flush=True)
        with serving(out) as address, sync_playwright() as playwright:
            browser = playwright.chromium.launch(**CHROMIUM)
            first_figures(browser, f"{address}/?sweep={NAME}")
            alone(browser, out)
            many(browser, f"{address}/?sweep={NAME}", SweepFolder(out / NAME), options.browsers, options.seconds)
            browser.close()


def first_figures(browser: Browser, url: str) -> None:
    """Open the page when nothing is known yet, when the service knows the sweep, when the browser knows the page."""
    print("| opening | seconds to the first figure | CPU of the page | until it answers the mouse | CPU of the page |")
    print("|---|---|---|---|---|")
    for what in ("the sweep unread, the browser empty", "the sweep read, the browser empty"):
        context = browser.new_context()
        print(f"| {what} | {first_figure(context, url)} |", flush=True)
        context.close()
    with tempfile.TemporaryDirectory() as profile:  # which keeps compiled scripts, as browsers of people do
        context = browser.browser_type.launch_persistent_context(profile, **CHROMIUM)
        for _ in range(3):
            first_figure(context, url)
            time.sleep(2)
        print(f"| both warm | {first_figure(context, url)} |", flush=True)
        context.close()


def alone(browser: Browser, out: Path) -> None:
    """Open the same figure as a file with plotly.js and nothing else: what Plotly itself takes in an empty browser."""
    path = export_front(read(out / NAME), out / "front.html", figure="front")
    context = browser.new_context()
    print(
        f"| that figure alone, a file, the browser empty | {first_figure(context, path.as_uri(), ALONE, ALONE)} |",
        flush=True,
    )
    context.close()


def first_figure(context: BrowserContext, url: str, picture: str = PICTURE, drawn: str = DRAWN) -> str:
    """Open the page; return how long its first figure took, as a picture and whole, and the page's processor time."""
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    started = time.monotonic()
    page.goto(url, wait_until="commit")
    page.wait_for_function(picture, timeout=120_000)
    shown, shown_cpu = time.monotonic() - started, cpu_seconds(session)
    page.wait_for_function(drawn, timeout=120_000)
    whole, whole_cpu = time.monotonic() - started, cpu_seconds(session)
    page.close()
    return f"{shown:.2f} | {shown_cpu:.2f} | {whole:.2f} | {whole_cpu:.2f}"


def cpu_seconds(session: CDPSession) -> float:
    """Return the processor time of the page's main thread so far."""
    metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    return float(metrics["ThreadTime"])


def many(browser: Browser, url: str, folder: SweepFolder, count: int, seconds: int) -> None:
    """Let a sweep run on under the eyes of several browsers, and see how late they are and what they cost."""
    folder.write_manifest(Manifest(name=NAME, status=SweepStatus.RUNNING, spec={}, source="spec.yaml"))
    context = browser.new_context()
    pages = [context.new_page() for _ in range(count)]
    for page in pages:
        page.goto(url, wait_until="commit")
    for page in pages:
        page.wait_for_function(DRAWN, timeout=300_000)
    spent, begun = time.process_time(), time.monotonic()
    lags = []
    while time.monotonic() - begun < seconds:
        lags.append(lag(pages, folder, len(lags)))
    passed = time.monotonic() - begun
    print(f"\n| {count} browsers on one live sweep | |\n|---|---|")
    print(f"| rows appended, seen by all | {len(lags)} |")
    print(f"| seconds until all had drawn it, median and worst | {sorted(lags)[len(lags) // 2]:.1f}, {max(lags):.1f} |")
    print(f"| CPU of the service, cores | {(time.process_time() - spent) / passed:.2f} |", flush=True)
    context.close()


def lag(pages: list[Page], folder: SweepFolder, number: int) -> float:
    """Append one point, better than all before, and wait until every browser has drawn it."""
    values = {"epsilon": 0.05 - 1e-4 * number, "accuracy": 0.5, "certified@0.25": 0.4}
    folder.save_points([Point(trial="t0000", epoch=EPOCH + number, values=values)])
    started = time.monotonic()
    name = f"t0000.{EPOCH + number}"
    seen = f"{FRONT}.data.some((trace) => trace.customdata?.includes('{name}'))"
    for page in pages:
        page.wait_for_function(seen, timeout=300_000)
    return time.monotonic() - started


@contextmanager
def serving(out: Path, **more: Any) -> Iterator[str]:
    """Serve the sweeps in a folder from this process, with more settings, and give the address."""
    app = create_app(ServiceSettings(out=out, limits=Limits(requests_per_second=0), **more))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    warm_up(app)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


if __name__ == "__main__":
    main()
