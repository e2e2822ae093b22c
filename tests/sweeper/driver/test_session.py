"""Sessions: a caller proposes, Sweeper trains within the plan of one sweep."""

import subprocess
import sys
from pathlib import Path

import pytest

import sweeper
from sweeper.driver.caller import PROPOSED
from sweeper.driver.options import Options
from sweeper.errors import SpecError, TrialError
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.pricing import ENDED
from sweeper.records import SweepStatus
from sweeper.store.manifest import Manifest
from sweeper.store.sweep_folder import SweepFolder
from tests.factories import small_content

RATE = "training.learning_rate"
CONTENT = small_content(
    privacy={"sweep_epsilon": 3.0, "delta": 1e-4, "stages": [{"trials": 2, "share": 0.5}, {"trials": 1, "share": 0.5}]},
    training={"learning_rate": {"log": [0.01, 0.1]}, "epochs": 1},
    search={"objectives": ["epsilon", "accuracy"]},
)
quick = pytest.mark.usefixtures("in_process", "bare", "untracked")


def test_a_folder_may_be_named_by_a_text():
    options = Options(out="sweeps", into="sweeps/mine", data_dir="data")
    assert (options.out, options.into, options.data_dir) == (Path("sweeps"), Path("sweeps/mine"), Path("data"))
    assert Options().data_dir is None


@pytest.fixture
def options(tmp_path):
    return Options(out=tmp_path)


@quick
@pytest.mark.slow
def test_a_caller_proposes_and_the_plan_holds(options):
    with sweeper.open(CONTENT, options) as session:
        assert session.left == 3
        assert repr(session) == f"a session with 3 trials left and 0 trained, in {session.sweep.directory}"
        first = session.train({RATE: 0.05})
        assert first.configuration == {RATE: 0.05}
        assert first.values["accuracy"] == max(point.values["accuracy"] for point in first.points)
        assert (first.trial.id, first.stage) == ("t0001", 1)
        assert 2.9 < first.price.epsilon <= 3.0
        assert "t0001, epoch 1" in repr(first)
        assert first._repr_html_().startswith("<p><b>t0001, epoch 1")
        with pytest.raises(SpecError, match=r"within .* \(training.learning_rate in the configuration\)$"):
            session.train({RATE: 5.0})
        with pytest.raises(SpecError, match=r"within .* \(training.learning_rate in the configuration\)$"):
            session.train_all([{RATE: 0.02}, {RATE: 5.0}])
        with pytest.raises(TrialError, match=r"room for 3 trials in .*, but 2 trials of its plan are left; nothing"):
            session.train_all([{RATE: 0.02}, {}, {}])
        assert session.left == 2
        second, final = session.train_all([{}, {RATE: 0.05}])
        assert (second.stage, final.stage) == (1, 2)
        assert final.configuration == first.configuration
        rows = len(Ledger(session.sweep.folder.ledger).entries())
        with pytest.raises(TrialError, match=r"all 3 trials of its plan are taken; nothing was charged"):
            session.train({})
        assert len(Ledger(session.sweep.folder.ledger).entries()) == rows == 3
        assert [one.trial.id for one in session.trained] == ["t0001", "t0002", "t0003"]
    sweep = session.sweep
    assert sweep.manifest().status.value == "completed"
    assert PROPOSED in sweep.front().claim.conditions
    assert list(sweep.trials["trial"]) == ["t0001", "t0002", "t0003"]
    with pytest.raises(TrialError, match="it has ended"):
        session.train({})


@quick
@pytest.mark.slow
@pytest.mark.parametrize(("proposed", "chosen"), [(1, [ENDED]), (2, [])])
def test_a_caller_who_proposes_no_further_trial_may_do_so_for_what_it_saw(options, proposed, chosen):
    content = small_content(
        privacy={"epsilon": 3.0, "delta": 1e-4},
        training={"learning_rate": {"log": [0.01, 0.1]}, "epochs": 1},
        search={"objectives": ["epsilon", "accuracy"], "trials": 2},
    )
    with sweeper.open(content, options) as session:
        session.train_all([{}] * proposed)
    assert session.sweep.manifest().claim["chosen"] == chosen
    assert ("not proven" in session.sweep.front().price.in_words) is bool(chosen)


@pytest.mark.long
@quick
@pytest.mark.slow
def test_a_session_goes_on_where_it_was_ended(options):
    session = sweeper.open(CONTENT, options)
    session.train({RATE: 0.05})
    session._caller.propose([{RATE: 0.02}])
    session.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert session.sweep.manifest().status.value == "stopped"
    with sweeper.open(session.sweep.directory) as again:
        assert [one.configuration for one in again.trained[:1]] == [{RATE: 0.05}]
        assert again.left == 1
        assert again.train({RATE: 0.02}).trial.id == "t0002"  # the one that was asked for before
        assert again.left == 1
    assert again.sweep.directory == session.sweep.directory
    assert [entry.trial for entry in Ledger(again.sweep.folder.ledger).entries()] == ["t0001", "t0002"]
    assert PROPOSED in again.sweep.front().claim.conditions


@quick
def test_nothing_is_trained_that_nobody_proposed(options, capsys):
    with sweeper.open(CONTENT, options, progress=True) as session:
        assert session.train({RATE: 0.05}).trial.id == "t0001"  # its worker then waits
    assert "small: Price: epsilon " in capsys.readouterr().out
    assert list(session.sweep.folder.trials()) == ["t0001"]
    assert [entry.trial for entry in Ledger(session.sweep.folder.ledger).entries()] == ["t0001"]


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"search": {"selection": "private", "trials": None}}, "search.selection: private; leave it out"),
        ({"search": {"rehearse": True, "trials": 2}}, "search.rehearse; set it to false"),
    ],
)
def test_what_no_caller_may_propose_is_refused_before_there_is_a_folder(options, changes, refused):
    content = small_content(
        privacy={"sweep_epsilon": 3.0, "delta": 1e-4}, training={"learning_rate": {"log": [0.01, 0.1]}}, **changes
    )
    content["search"] = {key: value for key, value in content["search"].items() if value is not None}
    with pytest.raises(TrialError, match=refused):
        sweeper.open(content, options)
    assert list(options.out.iterdir()) == []


def test_a_cluster_and_configurations_of_the_spec_are_refused(options, tmp_path):
    with pytest.raises(TrialError, match=r"the cluster 10\.0\.0\.1; leave it out"):
        sweeper.open(CONTENT, Options(out=tmp_path, cluster="10.0.0.1"))
    with pytest.raises(SpecError, match=r"no first where a caller proposes.*1 configurations"):
        sweeper.open(small_content(training={"learning_rate": [0.1, 0.2]}, search={"first": [{RATE: 0.1}]}), options)


def test_the_waiting_private_selection_of_a_folder_is_refused(tmp_path, folder):
    spec = small_content(search={"selection": "private"}, training={"learning_rate": [0.1, 0.2]})
    folder.write_manifest(Manifest(name="x", status=SweepStatus.INTERRUPTED, spec=spec, source="x.yaml"))
    with pytest.raises(TrialError, match="selects privately"):
        sweeper.open(tmp_path)


KILLED = """
import os, signal, sys, threading, sweeper
from pathlib import Path
from tests.sweeper.driver.test_session import CONTENT, RATE

session = sweeper.open(CONTENT, sweeper.Options(out=Path(sys.argv[1])))
session.train({RATE: 0.05})
session._caller.propose([{RATE: 0.02}])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.long
@pytest.mark.slow
def test_a_killed_session_goes_on(tmp_path):
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, timeout=300)
    (manifest,) = tmp_path.glob("*/sweep.json")
    with sweeper.open(manifest.parent) as session:
        assert [one.trial.id for one in session.trained] == ["t0001"]
        assert session.train({RATE: 0.02}).trial.id == "t0002"
    assert [entry.trial for entry in Ledger(SweepFolder(manifest.parent).ledger).entries()] == ["t0001", "t0002"]
