import csv
import io
import json
import math
from dataclasses import replace

import pytest
from rich.console import Console

from clipless.privacy.exposure import Basis, Exposure, Risk
from sweeper.cli.tables import comparison_view
from sweeper.errors import RecordError
from sweeper.pareto.dominance import hypervolume
from sweeper.privacy.baselines import Baselines
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.pricing import Price
from sweeper.records import NoisyScores, Objective, Point, SmoothedCounts, Trial, TrialStatus
from sweeper.results.budgets import description
from sweeper.results.comparison import compare
from sweeper.results.front import parse_front, read_front
from sweeper.results.front_record import frame_of
from sweeper.store.sweep_folder import HIDDEN

LEDGER = {q: Price(epsilon=9.5, delta=1e-4, events=2, statement=f"{q}.") for q in ("winner", "front", "everything")}


@pytest.fixture
def front(make_front, trial, make_point):
    failed = Trial(id="t0002", config={"training": {"epochs": 3}}, status=TrialStatus.FAILED, reason="NaN in epoch 2")
    first = {"accountants": {"rdp": 1.1, "pld": 1.0}, "model": "models/t0001-1.safetensors"}
    points = [
        make_point("t0001", 1, 1.0, 0.8, 0.3, **first),
        make_point("t0001", 2, 2.0, 0.9, 0.2, test={"accuracy": 0.88}),
        make_point("t0001", 3, 3.0, 0.7, 0.1),
        make_point("t0002", 1, math.inf, 0.95, 0.2),
        make_point("t0002", 2, 0.1, math.nan, 1.0),
    ]
    return make_front(points, trials=[trial, failed], ledger=LEDGER)


def test_the_front_and_its_table_have_every_point(front, objectives):
    assert [point.key for point in front.front_points] == [("t0001", 1, ""), ("t0001", 2, ""), ("t0002", 1, "")]
    assert front.hypervolume == hypervolume(front.points, objectives)
    rows = list(csv.DictReader(io.StringIO(front.to_csv())))
    assert len(rows) == 5
    first, second = rows[:2]
    assert (first["trial"], first["epoch"], first["on_front"], first["epsilon"]) == ("t0001", "1", "True", "1.0")
    assert (first["epsilon.rdp"], first["epsilon.pld"], first["test.accuracy"]) == ("1.1", "1.0", "")
    assert second["test.accuracy"] == "0.88"
    assert first["config.training.loss.temperature"] == "0.25"
    assert (rows[3]["status"], rows[3]["config.training.epochs"], rows[3]["epsilon"]) == ("failed", "3", "inf")


def test_the_hypervolume_of_noisy_scores_is_never_without_its_interval(make_front, trial, make_point, tmp_path):
    ends = NoisyScores(is_final=True, released={}, intervals={"accuracy": (0.7, 0.9)})
    plain = make_front([make_point("t0001", 1, 1.0, 0.8, 0.3)], trials=[trial])
    assert plain.hypervolume_in_words == f"{plain.hypervolume:.3f}"
    assert "interval" not in plain.to_json()["hypervolume"]
    noisy = make_front([replace(plain.points[0], noisy=ends)], trials=[trial])
    low, high = noisy.hypervolume_interval
    assert low < noisy.hypervolume < high
    assert noisy.hypervolume_in_words == f"{noisy.hypervolume:.3f} [{low:.3f}, {high:.3f}]"
    (tmp_path / "front.json").write_text(json.dumps(noisy.to_json()))
    for whole in (True, False):
        assert read_front(tmp_path / "front.json", whole=whole).hypervolume_interval == (low, high)
    two = compare([("one", noisy), ("other", replace(noisy, sweep="other"))])
    assert [row["hypervolume_interval"] for row in two.rows()] == [(low, high)] * 2
    assert f"[{low:.3f}, {high:.3f}]" in repr(two)
    console = Console(width=200, file=io.StringIO())
    console.print(comparison_view(two))
    assert console.file.getvalue().count(f"[{low:.3f}, {high:.3f}]") == 2


OLDER = {"accuracy": (5.0, 100.0), "auroc": (0.05, 1600.0)}  # noise of 5 times the rows, and sizes taken as known


def test_a_front_of_an_earlier_version_has_the_intervals_of_this_one(make_front, trial, tmp_path):
    def point(epoch, value, *, is_final):
        ends = {"accuracy": (0.0, 1.0), "auroc": (value - 0.02, value + 0.02)}
        noisy = NoisyScores(is_final=is_final, released={"auroc": value}, intervals=ends)
        values = {"epsilon": 1.0 + 0.1 * is_final, "accuracy": 0.5, "auroc": value}
        return Point(trial="t0001", epoch=epoch, values=values, errors=OLDER, noisy=noisy)

    objectives = [Objective.named("epsilon"), Objective.named("auroc")]
    points = [point(1, 0.6, is_final=False), point(2, 0.5, is_final=True)]
    old, path = make_front(points, trials=[trial], objectives=objectives), tmp_path / "front.json"
    assert [one.epoch for one in old.front_points] == [1], "an explorer is better beyond both intervals"
    old.write(path)
    for whole in (True, False):
        front = read_front(path, whole=whole)
        assert [one.epoch for one in front.front_points] == [1, 2]
        assert {one.interval("auroc") for one in front.points} == {(0.0, 1.0)}
        assert {one.errors["auroc"] for one in front.points} == {(1.0, 1600.0)}
        assert front.hypervolume_interval[0] == 0.0
        assert front.total == 2
    front.write(path)
    assert read_front(path).to_json() == front.to_json() == json.loads(path.read_text())


def test_the_table_says_how_smoothed_certificates_were_made(make_front, trial, make_point):
    counts = SmoothedCounts(
        sigma=0.5, alpha=0.001, draws=1000, selection_draws=100, rows=500, abstained=12, correct=474
    )
    point = make_point("t0001", 1, 1.0, 0.8, 0.3, test={"smoothed@0.5": 0.87}, smoothed=counts)
    (row,) = csv.DictReader(io.StringIO(make_front([point], trials=[trial], ledger=LEDGER).to_csv()))
    assert row["test.smoothed@0.5"] == "0.87"
    kept = ("sigma", "alpha", "draws", "rows", "abstained", "correct")
    assert [row[f"test.smoothed.{name}"] for name in kept] == ["0.5", "0.001", "1000", "500", "12", "474"]


def test_the_file_holds_what_design_promises(front, tmp_path):
    path = tmp_path / "front.json"
    front.write(path)
    content = json.loads(path.read_text())
    assert content["schema_version"] == 1
    assert content["objectives"][1] == {"name": "accuracy", "direction": "maximize"}
    assert content["points"][0] == {
        "trial": "t0001",
        "epoch": 1,
        "made_from": "",
        "values": {"epsilon": 1.0, "accuracy": 0.8, "certified@1/4": 0.3},
        "accountants": {"rdp": 1.1, "pld": 1.0},
        "repeats": {},
        "test": None,
        "model": "models/t0001-1.safetensors",
        "on_front": True,
    }
    assert content["trials"]["t0001"]["sampling"] == {
        "kind": "poisson",
        "sampling_rate": 0.2,
        "batch_size": 200,
        "steps_per_epoch": 5,
        "epochs": 10,
        "population": 1000,
    }
    assert content["trials"]["t0001"]["relation"] == "add-or-remove-one"
    assert content["trials"]["t0001"]["delta"] == 1e-4
    assert content["trials"]["t0002"]["reason"] == "NaN in epoch 2"
    assert content["trials"]["t0002"]["relation"] is None
    assert set(content["ledger"]["winner"]) == {"epsilon", "delta", "events", "statement", "fixed"}
    assert content["hypervolume"]["log_epsilon"] is True
    assert content["hypervolume"]["reference"]["accuracy"] == 0.0
    assert content["claim"]["conditions"] == ["The split."]
    assert content["claim"]["exploratory"] is False


def test_a_front_comes_back_as_it_was(front, tmp_path):
    path = tmp_path / "front.json"
    front.write(path)
    again = read_front(path)
    assert json.dumps(again.to_json()) == json.dumps(front.to_json())
    assert again.front_points == front.front_points
    assert again.ledger == front.ledger
    assert again.claim == front.claim


def test_the_knee_beats_the_majority_class_baseline(make_front, make_point, claim):
    rows = [(0.1, 0.30, 0.0), (0.2, 0.58, 0.0), (1.0, 0.62, 0.0), (2.0, 0.80, 0.0), (9.0, 0.85, 0.0)]
    points = [make_point("t0001", epoch, *row) for epoch, row in enumerate(rows, start=1)]
    assert make_front(points).knee.epoch == 2
    beaten = replace(claim, baselines=Baselines(classes=("a", "b"), majority={"validation": 0.6}))
    assert make_front(points, claim=beaten).knee.epoch == 4
    beaten = replace(claim, baselines=Baselines(classes=("a", "b"), majority={"validation": 0.9}))
    assert make_front(points, claim=beaten).knee is None


def test_trials_that_never_began_are_not_counted(make_front, make_point, trial):
    statuses = {"t0001": "completed", "t0002": "interrupted", "t0003": "failed", "t0004": "interrupted"}
    trials = [replace(trial, id=id_, status=TrialStatus(status)) for id_, status in statuses.items()]
    front = make_front([make_point("t0001", 1, 1.0, 0.9, 0.1)], trials=trials, silent={"t0004"})
    assert (front.trials_begun, len(front.trials)) == (3, 4)
    assert [one.get("begun") for one in front.to_json()["trials"].values()] == [None, None, None, False]
    assert parse_front(front.to_json(), "front.json").trials_begun == 3
    assert "completed; 3 trials, " in description(front, status="completed")
    row = compare([("a", front), ("b", front)]).rows()[0]
    assert row["trials"] == 3


def test_the_knee_is_in_the_file_and_an_older_file_lacks_it(front, tmp_path):
    path = tmp_path / "front.json"
    front.write(path)
    content = json.loads(path.read_text())
    assert content["knee"] == {"trial": front.knee.trial, "epoch": front.knee.epoch, "made_from": ""}
    assert front.knee.key in front.on_front
    del content["knee"]
    path.write_text(json.dumps(content))
    assert read_front(path).knee == front.knee


def test_an_empty_front_is_readable(make_front, tmp_path):
    path = tmp_path / "front.json"
    make_front(trials=[]).write(path)
    assert read_front(path).points == ()
    assert read_front(path).to_csv().strip() == ""
    assert read_front(path).to_dataframe().empty


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_schema_version_is_refused(tmp_path, version):
    path = tmp_path / "front.json"
    path.write_text(json.dumps({"schema_version": version}))
    with pytest.raises(RecordError, match=rf"version 1 in .*front\.json, got {version!r}; read it with the version"):
        read_front(path)


def change(content, path, value):
    *outer, last = path
    for key in outer:
        content = content[key]
    if value is ...:
        del content[last]
    else:
        content[last] = value


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (["points", 0, "epoch"], "two", r"points\.0\.epoch in .*front\.json"),
        (["points", 0, "on_front"], ..., r"KeyError\('on_front'\)"),
        (["objectives", 0, "direction"], "sideways", r"objectives\.0\.direction"),
        (["hypervolume", "reference"], 3, r"box\.reference in .*front\.json"),
        (["ledger", "winner"], {}, r"ledger\.winner"),
        (["claim", "population"], ..., r"claim\.population"),
        (["trials", "t0002"], ..., "every trial of a point among the trials of .*got 't0002'"),
    ],
)
def test_a_broken_file_is_named_in_one_sentence(front, tmp_path, path, value, said):
    content = front.to_json()
    change(content, path, value)
    file = tmp_path / "front.json"
    file.write_text(json.dumps(content))
    with pytest.raises(RecordError, match=said) as caught:
        read_front(file)
    assert "\n" not in str(caught.value)


def test_the_table_has_deviations_over_repeats(make_front, make_point):
    front = make_front([make_point("t0001", 1, 1.0, 0.8, repeats={"accuracy": (0.7, 0.9)})])
    (row,) = csv.DictReader(io.StringIO(front.to_csv()))
    assert float(row["deviation.accuracy"]) == pytest.approx(0.02**0.5)


@pytest.fixture
def spent(front, event, tmp_path):
    """A front of two trainings in a folder whose ledger has one more."""
    ledger = Ledger(tmp_path / "ledger.jsonl")
    for trial in ("t0001", "t0002"):
        ledger.open(trial, event)
    front = replace(front, ledger=ledger.answers(1e-4), ledger_entries=ledger.rows)
    front.write(tmp_path / "front.json")
    ledger.open("t0003", event)
    return front, ledger


def test_prices_are_those_of_the_ledger_and_points_those_of_the_file(spent, tmp_path):
    front, ledger = spent
    again = read_front(tmp_path / "front.json")
    assert again.ledger == ledger.answers(1e-4)
    assert again.ledger["everything"].events == 3
    assert again.points[:4] == front.points[:4]
    assert again.on_front == front.on_front


@pytest.mark.parametrize("rows", [None, 2], ids=["of before the number was kept", "of before"])
def test_a_ledger_that_a_front_may_not_hold_is_priced_again(spent, tmp_path, rows):
    front, ledger = spent
    replace(front, ledger_entries=rows).write(tmp_path / "front.json")
    assert read_front(tmp_path / "front.json").ledger == ledger.answers(1e-4)
    ledger.close("t0003", 5)
    ledger.open("t0003", ledger.entries()[0].event)
    assert read_front(tmp_path / "front.json").ledger["everything"].events == 4


def test_the_prices_of_a_front_that_holds_its_whole_ledger_stand(spent, tmp_path, monkeypatch):
    front, ledger = spent
    monkeypatch.setattr(Ledger, "answers", lambda *_, **__: pytest.fail("priced"))
    replace(front, ledger_entries=ledger.rows).write(tmp_path / "front.json")
    assert read_front(tmp_path / "front.json").ledger == front.ledger
    ledger._file.path.unlink()
    assert read_front(tmp_path / "front.json").ledger == front.ledger


def test_a_row_that_a_kill_has_torn_is_no_row(spent, tmp_path):
    front, ledger = spent
    with (tmp_path / "ledger.jsonl").open("a") as file:
        file.write('{"record": "op')
    assert Ledger(tmp_path / "ledger.jsonl").rows == ledger.rows == 3
    assert read_front(tmp_path / "front.json").ledger == ledger.answers(1e-4)
    replace(front, ledger_entries=3).write(tmp_path / "front.json")
    assert read_front(tmp_path / "front.json").ledger == front.ledger


@pytest.mark.usefixtures("spent")
def test_the_front_of_a_private_selection_that_runs_is_not_read(tmp_path):
    hidden = tmp_path / f"{HIDDEN}x"
    hidden.mkdir()
    for name in ("front.json", "ledger.jsonl"):
        (hidden / name).write_bytes((tmp_path / name).read_bytes())
    with pytest.raises(RecordError, match="nobody may see more than the winner"):
        read_front(hidden / "front.json")


@pytest.mark.usefixtures("spent")
def test_a_ledger_that_has_lost_rows_is_not_priced(tmp_path):
    """It would say less than what was spent, down to nothing at all."""
    (tmp_path / "ledger.jsonl").write_text("")
    with pytest.raises(RecordError, match=r"Expected at least 2 rows in .*ledger.jsonl, .* got 0; restore it"):
        read_front(tmp_path / "front.json")


def test_stages_are_kept_and_an_older_file_has_none(front, tmp_path):
    path = tmp_path / "front.json"
    replace(front, stages=(1, 2)).write(path)
    read = read_front(path)
    assert [read.stage_of(trial) for trial in ("t0001", "t0002", "t0003", "t0004")] == [0, 1, 1, None]
    content = json.loads(path.read_text())
    del content["stages"]
    path.write_text(json.dumps(content))
    assert read_front(path).stage_of("t0001") is None


def test_the_price_of_a_point_is_that_of_the_winner(front):
    assert front.price == LEDGER["winner"]
    assert all(row["price"] == 9.5 for row in front.rows())
    unreleased = {"winner": Price(epsilon=float("inf"), delta=1e-4, events=0)}
    assert replace(front, ledger=unreleased).price is None
    assert replace(front, ledger={}).price is None


def test_rows_have_what_an_attacker_finds_of_a_point_and_at_the_price(front):
    risk = Risk(caught=(0.002, 0.02, 0.15), advantage=0.1, basis=Basis.PROFILE)
    exposed = replace(LEDGER["winner"], exposure=Exposure(risk=replace(risk, advantage=0.3)))
    points = (replace(front.points[0], risk=risk), *front.points[1:])
    first, *others = replace(front, points=points, ledger={**LEDGER, "winner": exposed}).rows()
    assert (first["caught@0.01"], first["advantage"]) == (0.02, 0.1)
    assert (first["price.caught@0.01"], first["price.advantage"]) == (0.02, 0.3)
    assert all("caught@0.01" not in row for row in others)


def test_a_table_of_points_keeps_what_varies_and_the_price_and_has_the_rest_in_its_attrs(front):
    one = replace(front, points=front.points[:3])  # of one trial
    frame, whole = one.to_dataframe(), one.to_dataframe(constants=True)
    assert {"trial", "epoch", "made_from", "on_front", "epsilon", "accuracy", "price"} <= set(frame.columns)
    assert set(frame.columns) | set(frame.attrs) == set(whole.columns)
    assert all(whole[name].iloc[0] == value for name, value in frame.attrs.items())
    assert frame.attrs["status"] == "completed"


def test_a_table_has_the_hyperparameters_that_vary_and_on_request_those_that_all_trials_share():
    rows = [{"trial": "a", "config.model": "mlp", "config.rate": 0.1}, {"trial": "b", "config.model": "mlp"}]
    assert list(frame_of(rows).columns) == ["trial", "config.rate"]
    assert list(frame_of(rows, constants=True).columns) == ["trial", "config.rate", "config.model"]
    assert list(frame_of(rows[:1]).columns) == ["trial", "config.model", "config.rate"]
    assert frame_of([]).empty
