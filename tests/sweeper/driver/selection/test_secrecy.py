"""While a private selection runs nobody but its owner sees it, whatever command or copy is tried."""

import re
import shutil
import stat
from dataclasses import replace

import pytest

from sweeper.cli.main import main
from sweeper.driver.runner import resume_sweep
from sweeper.driver.selection.private_run import recover, recover_all
from sweeper.errors import RecordError, UnknownSweepError
from sweeper.service.catalog import Catalog
from sweeper.specification.spec import Spec
from sweeper.store.manifest import MANIFEST_NAME, SELECTING
from sweeper.store.requests import ask_to_stop, enqueue
from sweeper.store.sweep_folder import HIDDEN, SweepFolder, hidden_sweeps, list_sweeps

from .played import FOUR, SPEC, killed, main_quietly, said

pytestmark = pytest.mark.slow


def test_while_it_runs_only_its_owner_can_read_it_and_no_list_shows_it(play):
    seen = []

    def look(engine, _states, _trial):
        seen.append(stat.S_IMODE(engine.folder.path.stat().st_mode))
        assert list_sweeps(engine.folder.path.parent) == []
        assert hidden_sweeps(engine.folder.path.parent)[0].path == engine.folder.path
        assert recover_all(engine.folder.path.parent) == ()  # somebody drives it

    ran = play({"t0002": look, "t0004": look})
    assert seen == [0o700, 0o700]
    assert stat.S_IMODE(ran.folder.path.stat().st_mode) & 0o055 == 0o055


COMMANDS = (
    ["show", "SWEEP"],
    ["log", "SWEEP", "t0001"],
    ["front", "SWEEP", "--format", "json"],
    ["pick", "SWEEP"],
    ["compare", "SWEEP", "SWEEP"],
    ["diagnose", "SWEEP"],
    ["audit", "SWEEP"],
    ["predict", "SWEEP", __file__],
    ["register", "SWEEP", "--name", "best"],
    ["note", "SWEEP", "t0001", "good"],
    ["tag", "SWEEP", "t0001", "a=b"],
    ["enqueue", "SWEEP", "--set", "training.learning_rate=0.05"],
    ["delete", "SWEEP", "--yes"],
    ["replay", "SWEEP"],
    ["resume", "SWEEP"],
    ["extend", "SWEEP", "--trials", "9"],
    ["run", "WARM", "--out", "OUT"],
)
REFUSALS = "nobody may see more than the winner|drives|which may be a copy|drawn once|got a link to one"


@pytest.mark.long
def test_every_command_refuses_a_selection_that_runs_by_whatever_name(play, tmp_path, capsys):
    said_of = []

    def refused(sweep, arguments):
        (tmp_path / "warm.yaml").write_text(warm(sweep), encoding="utf-8")
        given = {"SWEEP": str(sweep), "WARM": str(tmp_path / "warm.yaml"), "OUT": str(tmp_path / "others")}
        with pytest.raises(SystemExit) as ended:
            main([given.get(argument, argument) for argument in arguments])
        said_of.append((arguments, ended.value.code, *capsys.readouterr()))
        assert sweep.exists()

    def look(engine, *_):
        hidden, copy = engine.folder.path, tmp_path / "copies" / "small-1"
        shutil.copytree(hidden, copy)
        shutil.copytree(hidden, copy.with_name(f"{HIDDEN}x"))
        (tmp_path / "link").symlink_to(hidden)
        for sweep in (hidden, copy, copy.with_name(f"{HIDDEN}x"), tmp_path / "link"):
            for arguments in COMMANDS:
                refused(sweep, arguments)

    assert "its conditions held" in said(play({"t0003": look}).folder)
    for arguments, code, out, err in said_of:
        assert (code, out) == (2, ""), arguments
        assert re.search(REFUSALS, err), (arguments, err)
        assert not any(str(value) in err for values in FOUR for value in values)
    assert len(said_of) == 4 * len(COMMANDS)


def warm(sweep):
    content = SPEC | {"search": {"trials": 1, "warm_start": str(sweep)}}
    return Spec.from_mapping(content).to_yaml()


def test_no_list_no_service_and_no_report_shows_a_copy_of_a_selection_that_runs(play, tmp_path, capsys):
    from dashboards.data import read

    def look(engine, *_):
        shutil.copytree(engine.folder.path, tmp_path / "copies" / "small-1")
        (tmp_path / "copies" / "small-1" / "front.json").write_text("{}")
        main_quietly(["list", "--out", str(tmp_path / "copies")])
        main_quietly(["list", "--out", str(engine.folder.path)])
        main_quietly(["gc", str(tmp_path / "copies")])
        assert capsys.readouterr().out.count("No sweep in") == 2
        catalog = Catalog(tmp_path / "copies")
        assert catalog.names() == ()
        with pytest.raises(UnknownSweepError):
            catalog.folder("small-1")
        with pytest.raises(RecordError, match="nobody may see more than the winner"):
            read(tmp_path / "copies" / "small-1")

    assert "its conditions held" in said(play({"t0003": look}).folder)


def test_a_selection_that_runs_has_no_front_and_so_no_price_that_is_not_known(play):
    def look(engine, *_):
        assert not list(engine.folder.path.rglob("front*"))

    play({"t0003": look})


def test_a_copy_is_not_recovered_by_any_name_nor_is_what_lies_in_a_hidden_folder(play, tmp_path):
    def look(engine, *_):
        copies = [tmp_path / "copies" / name for name in (f"{HIDDEN}x", "small-1")]
        for copy in copies:
            shutil.copytree(engine.folder.path, copy)
            with pytest.raises(RecordError, match="which may be a copy"):
                recover(SweepFolder(copy))
        assert recover_all(copies[0].parent) == ()

    ran = play({"t0003": look})
    inner = tmp_path / "copies" / f"{HIDDEN}x" / "winner"
    shutil.copytree(ran.folder.path, inner)
    with pytest.raises(RecordError, match="which may be a copy"):
        resume_sweep(inner)
    assert inner.is_dir()


def test_a_selection_whose_claim_is_lost_is_no_sweep(play, tmp_path):
    kill, copy = killed(tmp_path)
    play({"t0003": kill})
    copy.write_manifest(replace(copy.read_manifest(secret=True), claim=None))
    with pytest.raises(RecordError, match="Expected the claim of a private selection"):
        recover(copy)
    assert copy.path.exists()


def test_what_a_command_writes_of_a_sweep_that_ended_bears_no_mark(play):
    assert SELECTING not in (play().folder.path / MANIFEST_NAME).read_text()
    assert SELECTING not in (play({"t0002": "crashes"}).folder.path / MANIFEST_NAME).read_text()


def test_nothing_can_be_stopped_or_added_by_request(play):
    def refuse(engine, _states, _trial):
        for trial in (None, "t0001"):
            with pytest.raises(RecordError, match="nobody may see more than the winner"):
                ask_to_stop(engine.folder.path, trial)
        with pytest.raises(RecordError, match="nobody may see more than the winner"):
            enqueue(engine.folder.path, {"training.learning_rate": 0.05})

    assert "its conditions held" in said(play({"t0002": refuse}).folder)
