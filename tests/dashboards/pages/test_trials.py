"""The table of trials, who did what, and that no noisy score stands without its interval."""

import re
from dataclasses import replace

from dashboards.pages import _trials
from dashboards.pages._actions import actions_table
from dashboards.pages._trials import trials_table
from sweeper.records import NoisyScores, Point
from sweeper.store.actions import Action, ActionKind


def cells_of(table, trial):
    (row,) = (row for row in re.findall(r"<tr>(.*?)</tr>", str(table)) if f'value="{trial}"' in row)
    return re.findall(r"<td[^>]*>(.*?)</td>", row)


def test_a_trial_has_its_stage_its_end_its_best_epoch_and_its_configuration(sweep):
    table = trials_table(sweep)
    heads = re.findall(r'data-name="([^"]*)"', str(table))
    assert heads[:6] == ["trial", "stage", "ended", "why", "epochs", "best epoch"]
    assert heads[6:9] == ["own epsilon", "accuracy", "certified@0.25"]
    assert heads[9:] == list(sweep.varying)
    for id_, stage, why in (("t0005", "1", "rung 8: rank 11 of 12, cut 4"), ("t0017", "2", "no later epsilon")):
        cells = cells_of(table, id_)
        assert (cells[1], cells[2]) == (id_, stage)
        assert "stopped" in cells[3]
        assert why in cells[4]
    own = [point for point in sweep.points if point.trial == "t0003"]
    best = max(own, key=lambda point: point.values["accuracy"])
    cells = cells_of(table, "t0003")
    assert cells[6] == best.moment
    assert cells[8] == f"{100 * best.values['accuracy']:.1f} %"


def test_a_trial_is_shown_at_the_best_of_its_points_wherever_another_trial_leaves_the_front(sweep):
    kept = [point for point in sweep.points if point.trial == "t0003"]
    worst, best = (end(kept, key=lambda point: point.values["accuracy"]) for end in (min, max))
    front = replace(sweep.result, on_front=frozenset([worst.key]))
    cells = cells_of(trials_table(replace(sweep, result=front)), "t0003")
    assert cells[8] == f"{100 * best.values['accuracy']:.1f} %"


def test_why_trials_ended_is_no_column_where_all_did_as_planned(small):
    data = small([Point(trial="t0001", epoch=1, values={"epsilon": 1.0, "accuracy": 0.7})])
    table = str(trials_table(data))
    assert 'data-name="ended"' in table
    assert 'data-name="why"' not in table


def test_a_noisy_score_has_its_interval_in_the_table(small):
    noisy = NoisyScores(is_final=False, released={}, intervals={"accuracy": (0.4, 0.8)})
    data = small([Point(trial="t0001", epoch=1, values={"epsilon": 1.0, "accuracy": 0.7}, noisy=noisy)])
    assert "70.0 % (40.0 to 80.0\N{NO-BREAK SPACE}%)" in cells_of(trials_table(data), "t0001")


def test_of_very_many_trials_those_of_the_front_are_in_the_table(sweep, monkeypatch):
    monkeypatch.setattr(_trials, "SHOWN_TRIALS", 5)
    table = str(trials_table(sweep))
    assert table.count("data-choose") == 5
    assert "Shown: 5 of 24 trials, those on the front among them; all of them are in front.csv." in table


def test_who_did_what_is_a_table_newest_first_and_text(sweep):
    assert actions_table(replace(sweep, actions=())) is None
    first = Action(by="ada", at="2026-01-02T10:00:59+00:00", kind=ActionKind.NOTE, trial="t0001", detail="<b>good")
    last = Action(by="<bob>", at="2026-01-03T10:00:00+00:00", kind=ActionKind.EXTEND, detail="30")
    table = str(actions_table(replace(sweep, actions=(first, last))))
    assert table.index("&lt;bob&gt;") < table.index("ada")
    for words in ("2026-01-02 10:00 UTC", "&lt;b&gt;good", "30 trials in all", "extended", "noted"):
        assert words in table
