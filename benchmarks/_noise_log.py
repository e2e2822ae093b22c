"""A driver whose trials count every draw of noise in files that the sweep does not know of; see ``kills.py``."""

import os
import sys
from collections import Counter
from pathlib import Path

import torch
from ray import cloudpickle
from torch import Tensor

from clipless.privacy.randomness import RandomSource, SecureSource
from sweeper.backend.trainable import CliplessTrial
from sweeper.driver import driver
from sweeper.driver.options import Options
from sweeper.driver.runner import resume_sweep, run_sweep
from sweeper.specification.spec import Spec

FOLDER = "NOISE_LOG"


class LoggedSource(SecureSource):
    """A secure source that writes a byte before each draw of a step's noise."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def normal(self, count: int, device: torch.device | str = "cpu") -> Tensor:
        """Count the draw, and draw."""
        os.write(self._file, b".")
        return super().normal(count, device)


class LoggedTrial(CliplessTrial):
    """A trial whose noise is counted."""

    def source(self) -> RandomSource:
        """Return a source that counts its draws under the trial's name."""
        return LoggedSource(Path(os.environ[FOLDER]) / str(self._config["trial"]))


def drawn_steps(folder: Path) -> Counter[str]:
    """Return how often each trial has drawn noise."""
    return Counter({file.name: file.stat().st_size for file in folder.iterdir()})


def main() -> None:
    """Run or resume a sweep: ``FOLDER run SPEC OUT [TRACKING]`` or ``FOLDER resume SWEEP [TRIALS]``."""
    folder, verb, *rest = sys.argv[1:]
    os.environ[FOLDER] = folder
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    driver.CliplessTrial = LoggedTrial
    if verb == "run":
        spec, out, *tracking = rest
        run_sweep(Spec.from_yaml(spec), Options(out=Path(out), tracking=tracking[0] if tracking else None))
    else:
        sweep, *trials = rest
        resume_sweep(Path(sweep), trials=int(trials[0]) if trials else None)


if __name__ == "__main__":
    main()
