"""The size of a stack: measured, and never on data."""

import pytest
import torch

from clipless.datasets import Split
from clipless.stacks import Member, sizes, stack_size
from clipless.testing import RecordingSource

from .members import member, split


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "_known", {})


def measured(times: dict[int, float], monkeypatch: pytest.MonkeyPatch, most: int = 16) -> tuple[int, list[int]]:
    tried = []

    def step_time(_: Member, data: Split, members: int) -> float:
        del data
        tried.append(members)
        return times[members]

    monkeypatch.setattr(sizes, "step_time", step_time)
    return stack_size(member(0), split(), most), tried


@pytest.mark.parametrize(
    ("times", "size", "tried"),
    [
        ({1: 4.0, 2: 2.0, 4: 1.0, 8: 0.6, 16: 0.4}, 16, [1, 2, 4, 8, 16]),
        ({1: 4.0, 2: 3.0, 4: 2.9, 8: 2.9}, 2, [1, 2, 4, 8]),
        ({1: 4.0, 2: 4.1, 4: 2.0, 8: 2.0, 16: 2.0}, 4, [1, 2, 4, 8, 16]),
        ({1: 4.0, 2: 4.1, 4: 4.2}, 1, [1, 2, 4]),
    ],
)
def test_sizes_grow_for_as_long_as_they_are_worth_it(
    times: dict[int, float], size: int, tried: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert measured(times, monkeypatch) == (size, tried)


def test_no_size_is_above_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured({1: 4.0, 2: 2.0, 4: 1.0}, monkeypatch, most=7) == (4, [1, 2, 4])


def test_what_has_no_room_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def step_time(_: Member, data: Split, members: int) -> float:
        del data
        if members > 2:
            raise torch.OutOfMemoryError
        return 1.0 / members

    monkeypatch.setattr(sizes, "step_time", step_time)
    assert stack_size(member(0), split()) == 2


def test_a_shape_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured({1: 1.0, 2: 2.0, 4: 4.0}, monkeypatch)[1] == [1, 2, 4]
    assert measured({1: 1.0, 2: 2.0}, monkeypatch)[1] == []


def test_no_entry_of_the_data_is_read_and_nothing_is_drawn_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "_SECONDS", 0.0)
    data, source = split(), RecordingSource(0)
    unreadable = Split(data.x * float("nan"), data.y - 10**6)  # any look at a label would be out of range
    one = member(0, source=source)
    before = [p.detach().clone() for p in one.model.parameters()]
    assert sizes.step_time(one, unreadable, 2) > 0.0
    assert not source.normals
    assert not source.batches
    assert all(torch.equal(p, b) for p, b in zip(one.model.parameters(), before, strict=True))


def test_what_is_never_stacked_has_size_one() -> None:
    one = member(0)
    other = Member(model=one.model, loss=one.loss, plan=one.plan)
    object.__setattr__(other, "model", torch.nn.Linear(1, 1))
    assert stack_size(other, split()) == 1
