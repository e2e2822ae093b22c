import io
import math
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from sweeper.driver.reporting.progress import (
    NOTHING_TO_DO,
    NOTHING_TRAINS,
    Display,
    Earlier,
    FrontScoring,
    RehearsalProgress,
    RunningTrial,
    SweepProgress,
    closing_summary,
    line,
    render,
)
from sweeper.privacy.baselines import Baselines
from sweeper.privacy.claims import Claim
from sweeper.privacy.pricing import Price
from sweeper.program import program
from sweeper.records import ClassCounts, NoisyScores, Objective, Point, RehearsalSource
from sweeper.results.highlights import KNEE, MAX_ROWS, PICKED, Highlight, spread
from sweeper.results.rehearsal_ranking import Rehearsed, rank_rehearsals
from sweeper.store.rehearsal_records import join_trainings
from sweeper.tracking.outbox import Undelivered

from ....factories import make_metadata, make_rehearsals

OBJECTIVES = tuple(Objective.named(name) for name in ("epsilon", "accuracy", "certified@1/4"))


def point(trial, epsilon, accuracy, certified=0.1):
    values = {"epsilon": epsilon, "accuracy": accuracy, "certified@1/4": certified}
    return Point(trial=trial, epoch=7, values=values)


def state(**more):
    return SweepProgress(
        **(
            {
                "name": "digits",
                "total": 16,
                "done": 3,
                "failed": 1,
                "running": (RunningTrial("t0005", 5, 10), RunningTrial("t0006")),
                "objectives": OBJECTIVES,
                "front": (point("t0002", 3.0, 0.9), point("t0001", 1.0, 0.7)),
                "hypervolume": 0.5,
                "elapsed_seconds": 90.0,
            }
            | more
        )
    )


def screen(progress, width=100):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(render(progress))
    return console.file.getvalue()


def test_a_trial_that_a_worker_has_and_that_draws_no_noise_yet_waits():
    running = (
        RunningTrial("t0005", 5, 10),
        RunningTrial("t0006", 0, 10, begun=False),
        RunningTrial("t0007", begun=False),
    )
    text = screen(state(running=running))
    assert "digits: 3 of 16 trials done, 1 running, 2 waiting, 9 to come, 1 failed" in text
    assert "training t0005 (epoch 5 of 10); waiting: t0006, t0007\n" in text
    assert "\nwaiting: t0006, t0007" in screen(state(running=running[1:]))


def test_the_display_shows_counts_times_trials_and_the_front():
    text = screen(state())
    assert "digits: 3 of 16 trials done, 2 running, 1 failed" in text
    assert "1:30 elapsed, about 3:50 left" in text
    assert "training t0005 (epoch 5 of 10), t0006" in text
    assert "front: 2 points, hypervolume 0.500" in text
    assert "waiting" not in text
    rows = [row.split() for row in text.splitlines() if row.lstrip().startswith("t000")]
    assert rows == [["t0001", "7", "1", "0.700", "0.100"], ["t0002", "7", "3", "0.900", "0.100"]]


def test_scoring_of_the_front_is_shown_after_the_last_trial():
    scored = state(done=15, running=(), scoring=FrontScoring(done=3, total=18, seconds=60.0))
    for shown in (" ".join(screen(scored).split()), line(scored)):
        assert "scoring the front on test rows: 3 of 18 points, about 5:00 left; Ctrl-C keeps what is scored" in shown
    noisy = replace(scored, hypervolume_interval=(0.4, 0.6))
    for shown in (screen(noisy), line(noisy), closing_summary(noisy, Path("out"))):
        assert "hypervolume 0.500 [0.400, 0.600]" in " ".join(shown.split())
    first = replace(scored, scoring=FrontScoring(done=0, total=18, seconds=0.0))
    assert "0 of 18 points; Ctrl-C" in line(first)
    second = replace(scored, scoring=FrontScoring(done=1, total=18, seconds=60.0))  # its features are made once
    assert "1 of 18 points; Ctrl-C" in line(second)


def test_the_table_shows_the_points_that_the_front_shows_afterwards(make_front, make_point):
    points = [make_point("t0001", n, float(n), 1 - 1 / n, 0.5 - abs(n - 14) / 100) for n in range(2, 40)]
    front = make_front(points)
    text = screen(state(front=front.front_points, objectives=front.objectives))
    rows = [row.split()[1] for row in text.splitlines() if row.lstrip().startswith("t0001")]
    assert len(rows) < len(front.front_points)
    assert rows == [row.split()[1] for row in repr(front).splitlines() if row.startswith("t0001")]


def test_an_empty_sweep_is_shown_too():
    text = screen(SweepProgress(name="digits", total=16))
    assert "0 of 16 trials done" in text
    assert "left" not in text
    assert "front" not in text
    assert screen(SweepProgress(name="digits", total=0))


def rehearsing(done=2, fraction=0.25, trained=None, scores=((0.8, 0.5), (0.9, 0.4), (0.7, 0.7), (0.1, 0.1))):
    found = join_trainings(make_rehearsals(*scores, names=["accuracy", "certified@1/4"]))
    return RehearsalProgress(
        source=RehearsalSource.PUBLIC,
        done=done,
        total=16,
        fraction=fraction,
        ranked=rank_rehearsals(found, OBJECTIVES, trained or {}),
    )


def test_while_configurations_are_rehearsed_the_display_says_which_leads_and_by_what():
    before = {"done": 0, "failed": 0, "running": (), "front": (), "total": 3}
    shown = state(**before, rehearsals=rehearsing(), elapsed_seconds=60.0)
    text = screen(shown, width=120)
    assert "digits: 2 of 16 configurations rehearsed on public rows, before 3 trials; nothing is spent yet" in text
    assert "1:00 elapsed, about 3:00 left" in text
    assert (
        "c0003 leads with accuracy 0.700, certified@1/4 0.700; ranked by accuracy and certified@1/4 together:" in text
    )
    rows = [row.split() for row in text.splitlines() if row.lstrip().startswith("c000")][1:]
    assert rows == [
        ["c0003", "0.700", "0.700", "0.490"],
        ["c0001", "0.800", "0.500", "0.400"],
        ["c0002", "0.900", "0.400", "0.360"],
    ]
    assert "rank score" in text
    assert "hypervolume" not in text
    assert line(shown) == (
        "digits: rehearsing 2/16, 25 % of their epochs, best accuracy 0.900 on public rows (c0002), 1:00 elapsed, "
        "about 3:00 until training"
    )


def test_before_anything_is_shown_nothing_leads_and_the_sweep_may_wait_for_room():
    before = {"done": 0, "failed": 0, "running": (), "front": (), "total": 1, "elapsed_seconds": 31.0}
    shown = state(**before, rehearsals=rehearsing(0, 0.0, scores=()))
    assert line(shown) == f"digits: starting workers to rehearse 16 configurations, 0:31 elapsed; {NOTHING_TRAINS}"
    begun = replace(shown, rehearsals=replace(shown.rehearsals, running=2))
    assert line(begun) == "digits: rehearsing 0/16, 0 % of their epochs, 0:31 elapsed"
    assert NOTHING_TRAINS not in line(state(**before, rehearsals=rehearsing(0, 0.1, scores=())))
    assert NOTHING_TRAINS not in line(state(**before, rehearsals=rehearsing(16), rehearsed_seconds=20.0))


def test_the_time_left_of_trials_is_not_estimated_from_that_of_rehearsals():
    trials = {"done": 1, "failed": 0, "running": (), "total": 3, "elapsed_seconds": 160.0, "rehearsed_seconds": 100.0}
    assert state(**trials, rehearsals=rehearsing(16)).remaining_seconds == pytest.approx(120.0)


def test_the_closing_summary_says_how_many_were_rehearsed_which_won_and_which_were_trained():
    found = join_trainings(make_rehearsals((0.8, 0.5), (0.9, 0.4), (0.7, 0.7), (0.1, 0.1)))
    trained = {"t0001": found[2].config, "t0002": found[3].config}
    ended = state(rehearsals=rehearsing(16, 1.0, trained), done=2, total=2, failed=0, running=(), front=())
    assert closing_summary(ended, Path("out")).splitlines()[:5] == [
        "digits: 16 rehearsed, 2 trained in 1:30.",
        "The best of 16 configurations rehearsed on public rows, which cost nothing and leave no model, ranked by "
        "accuracy and certified@1/4 together:",
        "  c0003 (won): accuracy 0.700, certified@1/4 0.700; trained as t0001",
        "  c0001 (runner-up): accuracy 0.800, certified@1/4 0.500",
        "  c0004 (place 4, for what it adds to the first): accuracy 0.100, certified@1/4 0.100; trained as t0002",
    ]
    preferred = replace(ended.rehearsals.ranked[0], error=0.0314)
    led = replace(ended.rehearsals, ranked=Rehearsed([preferred, *ended.rehearsals.ranked[1:]]))
    why = "it did best on public tables, and no other beat it by more than the margin of error of rehearsals, 0.031"
    idle = closing_summary(ended, Path("out"), notes=[NOTHING_TO_DO]).splitlines()
    assert idle[0].endswith(" trained before.")
    assert NOTHING_TO_DO in idle
    assert closing_summary(replace(ended, rehearsals=led), Path("out")).splitlines()[2] == (
        f"  c0003 (won: {why}): accuracy 0.700, certified@1/4 0.700; trained as t0001"
    )
    cut = state(rehearsals=rehearsing(16), done=1, total=3, failed=1, running=(), front=())
    assert closing_summary(cut, Path("out")).startswith("digits: 16 rehearsed, 1 of 3 trained, 1 failed in 1:30.")
    early = state(rehearsals=rehearsing(6), done=0, total=3, failed=0, running=(), front=())
    assert closing_summary(early, Path("out"), reason="interrupted").startswith(
        "digits: 6 of 16 rehearsed, 0 of 3 trained in 1:30 (ended early: interrupted)."
    )
    assert "c0003 (leads): accuracy 0.700" in closing_summary(early, Path("out"), reason="interrupted")
    none = state(rehearsals=rehearsing(16, scores=((), ())), done=0, total=1, failed=1, running=(), front=())
    assert "configurations rehearsed" not in closing_summary(none, Path("out"))


def test_a_sweep_that_waits_for_room_says_so():
    """As on a cluster whose processors others have."""
    waiting = SweepProgress(name="digits", total=16, elapsed_seconds=31)
    assert line(waiting) == f"digits: starting workers; 0 of 16 trials done; 0:31 elapsed; {NOTHING_TRAINS}"
    assert line(replace(waiting, workers=2)).startswith("digits: starting 2 workers; 0 of 16 trials done; ")
    assert "starting 2 workers" in screen(replace(waiting, workers=2))
    assert NOTHING_TRAINS in screen(waiting, width=200)
    begun = (SweepProgress(name="digits", total=16, elapsed_seconds=29), state(done=0, failed=0), state(running=()))
    assert not any(NOTHING_TRAINS in line(one) for one in begun)


def test_a_long_front_is_thinned_out_keeps_its_ends_and_says_how_much_is_shown():
    front = [point(f"t{i:04d}", 100.0 - i, 0.5) for i in range(100)]
    shown = spread(front)
    assert [shown[0].values["epsilon"], shown[-1].values["epsilon"]] == [1.0, 100.0]
    assert len(shown) == MAX_ROWS
    assert spread(front[:3]) == sorted(front[:3], key=lambda each: each.values["epsilon"])
    text = screen(state(front=tuple(point(f"t{i:04d}", 1.0 + i, 0.5) for i in range(100))))
    assert "front: 100 points, hypervolume 0.500, 8 of them shown" in text


def test_the_closing_summary_always_has_the_named_points_and_counts_the_rest():
    front = tuple(point(f"t{i:04d}", 1.0 + i, 0.5) for i in range(100))
    named = [Highlight(front[13], ("best accuracy", "picked")), Highlight(front[40], ("knee",))]
    lines = closing_summary(state(front=front), Path("out"), named=named).splitlines()
    assert "  own epsilon 14, accuracy 0.500, certified@1/4 0.100 (t0013, epoch 7): best accuracy, picked" in lines
    assert "  own epsilon 41, accuracy 0.500, certified@1/4 0.100 (t0040, epoch 7): knee" in lines
    assert [text.partition("(")[2][:5] for text in lines[2:6]] == ["t0000", "t0013", "t0040", "t0099"], "and its ends"
    assert lines[6] == f"  and 96 more: {program()} show out"


@pytest.mark.parametrize(
    ("more", "seconds"),
    [
        ({"done": 4, "failed": 4, "running": ()}, 90.0),
        ({"done": 0, "failed": 0, "running": ()}, None),
        ({"done": 16, "failed": 0, "running": ()}, None),
        ({"done": 0, "failed": 0, "running": (RunningTrial("t0001", 4, 10),), "total": 1}, 135.0),
        ({"done": 0, "failed": 0, "running": (RunningTrial("t0001", 4, 10),)}, None),
        ({"done": 0, "failed": 0, "running": (), "rehearsals": rehearsing(0, 0.02)}, None),
        ({"done": 4, "failed": 4, "running": (), "limit_seconds": 100.0}, 10.0),
        ({"done": 4, "failed": 4, "running": (), "limit_seconds": 50.0}, 0.0),
        ({"done": 4, "failed": 4, "running": (), "earlier": Earlier(4, 4.0)}, 180.0),
        ({"done": 4, "failed": 4, "running": (), "earlier": Earlier(8, 8.0)}, None),
        ({"done": 4, "failed": 4, "running": (), "earlier": Earlier(6, 8.5)}, None),
        ({"done": 4, "failed": 4, "running": (), "ends": True}, None),
    ],
)
def test_the_time_left_is_estimated_from_what_is_done(more, seconds):
    assert state(**more).remaining_seconds == (None if seconds is None else pytest.approx(seconds))


def test_a_plain_line_says_the_same_and_of_the_best_point():
    assert state().best.trial == "t0002"
    assert state(front=()).best is None
    assert state(objectives=OBJECTIVES[:1]).best is None
    assert line(state()) == (
        "digits: 3 of 16 trials done, 2 running, 1 failed; "
        "best accuracy 0.900 at own epsilon 3, certified@1/4 0.100 (t0002, epoch 7); "
        "hypervolume 0.500; 1:30 elapsed, about 3:50 left"
    )
    assert "best accuracy 0.900 (t0002, epoch 7)" in line(state(objectives=OBJECTIVES[1:2]))


def test_without_a_terminal_a_line_is_printed_now_and_then():
    now = [0.0]
    console = Console(file=io.StringIO(), width=40)
    with Display(console, now=lambda: now[0]) as display:
        for now[0] in (0.0, 1.0, 29.0, 31.0, 32.0):
            display.update(state(elapsed_seconds=now[0]))
    lines = console.file.getvalue().splitlines()
    assert [text.split("; ")[-1].split(",")[0] for text in lines] == ["0:00 elapsed", "0:31 elapsed"]
    assert [text.split("; ")[1].split(" ")[0] for text in lines] == ["best", "best"]
    assert ["t0002" in text for text in lines] == [True, False], "the same point is not told twice"


def test_without_a_terminal_a_new_phase_is_told_at_once():
    console = Console(file=io.StringIO(), width=40)
    starts = {"done": 0, "failed": 0, "running": (), "front": ()}
    with Display(console, now=lambda: 0.0) as display:
        for one in (state(**starts, workers=2), state(**starts, workers=2), state(), state(done=4)):
            display.update(one)
    lines = console.file.getvalue().splitlines()
    assert [text.split("; ")[0] for text in lines] == [
        "digits: starting 2 workers",
        "digits: 3 of 16 trials done, 2 running, 1 failed",
    ]


def test_without_a_terminal_each_quarter_is_told_and_the_start_of_workers_once():
    console = Console(file=io.StringIO(), width=40)
    starts = {"done": 0, "failed": 0, "running": (), "front": (), "hypervolume": 0.0}
    rows = {"source": RehearsalSource.PUBLIC, "total": 8, "ranked": rank_rehearsals((), OBJECTIVES, {})}
    with Display(console, now=lambda: 0.0) as display:
        for done, running in [(0, 0), *((done, 1) for done in range(8)), (8, 0)]:
            stands = RehearsalProgress(**rows, done=done, running=running, fraction=done / 8)
            display.update(state(**starts, rehearsals=stands))
        display.update(state(**starts | {"done": 1}))
        for done in range(1, 9):
            display.update(state(done=2 * done, failed=0, running=(), note="it selects"))
    lines = [text.split(",")[0].split(";")[0] for text in console.file.getvalue().splitlines()]
    assert lines[:5] == [
        "digits: starting workers to rehearse 8 configurations",
        *(f"digits: rehearsing {done}/8" for done in (0, 2, 4, 6)),
    ]
    assert lines[5:] == ["digits: 1 of 16 trials done"], "a private selection says no more than that it runs"
    assert "hypervolume" not in console.file.getvalue()


def test_in_a_terminal_the_display_is_redrawn_and_its_clock_ticks():
    now = [100.0]
    console = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
    with Display(console, now=lambda: now[0]) as display:
        assert "starting" in str(display._render())
        display.update(state())
        now[0] += 10
        console.print(display._render())
    assert "1:40 elapsed" in console.file.getvalue()


def test_a_sweep_that_is_refused_leaves_nothing_on_the_screen():
    console = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
    with pytest.raises(ValueError, match="refused"), Display(console):
        raise ValueError("refused")
    assert console.file.getvalue() == ""


def claim(baselines):
    return replace(Claim.about(make_metadata(), 100, delta=1e-5), baselines=baselines)


def test_the_closing_summary_says_where_to_look():
    text = closing_summary(
        state(running=()),
        Path("out/digits-1"),
        untested=2,
        look="mlflow ui --backend-store-uri sqlite:///out/mlflow.db",
        reason="interrupted",
        failures={"t0003": "ValueError: it broke"},
        left=Undelivered(5, Path("out/tracking-spool.jsonl"), "no answer"),
        notes=("The split is not covered.",),
        claim=claim(Baselines()),
    )
    assert text.splitlines() == [
        "digits: 3 of 16 trials done, 1 failed in 1:30 (ended early: interrupted).",
        "The front has 2 points, hypervolume 0.500, each at its own epsilon (fixed in advance):",
        "  own epsilon 1, accuracy 0.700, certified@1/4 0.100 (t0001, epoch 7)",
        "  own epsilon 3, accuracy 0.900, certified@1/4 0.100 (t0002, epoch 7)",
        "  t0003 failed: ValueError: it broke",
        "The split is not covered.",
        "Tracking: 5 rows were not taken (no answer); they wait in out/tracking-spool.jsonl.",
        f"Deliver them later: {program()} replay out/digits-1",
        "Report: out/digits-1/front.html",
        "Runs: mlflow ui --backend-store-uri sqlite:///out/mlflow.db",
        "Best accuracy (t0002, epoch 7): 0.900 on validation rows.",
        f"Not scored on test rows yet: 2 points of the front. Go on with it: {program()} resume out/digits-1",
        f"A model: {program()} pick out/digits-1",
    ]


def test_the_closing_summary_states_the_price_once_and_each_point_at_its_own_epsilon():
    price = Price(epsilon=5.9921, delta=1e-4, events=16, statement="Price: epsilon 5.993.", fixed=True)
    front = (point("t0002", 2.991, 0.9), point("t0003", 3.5, 0.91))
    said = closing_summary(state(front=front), Path("out"), price=price)
    lines = said.splitlines()
    assert lines[-2:] == ["Price: epsilon 5.993.", f"A model: {program()} pick out"]
    assert said.count("5.993") == 1
    assert lines[1].endswith("each at its own epsilon (fixed in advance):")
    assert lines[2] == "  own epsilon 2.992, accuracy 0.900, certified@1/4 0.100 (t0002, epoch 7)"


def test_the_last_lines_set_the_best_score_beside_a_constant_answer_and_say_what_comes_next():
    final = replace(
        point("t0002", 3.0, 0.72), noisy=NoisyScores(is_final=True, released={}, intervals={"accuracy": (0.65, 0.79)})
    )
    known, named = Baselines(classes=("no", "yes"), majority={"validation": 0.7}), [Highlight(final, (PICKED,))]
    *_, best, doubted, last = closing_summary(
        state(front=(final,)), Path("out"), named=named, claim=claim(known)
    ).splitlines()
    assert best == (
        "Best accuracy (t0002, epoch 7; pick takes it): 0.720 on validation rows (95 % interval 0.650 to 0.790); "
        "the majority-class baseline reaches 0.700 on validation rows."
    )
    what = "no better in accuracy than always predicting the most frequent class"
    assert doubted == f"On validation rows this model is perhaps {what}, which lies within the 95 % interval."
    tested = replace(
        final,
        noisy=None,
        test={"accuracy": 0.69},
        classes=ClassCounts(rows=(70, 30), decided=(90, 10), correct=(65, 4)),
    )
    *_, best, doubted, _ = closing_summary(state(front=(tested,)), Path("out"), claim=claim(known)).splitlines()
    assert "(t0002, epoch 7): 0.690 on test rows (95 % interval 0.594 to 0.772), 0.720 on the validation" in best
    assert doubted == f"On test rows this model is perhaps {what}, which lies within the 95 % interval."
    sure = replace(tested, test={"accuracy": 0.4}, classes=replace(tested.classes, correct=(36, 4)))
    *_, doubted, _ = closing_summary(state(front=(sure,)), Path("out"), claim=claim(known)).splitlines()
    assert doubted == f"On test rows this model is {what}."
    assert last == f"A model: {program()} pick out"


def test_the_last_lines_call_no_score_the_best_where_the_list_has_a_larger_estimate():
    def noisy(trial, epsilon, value, *, final):
        ends = {"accuracy": (value - 0.07, value + 0.07)}
        return replace(point(trial, epsilon, value), noisy=NoisyScores(is_final=final, released={}, intervals=ends))

    front = (noisy("t0001", 0.02, 0.785, final=False), noisy("t0002", 0.9, 0.749, final=True))
    *_, best, _ = closing_summary(state(front=front), Path("out"), claim=claim(Baselines())).splitlines()
    why = "a final; no other is better beyond the intervals"
    assert best.startswith(f"What pick takes (t0002, epoch 7; {why}): accuracy 0.749 on validation rows (95 %")
    assert "; pick takes accuracy 0.749 [0.679, 0.819] at own epsilon 0.9001, certified" in line(state(front=front))


def test_what_has_ended_has_no_time_left():
    assert line(state(done=16, failed=0, running=())).endswith("; 1:30 elapsed")
    assert line(state(total=1, done=0, failed=0, running=(), front=())).startswith(
        "digits: starting workers; 0 of 1 trial done;"
    )


def test_the_closing_summary_fits_a_screen():
    found = join_trainings(make_rehearsals(*[(0.8 - n / 100, 0.5) for n in range(16)]))
    rehearsed = rehearsing(16, 1.0, {f"t{n:04d}": one.config for n, one in enumerate(found)})
    front = tuple(replace(point(f"t{i:04d}", 1.0 + i, 0.5), made_from="slow-midpoint") for i in range(100))
    named = [Highlight(front[i], (title,)) for i, title in enumerate([KNEE, PICKED, "best certified@1/4"], start=1)]
    price = Price(epsilon=5.9921, delta=1e-4, events=16, statement="Price: epsilon 5.993.", fixed=True)
    ends = {"price": price, "look": "mlflow ui", "notes": ["one", "two"], "claim": claim(Baselines())}
    ended = state(rehearsals=rehearsed, front=front, done=16, failed=0, running=())
    assert len(closing_summary(ended, Path("out"), named=named, **ends).splitlines()) <= 20


def test_an_epsilon_is_never_shown_as_less_than_it_is():
    assert "epsilon 3.001," in closing_summary(state(front=(point("t0002", 3.0001, 0.9),)), Path("out"))


def test_what_the_display_is_told_stays_whatever_follows():
    console = Console(file=io.StringIO(), width=60, color_system=None)
    with Display(console) as display:
        display.tell("digits: everything costs epsilon 5.993 [bold], and this line is longer than the console is wide.")
        display.update(state())
    first, second, *_ = console.file.getvalue().splitlines()
    assert first.endswith("[bold], and this line is longer than the console is wide.")
    assert second.startswith("digits: 3 of 16 trials done")


def test_the_closing_summary_of_a_sweep_without_results_is_short():
    assert closing_summary(SweepProgress(name="digits", total=2), Path("out")).splitlines() == [
        "digits: 0 of 2 trials done in 0:00.",
        "Report: out/front.html",
    ]


def test_the_closing_summary_finds_the_best_point_and_hides_most_failures():
    text = closing_summary(
        state(front=(point("t0001", 2.934, 0.9),)), Path("out"), failures={f"t{i:04d}": "lost" for i in range(9)}
    )
    assert "The front has 1 point," in text
    assert "and 6 more failed" in text
    assert text.endswith(" pick out")
    assert closing_summary(state(front=(point("t0001", math.inf, 0.9),)), Path("out")).endswith("pick out")


def test_a_point_below_the_baseline_is_marked_in_the_list():
    front = (point("t0001", 1.0, 0.6), point("t0002", 3.0, 0.8))
    known = claim(Baselines(classes=("no", "yes"), majority={"validation": 0.7}))
    lines = closing_summary(state(front=front), Path("out"), claim=known).splitlines()
    assert lines[2].endswith("(t0001, epoch 7): below the baseline")
    assert lines[3].endswith("(t0002, epoch 7)")
