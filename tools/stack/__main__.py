"""``python -m tools.stack``: run the stack until Ctrl-C or SIGTERM."""

import argparse
import sys
import time
from pathlib import Path

from sweeper.backend.interruption import Interruption
from sweeper.errors import SweeperError
from tools.stack.running import Stack, StackSettings

LOOK_SECONDS = 0.5


def main(arguments: list[str] | None = None) -> int:
    """Run the stack and say where it is."""
    parser = argparse.ArgumentParser(prog="python -m tools.stack", description=__doc__)
    parser.add_argument("--file", type=Path, default=Path("docker-compose.yml"), help="the compose file")
    parser.add_argument("--state", type=Path, default=Path("sweeps-out/stack"), help="folder of volumes and logs")
    parser.add_argument("--workers", type=int, default=2, help="Ray workers")
    given = parser.parse_args(arguments)
    try:
        with Interruption() as interruption:
            run(StackSettings(file=given.file, state=given.state, workers=given.workers, say=_say), interruption)
    except SweeperError as error:
        sys.stderr.write(f"stack: {' '.join(str(error).split())}\n")
        return 2
    return 0


def run(settings: StackSettings, interruption: Interruption) -> None:
    """Run a stack until somebody asks to stop.

    Raises:
        SweeperError: it cannot be started, or not be looked after any more.
    """
    with Stack(settings) as stack:
        for name, port in (("sweeper", 8600), ("mlflow", 5000), ("ray-head", 8265)):
            settings.say(f"{name:8} http://{stack.address(name, port)}")
        settings.say(f"a token of the service is in {settings.state / 'token'}; logs in {settings.state / 'logs'}")
        settings.say("Ctrl-C stops everything")
        while not interruption.requested:
            stack.check()
            time.sleep(LOOK_SECONDS)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
