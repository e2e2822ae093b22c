"""The state of a training between two epochs, on disk, from which a killed training resumes.

It holds noised iterates and what is computed from them, nothing else of the rows: neither drawn batches nor the state
of the generator, so that a resumed training draws fresh ones.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from clipless.errors import PlanError
from clipless.plans.plan import Plan
from clipless.saving import read_tensors, write_tensors

FORMAT = "clipless-training-1"
_IDENTITY = (
    "event",
    "method",
    "batch_size",
    "clip_norm",
    "clipping",
    "freezing",
    "follow_weights",
    "preliminary_steps",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingState:
    """The state of a training between two epochs."""

    epoch: int  # done, 1-based
    tensors: Mapping[str, Tensor]  # weights, buffers, the optimiser's and the average's state, by name
    clip_factor: float  # of an adaptive clipping norm

    def under(self, prefix: str) -> dict[str, Tensor]:
        """Return the tensors whose names begin with ``prefix`` and a dot, without it."""
        return {name.removeprefix(f"{prefix}."): t for name, t in self.tensors.items() if name.startswith(f"{prefix}.")}


def save_state(path: str | os.PathLike[str], plan: Plan, state: TrainingState) -> None:
    """Replace the file at ``path`` atomically."""
    header = {
        "format": FORMAT,
        "plan": _identity(plan),
        "epoch": str(state.epoch),
        "clip_factor": repr(state.clip_factor),
    }
    write_tensors(path, state.tensors, header)


def load_state(path: str | os.PathLike[str], plan: Plan) -> TrainingState | None:
    """Read the state of a training with this plan; None if the file is missing, damaged or of another plan."""
    try:
        header, tensors = read_tensors(path)
        if header["format"] != FORMAT or header["plan"] != _identity(plan):
            return None
        state = TrainingState(epoch=int(header["epoch"]), tensors=tensors, clip_factor=float(header["clip_factor"]))
    except Exception:  # whatever a damaged file leads to: the training then begins anew, and is charged anew
        return None
    return state if 1 <= state.epoch <= plan.epochs else None


def state_to_resume(path: str | os.PathLike[str] | None, plan: Plan, resumes_from: int = 0) -> TrainingState | None:
    """Read the state that a training resumes from, None for its beginning.

    Raises:
        PlanError: the state cannot be read any more, or is of an epoch before ``resumes_from``.

    Guarantees:
        No release that was counted as made by the end of ``resumes_from`` is made once more.
    """
    state = None if path is None else load_state(path, plan)
    if (0 if state is None else state.epoch) < resumes_from:
        raise PlanError(f"Expected the state of epoch {resumes_from} to resume from, but it cannot be read; begin anew")
    return state


def _identity(plan: Plan) -> str:
    content = plan.to_json()
    return json.dumps({key: content[key] for key in _IDENTITY}, sort_keys=True)
