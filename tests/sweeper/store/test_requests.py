"""What others ask of a running sweep, and what a trial's log says."""

import json
import multiprocessing
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from clipless.privacy.noisy_counts import scores_event
from sweeper.errors import RecordError, SpecError, SweeperError
from sweeper.privacy.evaluation.paid_scores import PaidScores
from sweeper.privacy.ledger import Ledger
from sweeper.records import Trial
from sweeper.results.trial_log import trial_log
from sweeper.store.actions import login_name
from sweeper.store.lock import driver_lock
from sweeper.store.requests import NewRequests, Requests, ask_to_stop, enqueue, steer, steered
from sweeper.store.sweep_folder import SweepFolder


@pytest.fixture
def folder(ran, tmp_path):
    """A copy of a sweep that ran, whose last trial is said to be running."""
    copy = Path(shutil.copytree(ran.folder, tmp_path / "sweep"))
    rows = [json.loads(row) for row in (copy / "trials.jsonl").read_text().splitlines()]
    running = next(row for row in rows if row["id"] == "t0003") | {"status": "running"}
    with (copy / "trials.jsonl").open("a") as file:
        file.write(json.dumps(running) + "\n")
    return copy


def test_requests_are_taken_once_and_in_order(folder):
    requests = Requests(folder)
    assert requests.look() == NewRequests()
    with driver_lock(folder):
        ask_to_stop(folder, "t0003")
        enqueue(folder, {"training.learning_rate": 0.05})
        assert requests.look() == NewRequests(
            trials={"t0003": login_name()}, configurations=[{"training.learning_rate": 0.05}]
        )
        assert requests.look() == NewRequests()
        ask_to_stop(folder)
    assert requests.look() == NewRequests(stop=True, stopped_by=login_name())


def test_a_later_run_tries_what_waits_and_has_not_to_stop(folder):
    with driver_lock(folder):
        ask_to_stop(folder)
    enqueue(folder, {"training": {"learning_rate": 0.05}})
    later = Requests(folder)
    assert later.earlier == [{"training.learning_rate": 0.05}]
    assert later.look() == NewRequests()


def test_a_region_is_asked_for_and_the_last_one_counts(folder):
    requests = Requests(folder)
    assert requests.region == () == steered(folder)
    steer(folder, ["epsilon <= 3", "accuracy >= 0.8"])
    assert requests.look() == NewRequests(region=("epsilon <= 3", "accuracy >= 0.8"))
    assert requests.look() == NewRequests()
    assert Requests(folder).region == steered(folder) == ("epsilon <= 3", "accuracy >= 0.8")
    steer(folder, [])
    assert requests.look() == NewRequests(region=())
    assert Requests(folder).region == () == steered(folder)


@pytest.mark.parametrize("bound", ["train-accuracy >= 0.5", "epsilon < 3", "epsilon <= nan", "delta <= 1", ""])
def test_a_region_bounds_objectives(bound, folder):
    with pytest.raises(SpecError, match="Expected a "):
        steer(folder, ["epsilon <= 3", bound])
    assert not (folder / "requests.jsonl").exists()


@pytest.mark.parametrize(
    ("search", "said"),
    [
        ({"sampler": "random"}, "a sampler that learns from outcomes, or stages"),
        ({"selection": "private"}, "selects priv"),
    ],
)
def test_what_nothing_steers_is_not_steered(search, said, folder):
    manifest = json.loads((folder / "sweep.json").read_text())
    manifest["spec"]["search"] |= search
    manifest["course"]["can_be_steered"] = False
    (folder / "sweep.json").write_text(json.dumps(manifest))
    with pytest.raises(SweeperError, match=said):
        steer(folder, ["epsilon <= 3"])
    assert not (folder / "requests.jsonl").exists()


@pytest.mark.parametrize(("stages", "status"), [([2, 1], "interrupted"), ([2, 2], "completed")])
def test_a_sweep_without_a_trial_that_is_left_is_not_steered(stages, status, folder):
    content = json.loads((folder / "sweep.json").read_text())
    content["course"] |= {"stages": stages, "trials": sum(stages)}
    (folder / "sweep.json").write_text(json.dumps(content | {"status": status}))
    with pytest.raises(RecordError, match=rf"was cut into {sum(stages)} trials before .*, and none is left; start"):
        steer(folder, ["epsilon <= 3"])
    assert not (folder / "requests.jsonl").exists()
    (folder / "sweep.json").write_text(json.dumps(content | {"status": "interrupted"}))
    if sum(stages) > len(SweepFolder(folder).trials()):
        assert steer(folder, ["epsilon <= 3"])


def ask_many(folder, who):
    for i in range(20):
        enqueue(folder, {"training.learning_rate": 0.03 + who / 100 + i / 10000})


def test_several_people_may_ask_at_once(folder):
    context = multiprocessing.get_context("fork")
    people = [context.Process(target=ask_many, args=(folder, who)) for who in range(3)]
    for person in people:
        person.start()
    for person in people:
        person.join()
    asked = [row["training.learning_rate"] for row in Requests(folder).earlier]
    assert sorted(asked) == sorted(0.03 + who / 100 + i / 10000 for who in range(3) for i in range(20))


def stand(folder, status):
    content = json.loads((folder / "sweep.json").read_text())
    (folder / "sweep.json").write_text(json.dumps(content | {"status": status}))


def test_who_asks_a_sweep_to_stop_is_told_what_comes_of_it(folder, ran):
    with driver_lock(folder):
        assert ask_to_stop(folder) == f"asked to stop, but {folder} is completed already: its driver is about to end"
        stand(folder, "running")
        assert ask_to_stop(folder) == f"asked to stop: {folder}"
        assert ask_to_stop(folder, "t0003") == "asked to stop: t0003, which is running"
        SweepFolder(folder).save_trial(Trial(id="t0009", config={}))
        assert ask_to_stop(folder, "t0009") == "asked to stop: t0009, which is waiting"
        shutil.copy(ran.folder / "trials.jsonl", folder)
        assert ask_to_stop(folder) == (
            f"asked to stop: no trial of {folder} is left; where points are still scored on test rows, that ends, and "
            "what is scored stays"
        )


def test_only_what_runs_can_be_stopped(folder, tmp_path):
    with pytest.raises(RecordError, match=r"^Nothing to stop: .* has ended, it is completed$"):
        ask_to_stop(folder)
    stand(folder, "running")
    with pytest.raises(RecordError, match=r"a sweep that runs on this machine, but no process drives .*sweep$"):
        ask_to_stop(folder)
    unknown = "that has not ended, got 't0001'; running: t0003; waiting: none"
    with driver_lock(folder), pytest.raises(RecordError, match=unknown):
        ask_to_stop(folder, "t0001")
    with pytest.raises(RecordError, match="Expected the folder of a sweep, but there is no"):
        ask_to_stop(tmp_path)
    assert not (folder / "requests.jsonl").exists()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"training.learning_rate": 5},
            r"a value within .* got learning_rate=5 \(training.learning_rate in the configuration\)$",
        ),
        ({"training.lerning_rate": 0.05}, r"\(training.lerning_rate in the configuration\); did you mean"),
        ({"training.lr": 0.05}, r"\(training.lr in the configuration\); did you mean 'training.learning_rate'\?$"),
        ({"model.width": 32}, "16, which the spec fixes"),
    ],
)
def test_a_configuration_that_the_space_does_not_hold_is_refused(values, said, folder):
    with pytest.raises(SpecError, match=said):
        enqueue(folder, values)
    assert not (folder / "requests.jsonl").exists()


def test_a_sweep_without_a_slot_that_is_left_takes_no_configuration(folder):
    content = json.loads((folder / "sweep.json").read_text())
    for stages, is_full in ([2, 2], False), ([2, 1], True):
        content["course"]["stages"] = stages
        (folder / "sweep.json").write_text(json.dumps(content))
        if not is_full:
            enqueue(folder, {"training.learning_rate": 0.05})
            continue
        with pytest.raises(
            RecordError, match=r"all 3 of .* have their trial; name the configuration under search.first"
        ):
            enqueue(folder, {"training.learning_rate": 0.05})
    assert len(Requests(folder).earlier) == 1


def test_while_a_driver_runs_a_configuration_comes_next(folder, call):
    with driver_lock(folder):
        asked = call("enqueue", folder, "--set", "training.learning_rate=5e-2")
    assert asked[:2] == (0, "comes next: training.learning_rate=0.05\n")


def test_the_commands_ask(folder, call):
    for arguments, said in (
        (
            ("enqueue", folder, "--set", "training.learning_rate=5e-2"),
            "comes first when the sweep is resumed or extended: ",
        ),
        (("log", folder, "t0001"), "completed"),
        (
            ("steer", folder, "accuracy >= 0.9", "epsilon <= 3"),
            "steered to: accuracy >= 0.9, epsilon <= 3 (once the sweep is resumed or extended)\n",
        ),
    ):
        code, out, _ = call(*arguments)
        assert (code, said in out) == (0, True)
    for arguments, said in (
        (("enqueue", folder, "--set", "training.learning_rate"), "Expected NAME=VALUE such as"),
        (("stop", folder), "has ended, it is completed"),
        (("steer", folder, "epsilon <= 2", "speed >= 1"), "Expected a value among epsilon"),
    ):
        code, _, err = call(*arguments)
        assert (code, said in err) == (2, True)
    assert steered(folder) == ("accuracy >= 0.9", "epsilon <= 3"), "what is refused is not kept"
    with driver_lock(folder):
        assert (call("steer", folder)[1], steered(folder)) == ("steered to: everywhere\n", ())
        assert call("stop", folder, "t0003")[1] == "asked to stop: t0003, which is running\n"


def test_a_log_tells_what_happened_in_order(folder):
    SweepFolder(folder).save_decision({"trial": "t0001", "epoch": 1, "goes_on": True, "reason": "rank 1 of 1"})
    for trial in ("t0001", "t0002"):
        SweepFolder(folder).save_failure(f"OSError: {trial}", trial)
    (folder / "ray" / "t0001").mkdir(parents=True, exist_ok=True)
    (folder / "ray" / "t0001" / "error.txt").write_text("Traceback ...\nValueError: no\n")
    lines = trial_log(folder, "t0001").splitlines()
    made = [line for line in lines if line.startswith("epoch") and "-midpoint: " in line]
    lines = [line for line in lines if line not in made]
    assert made
    assert not any("rank" in line for line in made)
    assert lines[0].startswith("t0001, run ")
    assert any(line.startswith("  training.learning_rate = 0.0") for line in lines)
    starts = ("plan: method clipless", "training 1: ", "epoch 1: ", "epoch 2: ", "completed", "OSError: t0001")
    starts += ("Traceback", "ValueError")
    assert [line.split(",")[0].startswith(start) for line, start in zip(lines[-8:], starts, strict=True)] == [True] * 8
    assert lines[-6].endswith("rank 1 of 1")
    for asked, known in (
        ("t9", "it has t0001 to t0003"),
        ("2", "did you mean 't0002'"),
        ("t0004", "it has t0001 to t0003"),
    ):
        with pytest.raises(RecordError, match=f"a trial of .*, got '{asked}'; {known}"):
            trial_log(folder, asked)


def test_a_log_states_no_epsilon_that_is_less_than_it_is(folder):
    sweep = SweepFolder(folder)
    (point,) = [one for one in sweep.points().values() if one.key == ("t0001", 1, "")]
    sweep.save_points([replace(point, values={"epsilon": 1.23401, "accuracy": 0.91})])
    assert "epoch 1: epsilon 1.235, accuracy 0.91" in trial_log(folder, "t0001")


def test_a_log_tells_of_scores_that_were_paid_for(folder, event):
    sweep = SweepFolder(folder)
    sweep.ledger.unlink()
    ledger = Ledger(sweep.ledger)
    ledger.open("t0001", event, scores=PaidScores(event=scores_event(5.0, 10, event.relation), apart=True))
    assert "50 steps planned, not known how many run; 10 releases of scores planned, not known how many made" in (
        trial_log(folder, "t0001")
    )
    ledger.close("t0001", 20, scored=4)
    assert "50 steps planned, 20 run; 10 releases of scores planned, 4 made" in trial_log(folder, "t0001")
