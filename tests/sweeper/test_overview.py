"""Sweeps as text."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from sweeper.front import build_front
from sweeper.overview import SHOWN_POINTS, sweep_view, sweeps_table
from sweeper.pricing import Answer
from sweeper.records import TrialStatus
from sweeper.store import SweepFolder
from sweeper.sweep import Sweep


@pytest.fixture
def make(tmp_path, objectives, claim, trial, make_point):
    """Write a sweep folder of ``count`` points; every second one is on no front."""

    def write(name="digits-1", *, count=4, status="completed", reason="", **claimed):
        folder = SweepFolder(tmp_path / name)
        folder.path.mkdir()
        folder.write_sweep({"status": status, "reason": reason})
        failed = replace(trial, id="t0002", status=TrialStatus.FAILED, reason="ValueError: it broke")
        points = [
            make_point(
                "t0001", n + 1, 1.0 + n / 10, 0.5 + (n % 2 == 0) * n / 1000, test={"accuracy": 0.25} if n == 0 else None
            )
            for n in range(count)
        ]
        answers = {"winner": Answer(epsilon=3.0, delta=1e-4, events=2, statement="Releasing one model: epsilon 3.")}
        build_front(
            sweep="digits",
            objectives=objectives,
            trials=[trial, failed],
            points=points,
            ledger=answers,
            claim=replace(claim, **claimed),
        ).write(folder.front)
        return folder

    return write


def text(what, width=120):
    screen = io.StringIO()
    Console(file=screen, width=width, soft_wrap=True).print(what)
    return screen.getvalue()


def test_every_sweep_is_a_row(make):
    shown = text(sweeps_table([make(), make("digits-2", status="running")]), width=300)
    first, second = shown.splitlines()[1:]
    assert first.split()[1:] == ["completed", "2", "2", f"{Sweep(make('x').path).front().hypervolume:.3f}"]
    assert second.split()[1] == "running"


def test_a_sweep_that_cannot_be_read_says_so_and_does_not_hide_the_others(make):
    sound, broken, bare = make(), make("digits-2"), make("digits-3")
    broken.front.write_text("{", encoding="utf-8")
    bare.write_sweep({})
    shown = text(sweeps_table([broken, bare, sound]), width=400)
    assert "unreadable: Expected a JSON object in" in shown
    assert "unreadable: 'status'" in shown
    assert "completed" in shown


def test_a_long_path_is_folded_never_cut(make):
    folder = make("a" * 90)
    shown = text(sweeps_table([folder]), width=80)
    assert "…" not in shown
    assert "a" * 20 in shown


def test_a_sweep_shows_state_front_failures_and_cost(make):
    folder = make(reason="the 2 hours are used up", status="stopped")
    shown = text(sweep_view(Sweep(folder.path)))
    assert shown.startswith("digits: stopped the 2 hours are used up\n")
    assert "trials: 1 completed, 1 failed" in shown
    assert "front: 2 points, hypervolume 0." in shown
    assert "t0002: failed: ValueError: it broke" in shown
    assert "Releasing one model: epsilon 3." in shown
    assert "exploratory" not in shown


def test_test_numbers_stand_beside_the_points_that_have_them(make):
    lines = text(sweep_view(Sweep(make().path)), width=200).splitlines()
    rows = [line.split() for line in lines if line.strip().startswith("t0001 ")]
    assert rows == [
        ["t0001", "1", "1.000", "0.500", "0.000", "0.250", "-"],
        ["t0001", "3", "1.200", "0.502", "0.000", "-", "-"],
    ]


def test_a_long_front_is_shown_in_part(make):
    shown = text(sweep_view(Sweep(make(count=100).path)), width=200)
    assert "front: 50 points" in shown
    assert sum(line.strip().startswith("t0001 ") for line in shown.splitlines()) == SHOWN_POINTS


def test_an_exploratory_sweep_is_marked(make):
    assert "exploratory: no guarantee" in text(sweep_view(Sweep(make(exploratory=True).path)))


def test_a_sweep_without_trials_says_so(make, objectives, claim):
    folder = make()
    build_front(sweep="digits", objectives=objectives, trials=[], points=[], ledger={}, claim=claim).write(folder.front)
    assert "trials: none yet" in text(sweep_view(Sweep(folder.path)))
