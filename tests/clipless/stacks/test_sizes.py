"""The size of a stack: measured, and never on data."""

import pytest
import torch

from clipless.datasets import Split
from clipless.stacks import Member, sizes, stack_size
from tests.clipless.factories import RecordingSource

from .members import member, split


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "_known", {})


class Timer:
    """A stack whose steps take as long as they are said to, for each member."""

    def __init__(self, members: int, seconds: float) -> None:
        self.members, self._seconds = members, seconds

    def seconds(self) -> float:
        return self.members * self._seconds


def measured(times: dict[int, float], monkeypatch: pytest.MonkeyPatch, most: int = 16) -> tuple[int, list[int]]:
    tried = []

    def timer(_: Member, data: Split, members: int) -> Timer:
        del data
        tried.append(members)
        return Timer(members, times[members])

    monkeypatch.setattr(sizes, "StepTimer", timer)
    return stack_size(member(0), split(), most), tried


@pytest.mark.parametrize(
    ("times", "size", "tried"),
    [
        ({1: 0.20, 2: 0.10, 4: 0.05, 8: 0.03, 16: 0.02}, 16, [1, 2, 4, 8, 16]),
        ({1: 0.20, 2: 0.15, 4: 0.145, 8: 0.145}, 2, [1, 2, 4, 8]),
        ({1: 0.20, 2: 0.21, 4: 0.10, 8: 0.10, 16: 0.10}, 4, [1, 2, 4, 8, 16]),
        ({1: 0.20, 2: 0.205, 4: 0.21}, 1, [1, 2, 4]),
    ],
)
def test_sizes_grow_for_as_long_as_they_are_worth_it(
    times: dict[int, float], size: int, tried: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert measured(times, monkeypatch) == (size, tried)


def test_no_size_is_above_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured({1: 0.20, 2: 0.10, 4: 0.05}, monkeypatch, most=7) == (4, [1, 2, 4])


@pytest.mark.long
def test_what_has_no_room_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def timer(_: Member, data: Split, members: int) -> Timer:
        del data
        if members > 2:
            raise torch.OutOfMemoryError
        return Timer(members, 0.1 / members)

    monkeypatch.setattr(sizes, "StepTimer", timer)
    assert stack_size(member(0), split()) == 2


def test_a_shape_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured({1: 0.2, 2: 0.4, 4: 0.8}, monkeypatch)[1] == [1, 2, 4]
    assert measured({1: 0.2, 2: 0.4}, monkeypatch)[1] == []


def test_fewer_that_are_asked_for_are_not_measured_again_and_more_are(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {1: 0.2, 2: 0.1, 4: 0.05, 8: 0.1, 16: 0.1}
    assert measured(times, monkeypatch, most=4) == (4, [1, 2, 4])
    assert measured(times, monkeypatch, most=3) == (3, [])
    assert measured(times, monkeypatch, most=16) == (4, [1, 2, 4, 8, 16])


def test_few_more_rows_are_not_measured_again_and_a_larger_batch_is(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {1: 0.2, 2: 0.4, 4: 0.8}
    for rows, is_measured in ((100, True), (101, False), (400, True)):
        monkeypatch.setattr(sizes, "_rows", lambda *_, rows=rows: rows)
        assert bool(measured(times, monkeypatch)[1]) == is_measured


def test_what_takes_long_alone_is_not_measured_in_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured({1: 0.3}, monkeypatch) == (1, [1])


def test_both_sizes_are_timed_in_turn() -> None:
    """A machine that is slow for a while, as beside other work, changes no answer."""
    pace = iter([1.0, 1.0, 5.0, 5.0, 5.0, 5.0, *[1.0] * 1000])

    class Uneven(Timer):
        def seconds(self) -> float:
            return super().seconds() * next(pace)

    assert sizes._gain(Uneven(1, 0.004), Uneven(4, 0.002)) == pytest.approx(2.0)


def test_no_entry_of_the_data_is_read_and_nothing_is_drawn_for_it() -> None:
    data, source = split(), RecordingSource(0)
    unreadable = Split(data.x * float("nan"), data.y - 10**6)  # any look at a label would be out of range
    one = member(0, source=source)
    before = [p.detach().clone() for p in one.model.parameters()]
    assert sizes.StepTimer(one, unreadable, 2).seconds() > 0.0
    assert not source.normals
    assert not source.batches
    assert all(torch.equal(p, b) for p, b in zip(one.model.parameters(), before, strict=True))


def test_what_is_never_stacked_has_size_one() -> None:
    one = member(0)
    other = Member(model=one.model, loss=one.loss, plan=one.plan)
    object.__setattr__(other, "model", torch.nn.Linear(1, 1))
    assert stack_size(other, split()) == 1


def test_a_training_that_resumes_is_measured_as_one_that_begins() -> None:
    """Copies take no state from the disk, and are to resume from none."""
    assert stack_size(member(0, checkpoint="gone.safetensors", resumes_from=2), split(), most=2) in (1, 2)
