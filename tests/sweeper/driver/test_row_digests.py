"""A sweep knows its rows again, and the side on which each of them is."""

import json
import os
import random
import stat

import pytest

import clipless
from sweeper.driver.options import Options
from sweeper.driver.row_digests import ROWS_NAME, check_rows, note_rows
from sweeper.driver.runner import resume, run
from sweeper.errors import RecordError
from sweeper.specification.spec import Spec

AGES = [18 + 7 * i % 70 for i in range(60)]


@pytest.fixture
def table(tmp_path):
    """A function that writes a table with one more column, which is dropped, and loads it."""

    def load(more, ages=AGES, **options):
        ranges = 'source: the form\ntarget: {column: left, classes: ["no", "yes"]}\ncolumns: {age: {low: 0, high: 120}, more: {drop: true}}'
        (tmp_path / "ranges.yaml").write_text(ranges + "\n", encoding="utf-8")
        rows = [f"{age},{'no' if age % 2 else 'yes'},{cell}" for age, cell in zip(ages, more, strict=True)]
        (tmp_path / "t.csv").write_text("\n".join(["age,left,more", *rows]) + "\n", encoding="utf-8")
        return clipless.datasets.load(tmp_path / "t.csv", ranges=tmp_path / "ranges.yaml", **options)

    return load


def test_the_same_rows_in_another_order_go_on_and_a_dropped_column_counts(table, tmp_path):
    note_rows(tmp_path, table(range(60)))
    order = random.Random(0).sample(range(60), 60)
    check_rows(tmp_path, table(order, [AGES[i] for i in order]))
    for others in (table(range(1, 61)), table(range(60), [AGES[0] + 1, *AGES[1:]])):
        with pytest.raises(
            RecordError, match=r"Expected the rows that .* was begun with, each on its side .*, got others"
        ):
            check_rows(tmp_path, others)


def test_only_its_owner_can_read_what_would_confirm_a_guess(table, tmp_path):
    data = table(range(60))
    note_rows(tmp_path, data)
    path = tmp_path / ROWS_NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    first = json.loads(path.read_text(encoding="utf-8"))
    note_rows(tmp_path, table(range(1, 61)))  # it knows its rows already
    assert json.loads(path.read_text(encoding="utf-8")) == first
    path.unlink()
    note_rows(tmp_path, data)
    assert json.loads(path.read_text(encoding="utf-8"))["sides"] != first["sides"]


def test_a_sweep_of_an_earlier_version_goes_on_and_a_broken_file_is_named(table, tmp_path):
    check_rows(tmp_path, table(range(60)))
    (tmp_path / ROWS_NAME).write_text('{"key": 3}\n', encoding="utf-8")
    with pytest.raises(RecordError, match=r"\(key in .*rows\.json\); restore the file"):
        check_rows(tmp_path, table(range(60)))


def test_another_user_is_told_who_can_go_on(table, tmp_path, monkeypatch):
    note_rows(tmp_path, table(range(60)))
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(RecordError, match=r"Expected the user who began .* to go on with it"):
        check_rows(tmp_path, table(range(60)))


def test_images_are_not_noted(tmp_path):
    note_rows(tmp_path, clipless.datasets.load("digits"))
    assert not (tmp_path / ROWS_NAME).exists()


def test_features_are_known_by_the_rows_that_they_are_of(table, tmp_path):
    data = table(range(60))
    note_rows(tmp_path, clipless.datasets.Dataset(data.metadata, data.train, data.validation, data.test, raw=data))
    check_rows(tmp_path, data)


@pytest.mark.usefixtures("bare", "in_process", "untracked")
def test_a_sweep_is_not_extended_with_another_export_of_its_table(table, tmp_path):
    table(range(60))
    content = {
        "name": "t",
        "data": {"path": "t.csv", "ranges": "ranges.yaml", "evaluation": "public"},
        "model": {"architecture": "mlp", "width": 4},
        "training": {"epochs": 1, "batch_size": 20, "learning_rate": [0.05, 0.1]},
        "privacy": {"epsilon": 3.0, "delta": 1e-3},
        "search": {"trials": 1, "rehearse": False},
    }
    sweep = run(Spec.from_mapping(content, str(tmp_path / "t.yaml")), Options(out=tmp_path / "out"))
    (tmp_path / "t.csv").write_text((tmp_path / "t.csv").read_text().replace(",0\n", ",99\n"), encoding="utf-8")
    before = (sweep.directory / "ledger.jsonl").read_bytes()
    with pytest.raises(RecordError, match="each on its side of the split, got others"):
        resume(sweep.directory, trials=2)
    assert (sweep.directory / "ledger.jsonl").read_bytes() == before
    table(range(60))
    assert len(resume(sweep.directory, trials=2).folder.trials()) == 2
