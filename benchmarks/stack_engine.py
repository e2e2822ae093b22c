"""Does docker-compose.yml do on a Docker engine what docs/cluster.md says of it? Sweeps, kills, ``down`` and ``up``.

    python benchmarks/stack_engine.py [--workers 2] [--trials 150] [--keep] [--build-arg NAME=VALUE ...]

Needs an engine with Compose that this user may talk to (``DOCKER_HOST`` names another one), and nothing of the stack
running there. Builds the image, makes secrets in ``secrets/`` if there are none, starts the stack and waits until it is
healthy; then

* runs sweeps/digits.yaml by the service, and fetches its front in every format;
* runs a longer sweep, in which every process of a worker, of the head, of MLflow, of PostgreSQL and of the service is
  killed in turn, each of which Docker has to start again; and the whole stack is taken down and up;
* looks whether the networks have a way out.

Prints a table; exits with 1 if something does not hold. Removes the containers at the end (``--keep`` leaves them);
volumes and images stay.
"""

import argparse
import json
import os
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from kills import SPEC

from sweeper.service.client import submit

ROOT = Path(__file__).resolve().parents[1]
URL = "http://127.0.0.1:8600"
FORMATS = ("json", "csv", "html", "png", "pdf")
PARTS = ("ray-worker", "ray-head", "mlflow", "postgres", "sweeper")
PATIENCE_SECONDS = 900.0
FURTHER_POINTS = 200  # more than were on their way


class Engine:
    """The stack on an engine, and the sentences about it so far."""

    def __init__(self, workers: int, build_arguments: list[str]) -> None:
        self.workers, self.build_arguments = workers, build_arguments
        self.rows: list[tuple[str, bool, str]] = []
        self.token = ""

    def compose(self, *arguments: str, check: bool = True) -> str:
        """Run ``docker compose`` on the file; return what it prints."""
        command = ["docker", "compose", "--profile", "cpu", *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if check and done.returncode:
            sys.exit(f"{' '.join(command)}: {done.stderr.strip()[-2000:]}")
        return done.stdout + done.stderr

    def say(self, what: str, holds: bool, found: str) -> None:
        """Note one row of the table."""
        self.rows.append((what, holds, found))
        sys.stderr.write(f"{what}: {found}\n")

    def start(self) -> None:
        """Build, start, and wait until everything is healthy."""
        folder = Path(os.environ.get("SWEEPER_SECRETS") or ROOT / "secrets")
        if not folder.exists():
            folder.mkdir(mode=0o700)
            for name in ("postgres_password", "ray_token"):
                (folder / name).write_text(secrets.token_hex(32), encoding="utf-8")
                (folder / name).chmod(0o444)
        arguments = [part for given in self.build_arguments for part in ("--build-arg", given)]
        self.say("build", True, _seconds(lambda: self.compose("build", *arguments)))
        new = ("sweeper", "token", "--role", "write", "--tokens", "/tokens/tokens.json")
        self.token = self.compose("run", "--rm", "--no-deps", "--no-TTY", "sweeper", *new).splitlines()[0].strip()
        self.say("up, until all is healthy", True, _seconds(self.up))

    def up(self) -> None:
        """Start what is down."""
        self.compose("up", "--detach", "--wait", "--wait-timeout", "300", "--scale", f"ray-worker={self.workers}")

    def call(self, path: str) -> bytes:
        """What the service answers."""
        request = urllib.request.Request(f"{URL}/api/v1/{path}", headers={"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.read()

    def told(self, sweep: str) -> tuple[str, int, int]:
        """State, points and ended trials of a sweep; nothing of it while nobody answers."""
        try:
            found = json.loads(self.call(f"sweeps/{sweep}"))
        except (OSError, urllib.error.HTTPError):
            return "", 0, 0
        front = found.get("front") or {}
        ended = sum(count for status, count in front.get("trials", {}).items() if status != "running")
        return found["state"], front.get("points", 0), ended

    def wait(self, sweep: str, until: Callable[[tuple[str, int, int]], bool], what: str) -> float:
        """Wait for something to become true of a sweep; return the seconds that it took."""
        began = time.monotonic()
        while not until(now := self.told(sweep)):
            if time.monotonic() > began + PATIENCE_SECONDS:
                self.finish(f"{what}: waited {PATIENCE_SECONDS:g} s in vain; {sweep} is {now}")
            time.sleep(1.0)
        return time.monotonic() - began

    def run_sweep(self) -> None:
        """Run the quick start and fetch its front."""
        sweep = submit(URL, (ROOT / "sweeps" / "digits.yaml").read_text(encoding="utf-8"), self.token)["id"]
        seconds = self.wait(sweep, lambda now: now[0] == "completed", "the quick start")
        self.say("sweeps/digits.yaml", True, f"completed after {seconds:.0f} s")
        sizes = {kind: len(self.call(f"sweeps/{sweep}/front?format={kind}")) for kind in FORMATS}
        said = ", ".join(f"{kind} {size // 1000} kB" for kind, size in sizes.items())
        self.say("its front", all(size > 100 for size in sizes.values()), said)

    def run_faults(self, trials: int) -> None:
        """Kill every part of the stack in turn while a sweep runs; take all down and up."""
        spec = SPEC.format(name="faults", epochs=30, budget="epsilon", epsilon=3.0, trials=trials)
        sweep = submit(URL, spec, self.token)["id"]
        self.wait(sweep, lambda now: now[1] > 0, "the first point")
        for part in PARTS:
            self._with_fault(f"{part} killed", sweep, lambda part=part: self._kill(part))
        self._with_fault("down, then up", sweep, self._down_and_up)
        self.wait(sweep, lambda now: now[0] not in ("", "queued", "starting", "running"), "the end")
        state, _, ended = self.told(sweep)
        self.say("at the end", state == "completed" and ended == trials, f"{state}, {ended} trials of {trials} ended")

    def look_for_ways_out(self) -> None:
        """One network is internal; on the other one, replies to what containers send do not find back."""
        for network, closed in (("inside", "true"), ("outside", "false false")):
            form = '{{.Internal}} {{with .Options}}{{index . "com.docker.network.bridge.enable_ip_masquerade"}}{{end}}'
            command = ["docker", "network", "inspect", f"sweeper_{network}", "--format", form]
            found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
            self.say(f"no way out of network {network}", found == closed, f"internal, masquerade: {found}")

    def _with_fault(self, what: str, sweep: str, fault: Callable[[], None]) -> None:
        before = self.told(sweep)[1]
        fault()
        if self.told(sweep)[0] == "completed":
            self.say(what, False, "the sweep was over before; use --trials with a larger number")
            return
        seconds = self.wait(sweep, lambda now: now[0] == "completed" or now[1] >= before + FURTHER_POINTS, what)
        self.say(what, True, f"{FURTHER_POINTS} further points after {seconds:.0f} s")

    def _kill(self, part: str) -> None:
        """Kill all processes in a container but its first, which ends with them: not a stop by hand, for Docker."""
        self.compose("exec", "--no-TTY", part, "sh", "-c", "kill -9 -1", check=False)

    def _down_and_up(self) -> None:
        self.say("down", True, _seconds(lambda: self.compose("down")))
        self.say("up", True, _seconds(self.up))

    def finish(self, trouble: str = "") -> None:
        """Print the table and leave."""
        print("| what | holds | found |\n|---|---|---|")
        for what, holds, found in self.rows:
            print(f"| {what} | {'yes' if holds else '**no**'} | {found} |")
        if trouble:
            sys.exit(trouble)
        sys.exit(0 if all(holds for _, holds, _ in self.rows) else 1)


def _seconds(step: Callable[[], object]) -> str:
    began = time.monotonic()
    step()
    return f"{time.monotonic() - began:.0f} s"


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--trials", type=int, default=150, help="of the sweep during which parts are killed")
    parser.add_argument("--build-arg", action="append", default=[], help="passed on to docker compose build")
    parser.add_argument("--keep", action="store_true", help="leave the stack running")
    given = parser.parse_args()
    engine = Engine(given.workers, given.build_arg)
    engine.start()
    try:
        engine.run_sweep()
        engine.look_for_ways_out()
        engine.run_faults(given.trials)
        engine.finish()
    finally:
        if not given.keep:
            engine.compose("down", check=False)


if __name__ == "__main__":
    main()
