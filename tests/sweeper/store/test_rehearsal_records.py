"""Rows of rehearsals become configurations: means over their trainings, and nothing before all of these have ended."""

import pytest

from sweeper.errors import RecordError
from sweeper.store.rehearsal_records import join_trainings, mean_epochs, read_rehearsals
from sweeper.store.sweep_folder import SweepFolder

from ...factories import make_rehearsals, write_rehearsals


def test_what_is_written_is_read_as_configurations_with_means_over_their_trainings(tmp_path):
    folder = SweepFolder(tmp_path)
    assert read_rehearsals(folder.rehearsals) == ()
    write_rehearsals(folder, make_rehearsals((0.8, 0.5), (), (0.6, 0.7))[::-1])
    first, failed, last = read_rehearsals(folder.rehearsals)
    assert [one.id for one in (first, failed, last)] == ["c0001", "c0002", "c0003"]
    assert [epoch.moment for epoch in first.epochs] == ["1", "2", "2, slow-midpoint"]
    assert first.epochs[1].values == pytest.approx({"accuracy": 0.8, "certified@0.25": 0.5})
    assert (failed.epochs, failed.reason) == ((), "accuracy is not a number in epoch 1")


def test_a_configuration_of_which_a_training_is_missing_has_not_been_rehearsed():
    records = make_rehearsals((0.8, 0.5), (0.6, 0.7))
    assert [one.id for one in join_trainings(records[1:])] == ["c0002"]
    assert [one.id for one in join_trainings([*records[1:], records[1]])] == ["c0002"]


def test_only_epochs_of_all_trainings_count():
    shown = {"1": {"accuracy": 0.2}, "2": {"accuracy": 0.4}}, {"1": {"accuracy": 0.4}}
    assert [(epoch.epoch, epoch.values["accuracy"]) for epoch in mean_epochs(shown)] == [(1, pytest.approx(0.3))]


def test_a_broken_row_is_named(tmp_path):
    folder = SweepFolder(tmp_path)
    folder.rehearsals.write_text('{"rehearsal": "r0001"}\n')
    with pytest.raises(RecordError, match=r"configuration on line 1 of .*rehearsals\.jsonl.*; restore the file"):
        read_rehearsals(folder.rehearsals)
