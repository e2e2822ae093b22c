"""Rehearsals on synthetic rows: the sketch is entered, drawn and recorded once, and no private row reaches a rehearsal."""

import json
from dataclasses import replace

import pytest
import torch

import clipless
from clipless.datasets import Evaluation
from clipless.testing import SeededSource
from sweeper.backend import trainable
from sweeper.backend.trainable import CliplessTrial, Rehearsal
from sweeper.driver import driver, sketch
from sweeper.driver.options import Options
from sweeper.driver.recording.spending import SpendingRecord
from sweeper.driver.runner import resume, run
from sweeper.driver.sketch import LOST, draw_synthetic, take_sketch
from sweeper.errors import RecordError, SpecError
from sweeper.privacy.claims import REHEARSED
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.sketch_file import read_sketch
from sweeper.records import SweepStatus
from sweeper.specification.spec import Spec
from sweeper.store.sweep_folder import SweepFolder
from tests.factories import plan_sweep


@pytest.fixture
def spec(content):
    content["data"] = {"name": "breast_cancer", "evaluation": "private"}
    content["model"] |= {"width": 8}
    content["training"] |= {"epochs": 2, "batch_size": 128, "learning_rate": {"log": [0.001, 0.1]}}
    content["privacy"] = {"sweep_epsilon": 3.0, "delta": 1e-4, "score_noise": 20.0, "final_scores": 1}
    content["search"] = {"objectives": ["epsilon", "accuracy"], "trials": 3}
    return Spec.from_mapping(content)


@pytest.fixture(scope="module")
def data():
    return clipless.datasets.load("breast_cancer", evaluation="private")


class Begun:
    """A sweep whose budget is in its ledger."""

    def __init__(self, spec, data, path):
        self.plan, self.data, self.folder = plan_sweep(spec, data), data, SweepFolder(path)
        self.spending = SpendingRecord(self.folder, self.plan)
        self.spending.enter_budget()

    def take(self, source=None):
        event = self.plan.spending.sketch
        return take_sketch(event, self.data, self.folder, self.spending, source or SeededSource(0))


@pytest.fixture
def begun(spec, data, tmp_path):
    return Begun(spec, data, tmp_path)


class Watching(SeededSource):
    """Notes what the ledger holds when noise is drawn."""

    def __init__(self, ledger):
        super().__init__(0)
        self._ledger, self.seen = ledger, []

    def normal(self, count, device="cpu"):
        self.seen.append(Ledger(self._ledger).sketch)
        return super().normal(count, device)


def test_the_sketch_is_in_the_ledger_before_its_noise_is_drawn(begun):
    source = Watching(begun.folder.ledger)
    made = begun.take(source)
    assert source.seen == [begun.plan.spending.sketch]
    assert made.event == begun.plan.spending.sketch
    assert read_sketch(begun.folder.sketch) == made


def test_a_sketch_that_cannot_be_entered_is_not_drawn(begun, monkeypatch):
    source = Watching(begun.folder.ledger)
    begun.folder.ledger.unlink()
    monkeypatch.setattr(begun.spending, "enter_sketch", lambda _event: (_ for _ in ()).throw(RecordError("full")))
    with pytest.raises(RecordError, match="full"):
        begun.take(source)
    assert source.seen == []
    assert not begun.folder.sketch.exists()


def test_a_recorded_sketch_is_never_drawn_again(begun, spec, data):
    made, rows = begun.take(), begun.spending.rows
    again = Begun(spec, data, begun.folder.path)
    source = Watching(again.folder.ledger)
    assert again.take(source) == made
    assert (source.seen, again.spending.rows) == ([], rows)


def test_a_sketch_that_was_lost_is_not_drawn_again(begun, spec, data):
    begun.take()
    begun.folder.sketch.unlink()
    again = Begun(spec, data, begun.folder.path)
    source = Watching(again.folder.ledger)
    assert again.take(source) is None
    assert source.seen == []
    assert not again.folder.sketch.exists()


def test_a_ledger_that_lost_the_sketch_is_refused(begun, spec, data, tmp_path):
    begun.take()
    (tmp_path / "other").mkdir()
    other = Begun(spec, data, tmp_path / "other")
    begun.folder.sketch.rename(other.folder.sketch)
    with pytest.raises(RecordError, match=r"restore ledger\.jsonl"):
        other.take()


@pytest.mark.parametrize("text", ["{}", '{"event": 1, "sums": []}', "[", '{"sums": [["x"]]}'])
def test_a_broken_record_is_refused(begun, text):
    begun.take()
    begun.folder.sketch.write_text(text)
    with pytest.raises(RecordError, match=r"sketch\.json"):
        begun.take()


def test_a_sketch_of_other_rows_is_refused(begun):
    made = begun.take()
    other = replace(made, sums=tuple(row[:-1] for row in made.sums))
    with pytest.raises(RecordError, match=r"Expected a sketch of 2 classes.*sketch\.json"):
        draw_synthetic(other, begun.data)


def keys(*splits):
    return {row.numpy().tobytes() for split in splits for row in split.x}


def test_synthetic_data_hold_no_row_of_the_data(begun):
    made = draw_synthetic(begun.take(), begun.data)
    private = keys(begun.data.train, begun.data.validation, begun.data.test)
    assert not keys(made.train, made.validation, made.test) & private
    assert len(made.train) == len(begun.data.train)
    assert len(made.validation) == 2 * len(made.train)
    assert made.metadata.evaluation is Evaluation.PUBLIC
    assert torch.equal(made.validation.x, draw_synthetic(begun.take(), begun.data).validation.x)


def test_synthetic_data_depend_on_the_sketch_and_the_number_of_rows_alone(begun):
    made, data = begun.take(), begun.data
    zeros = {
        name: replace(getattr(data, name), x=getattr(data, name).x * 0.0, y=getattr(data, name).y * 0)
        for name in ("train", "validation", "test")
    }
    blind = draw_synthetic(made, replace(data, **zeros))
    assert torch.equal(blind.validation.x, draw_synthetic(made, data).validation.x)
    assert torch.equal(blind.validation.y, draw_synthetic(made, data).validation.y)


@pytest.mark.long
@pytest.mark.usefixtures("bare", "in_process", "untracked")
@pytest.mark.slow
def test_a_sweep_of_private_rows_rehearses_on_synthetic_ones(spec, data, tmp_path, monkeypatch):
    """Workers of rehearsals are opened on synthetic rows, train on no others, and the final on the real ones."""
    opened, trained, opener, built = [], [], driver.open_backend, trainable.TrialRun
    monkeypatch.setattr(driver, "open_backend", lambda *args, **more: opened.append(args[1]) or opener(*args, **more))
    monkeypatch.setattr(trainable, "TrialRun", lambda **given: trained.append(given["data"]) or built(**given))
    states = []
    made = run(spec, Options(out=tmp_path, show=states.append))
    assert states[-1].volume_in_words == f"hypervolume {made.front().hypervolume_in_words}"
    assert made.front().hypervolume_interval is not None
    folder, ledger = made.folder, Ledger(made.folder.ledger)
    private = keys(data.train, data.validation, data.test)
    assert len(opened) == 2
    assert not keys(opened[0].train, opened[0].validation, opened[0].test) & private
    assert len(trained) == 8
    assert not any(keys(one.train, one.validation, one.test) & private for one in trained[:-2])
    assert all(keys(one.train) <= private for one in trained[-2:])
    rows = [json.loads(row) for row in folder.ledger.read_text().splitlines()]
    assert [row["record"] for row in rows][:3] == ["budget", "sketch", "open"]
    assert ledger.sketch == read_sketch(folder.sketch).event
    claimed = made.front().claim
    assert sum("drawn from a private sketch of the training rows" in one for one in claimed.conditions) == 1
    assert REHEARSED not in claimed.public
    counts = [max(sums[0], 0.0) for sums in read_sketch(folder.sketch).sums]
    assert claimed.baselines.constant("accuracy") == pytest.approx(max(counts) / sum(counts))
    assert made.front().ledger["everything"].epsilon <= 3.0
    shown = [json.loads(row) for row in folder.rehearsals.read_text().splitlines()]
    assert len(shown) == 6
    assert all(row["points"] for row in shown)
    monkeypatch.setattr(sketch, "release_sketch", None)  # a resumed sweep draws nothing
    resume(made.directory)


@pytest.mark.long
@pytest.mark.usefixtures("bare", "untracked")
@pytest.mark.slow
def test_a_resumed_sweep_whose_sketch_was_lost_trains_without_rehearsals(spec, tmp_path, monkeypatch):
    began = []

    def train(kind, _queue, _states, settings):
        began.append(kind)
        if kind is Rehearsal:
            raise RuntimeError("killed")
        return settings.should_stop() or driver.RunResult()

    def opened(*_args, **_more):
        from ..in_process import fake_backend

        return fake_backend(train)()

    monkeypatch.setattr(driver, "open_backend", opened)
    with pytest.raises(RuntimeError, match="killed"):
        run(spec, Options(out=tmp_path))
    (folder,) = tmp_path.glob("*/sketch.json")
    folder.unlink()
    monkeypatch.setattr(sketch, "release_sketch", None)
    told = []
    monkeypatch.setattr(driver.SweepRun, "_failures", lambda self: told.extend(self._troubles) or {})
    made = resume(folder.parent)
    assert began == [Rehearsal, CliplessTrial]
    assert LOST in told
    assert made.manifest().status is not SweepStatus.RUNNING


def test_images_have_no_sketch(content, digits):
    content["privacy"] = {"sweep_epsilon": 3.0, "delta": 1e-4}
    content["search"] = {"rehearse": "sketch", "trials": 3}
    content["training"] |= {"learning_rate": {"log": [0.001, 0.1]}}
    with pytest.raises(SpecError, match=r"rows of one dimension.*\(digits\); set search\.rehearse: false"):
        plan_sweep(Spec.from_mapping(content), digits)
