"""Stacked trials have the scores that they have alone, also where each score is a paid release with noise."""

import pytest
import torch

import clipless
from clipless.testing import SeededSource
from sweeper.backend.placed_data import PlacedDataset
from sweeper.backend.trainable import CliplessTrial
from sweeper.backend.workers.messages import Assignment, Failure
from sweeper.backend.workers.trial_group import TrialGroup
from sweeper.planning.make import make_trial_settings
from sweeper.privacy.spending._composition import Composition
from sweeper.specification.spec import Spec
from sweeper.trials.stream import EpochRow

EPOCHS = 3
PRIVATE = {
    "data": {"name": "digits", "evaluation": "private"},
    "privacy": {"noise_multiplier": 3.0, "delta": 1e-4, "score_noise": 20.0},
}


class Seeded(CliplessTrial):
    """A trial with randomness of its own that comes again; batches, noise and noise of scores are all of it."""

    def source(self):
        return SeededSource(int(str(self._config["trial"]).removeprefix("t")))


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def told(folder, most, content, trials=3):
    """Return the rows of some trials, by trial."""
    (folder / "models").mkdir(parents=True)
    spec = Spec.from_mapping(
        {
            "name": "scored",
            "model": {"architecture": "mlp", "width": 12},
            "training": {"epochs": EPOCHS, "batch_size": 256, "learning_rate": {"log": [0.0001, 0.1]}},
            "search": {"objectives": ["epsilon", "accuracy", "certified@1/4"], "trials": 9},
            "data": {"name": "digits"},
            "privacy": {"noise_multiplier": 3.0, "delta": 1e-4},
            **content,
        }
    )
    data = clipless.datasets.load(**spec.data_options())
    constants = {
        "settings": make_trial_settings(spec, data),
        "spending": Composition(),
        "folder": str(folder),
        "data": PlacedDataset.of(data),
        "storage": None,
    }
    group = TrialGroup(Seeded, constants, most)
    left = [
        {"trial": f"t{i}", "proposal": {"training.learning_rate": 0.003 * 3**i}, "recorded": 0, "front": []}
        for i in range(1, trials + 1)
    ]
    rows = {one["trial"]: [] for one in left}
    while any(not (found and found[-1].done) for found in rows.values()):
        given, left = left[: group.free], left[group.free :]
        for trial, row in group.follow(Assignment(frozenset(), tuple(given))):
            assert not isinstance(row, Failure), row.error
            if isinstance(row, EpochRow):
                rows[trial].append(row)
    return rows


def near(row, other):
    free = zip(row.free, other.free, strict=True)
    return (
        row.values == pytest.approx(other.values, abs=1e-12)
        and (row.epoch, row.model) == (other.epoch, other.model)
        and all(a.values == pytest.approx(b.values, abs=1e-12) and a.model == b.model for a, b in free)
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("content", [{}, PRIVATE], ids=["public", "private"])
def test_rows_of_a_stack_are_those_of_each_trial_alone(tmp_path, content):
    alone, stacked = (told(tmp_path / f"{most}", most, content) for most in (1, 3))
    assert len({tuple(row.values.items()) for rows in alone.values() for row in rows}) == 3 * EPOCHS
    for trial, rows in alone.items():
        assert all(near(one, other) for one, other in zip(stacked[trial], rows, strict=True))
        assert all(bool(row.free) <= (content != PRIVATE) for row in rows)


def test_private_rows_are_scored_by_each_model_itself(tmp_path, monkeypatch):
    """In passes whose shape depends on the shape of a row alone."""
    monkeypatch.setattr("clipless.stacks.outputs.StackEvaluator.evaluate", lambda *_: pytest.fail("scored together"))
    assert all(len(rows) == EPOCHS for rows in told(tmp_path, 3, PRIVATE).values())


def test_models_of_a_stack_are_scored_in_one_pass_and_saved_as_they_were_scored(tmp_path, monkeypatch):
    validation = clipless.datasets.load("digits").validation
    alone = "clipless.certificates.outputs.float64_logits"
    with monkeypatch.context() as forbidden:
        forbidden.setattr(alone, lambda *_args, **_named: pytest.fail("scored by itself"))
        rows = told(tmp_path / "stack", 3, {})
    saved = [one for found in rows.values() for row in found for one in (row, *row.free) if one.model]
    assert len(saved) > 3 * EPOCHS
    assert any(one.model and getattr(one, "made_from", "") for one in saved)
    for one in saved:
        scores = clipless.evaluate(clipless.load(tmp_path / "stack" / one.model), validation, ["1/4"])
        assert {name: one.values[name] for name in ("accuracy", "certified@1/4")} == pytest.approx(scores, abs=1e-12)
