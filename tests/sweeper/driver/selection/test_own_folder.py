"""A private selection in a folder made beforehand, as the service makes them, or in a hidden one."""

import contextlib
import shutil
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from sweeper.cli.tables import sweep_view, sweeps_table
from sweeper.driver.options import Options
from sweeper.driver.resume import recorded_claim
from sweeper.driver.runner import resume_sweep, run_sweep
from sweeper.driver.selection import private_run, selection_run
from sweeper.errors import RecordError
from sweeper.papers.stated_spec import unlike_its_spec
from sweeper.papers.verification import read_card, verify_papers
from sweeper.privacy.claims import COPIED
from sweeper.privacy.ledger import Ledger
from sweeper.records import SweepStatus
from sweeper.results.front import read_front
from sweeper.results.housekeeping import delete_sweep
from sweeper.results.sweep import Sweep
from sweeper.service.catalog import Catalog
from sweeper.service.supervision.supervisor import check_resumable
from sweeper.specification.spec import Spec
from sweeper.specification.yaml_file import read_mapping
from sweeper.store.lock import is_driven
from sweeper.store.manifest import Manifest
from sweeper.store.requests import ask_to_stop
from sweeper.store.sweep_folder import HIDDEN, SweepFolder, beside, is_waiting

from .played import SPEC, Calls, as_killed, check_only_the_winner, everything_in, killed, said

pytestmark = pytest.mark.slow


@pytest.fixture
def made(tmp_path):
    """A folder of the service, and how a sweep is run into it."""
    public = tmp_path / "out" / "small-20260101-000000"
    public.mkdir(parents=True)
    return SweepFolder(public), Options(out=public.parent, into=public, duration_is_seen=True)


def test_while_it_runs_its_folder_shows_that_and_nothing_else(whole, made):
    public, options = made
    seen, ids = [], set()

    def look(*_):
        manifest = public.read_manifest()
        ids.add(manifest.id)
        seen.append((manifest.status, manifest.reason, sorted(path.name for path in public.path.iterdir())))
        assert is_driven(public.path)
        assert Catalog(public.path.parent).names() == (public.path.name,)
        assert (public.trials(), public.points()) == ({}, {})
        assert not any(price_.released for price_ in read_front(public.front).ledger.values())
        assert sweep_view(Sweep(public.path)) is not None
        assert sweeps_table([public]).row_count == 1
        assert _live(public.path)

    whole.does = {"t0001": look, "t0004": look}
    ended = run_sweep(Spec.from_mapping(SPEC), options)
    assert seen == [(SweepStatus.RUNNING, "selecting privately", ["driver.json", "front.json", "sweep.json"])] * 2
    assert ended.sweep.directory == public.path
    assert [path.name for path in public.path.parent.iterdir()] == [public.path.name]
    check_only_the_winner(everything_in(public.path) + repr(Calls.told).encode(), whole)
    assert "its conditions held" in ended.front.ledger["winner"].statement
    assert public.read_manifest().status is SweepStatus.COMPLETED
    ids |= {public.read_manifest().id, Calls.told[0][2]["id_"]}
    assert len(ids - {None}) == len(ids) == 1, "its winner is the run of the sweep that was seen to select"


def _live(folder):
    from dashboards.data import read

    return read(folder)


@pytest.mark.usefixtures("bare")
def test_in_its_folder_it_is_asked_to_stop_and_goes_on_from_there(whole, made):
    public, options = made
    whole.does = {"t0002": lambda *_: ask_to_stop(public.path)}
    with pytest.raises(private_run.SelectionWaitsError):
        run_sweep(Spec.from_mapping(SPEC), options)
    manifest = public.read_manifest()
    assert manifest.id is not None
    assert (manifest.status, manifest.reason) == (SweepStatus.INTERRUPTED, "selects privately, and waits to be resumed")
    assert is_waiting(public.path)
    check_resumable(public.path, SweepStatus.INTERRUPTED, None)
    public.write_manifest(replace(manifest, cluster="head:6379"))  # of an earlier version
    with pytest.raises(RecordError, match=f"began on the cluster head:6379 in {public.path.name}; start another"):
        check_resumable(public.path, SweepStatus.INTERRUPTED, None)
    public.write_manifest(manifest)
    with pytest.raises(RecordError, match="selected privately"):
        check_resumable(public.path, SweepStatus.INTERRUPTED, 9)
    whole.does = {}
    ended = resume_sweep(public.path)
    assert public.read_manifest().id == Calls.told[0][2]["id_"] == manifest.id
    assert "its conditions held" in ended.front.ledger["winner"].statement
    assert [trial for trial, _ in whole.asked] == [f"t000{n}" for n in range(1, 5)]
    assert not is_waiting(public.path)
    with pytest.raises(RecordError, match="selected privately"):
        check_resumable(public.path, SweepStatus.COMPLETED, None)


@pytest.mark.usefixtures("bare")
def test_in_its_folder_what_broke_is_seen_and_charged(whole, made):
    public, options = made
    whole.does = {"t0002": "crashes"}
    ended = run_sweep(Spec.from_mapping(SPEC), options)
    assert ended.sweep.directory == public.path
    assert len(ended.front.trials) == 2
    assert "Candidate t0002 crashed" in ended.front.ledger["winner"].statement
    assert [path.name for path in public.path.parent.iterdir()] == [public.path.name]
    assert not {private_run.SURRENDERED, *private_run.BOOKS} & {path.name for path in public.path.iterdir()}


@pytest.mark.sampled(5)
@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("does", [{}, {"t0002": "crashes"}], ids=["winner", "broken"])
@pytest.mark.parametrize("moves", range(9))
def test_killed_while_it_moves_into_its_folder_it_moves_on(whole, made, monkeypatch, does, moves):
    """The same files are there in the end, whatever the number of files that had moved."""
    public, options = made

    class Killed(BaseException):
        """Stands for a kill."""

    replaced, left = Path.replace, [moves]

    def replace_some(path, target):
        if HIDDEN in str(path) and HIDDEN not in str(target):
            if not left[0]:
                raise Killed
            left[0] -= 1
        return replaced(path, target)

    whole.does = does
    monkeypatch.setattr(Path, "replace", replace_some)
    with contextlib.suppress(Killed):
        run_sweep(Spec.from_mapping(SPEC), options)
    monkeypatch.setattr(Path, "replace", replaced)
    asked = len(whole.asked)
    with contextlib.suppress(RecordError):  # it had moved as a whole
        resume_sweep(public.path)
    front = read_front(public.front)
    assert len(whole.asked) == asked
    assert len(front.points) == 2
    assert len(front.trials) == (2 if does else 1)
    assert [path.name for path in public.path.parent.iterdir()] == [public.path.name]
    assert ("its conditions held" in said(public)) == (not does)


@pytest.mark.usefixtures("bare", "whole")
@pytest.mark.parametrize("has_winner", [True, False])
def test_killed_while_its_hidden_folder_is_removed_the_winner_is_found(made, has_winner):
    public, options = made
    if has_winner:
        run_sweep(Spec.from_mapping(SPEC), options)
    beside(public.path).mkdir(mode=0o700)  # its mark is gone, the folder itself is not
    left = private_run.recover(SweepFolder(beside(public.path)))
    assert (left and left.path) == (public.path if has_winner else None)
    assert [path.name for path in public.path.parent.iterdir()] == [public.path.name]


def copied_at_a_kill(whole, tmp_path):
    """Return a hidden folder as a kill in its third candidate leaves it."""
    kill, copy = killed(tmp_path)
    whole.does = {"t0003": kill}
    run_sweep(Spec.from_mapping(SPEC), Options(out=tmp_path / "out"))
    whole.does, whole.asked = {}, []
    return copy


@pytest.mark.usefixtures("bare")
def test_a_hidden_folder_is_resumed_or_given_up(whole, tmp_path):
    copy = copied_at_a_kill(whole, tmp_path)
    given = tmp_path / "given" / f"{HIDDEN}copy"
    as_killed(copy.path, given)
    with pytest.raises(RecordError, match="drawn once"):
        resume_sweep(copy.path, trials=9)
    ended = resume_sweep(given, give_up=True)
    assert not given.exists()
    assert whole.asked == []
    assert "ended before its winner was known" in ended.front.ledger["winner"].statement
    assert len(ended.front.points) == 4
    assert all(point.test is not None for point in ended.front.front_points)
    ended.sweep.pick().write(tmp_path / "picked")
    assert [one.failure for one in verify_papers(tmp_path / "picked") if one.failure] == []
    spec = read_mapping(tmp_path / "picked" / "spec.yaml")
    spec["search"]["selection_mean"] = 1.5  # on average; more were trained, which extends nothing
    paid = Ledger(tmp_path / "picked" / "ledger.jsonl")
    paid.open("t0009", paid.entries()[0].planned)
    assert list(unlike_its_spec(read_card(tmp_path / "picked"), spec, paid)) == []
    ended = resume_sweep(copy.path)
    assert [trial for trial, _ in whole.asked] == ["t0003", "t0004"]
    assert "its conditions held" in ended.front.ledger["winner"].statement
    assert [path.name for path in copy.path.parent.iterdir()] == [ended.sweep.directory.name]
    with pytest.raises(RecordError, match="--give-up"):
        resume_sweep(_ordinary(tmp_path), give_up=True)


@pytest.mark.usefixtures("bare")
def test_a_selection_that_was_put_back_from_a_copy_does_not_go_on_and_is_given_up_as_one(whole, tmp_path):
    """Candidates that were drawn since would be drawn twice, at the price of once."""
    copy = copied_at_a_kill(whole, tmp_path)
    shutil.copytree(copy.path, tmp_path / "kept")
    shutil.rmtree(copy.path)
    (tmp_path / "kept").rename(copy.path)
    for _ in range(2):
        with pytest.raises(RecordError, match=r"may have been put back from a copy.*resume --give-up$"):
            resume_sweep(copy.path)
    assert whole.asked == []
    given = private_run.recover(copy)
    assert COPIED in read_front(given.front).claim.conditions
    assert COPIED in recorded_claim(given).conditions


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("decided", [False, True])
def test_a_hidden_folder_that_was_put_back_beside_its_end_does_not_replace_it(
    whole, made, tmp_path, monkeypatch, decided
):
    """It may have a final, which the ledger of the hidden folder does not know."""
    public, options = made
    kept, released = tmp_path / "kept", private_run._release
    keep = lambda hidden: shutil.copytree(hidden.path, kept)  # noqa: E731
    if decided:
        monkeypatch.setattr(private_run, "_release", lambda hidden: keep(hidden) and released(hidden))
    else:
        whole.does = {"t0003": lambda engine, *_: keep(engine.folder)}
    run_sweep(Spec.from_mapping(SPEC), options)
    whole.does, before = {}, {file.name: file.read_bytes() for file in public.path.iterdir() if file.is_file()}
    hidden = kept.rename(beside(public.path))
    for path, give_up in ((public.path, False), (hidden, False), (hidden, True)):
        with pytest.raises(RecordError):
            resume_sweep(path, give_up=give_up)
    with pytest.raises(RecordError, match=r"but its end is in .*: .* was put back from a copy; remove it$"):
        private_run.recover(SweepFolder(hidden))
    after = {file.name: file.read_bytes() for file in public.path.iterdir() if file.is_file()}
    assert {name for name in before if after[name] != before[name]} <= {"driver.json"}
    assert hidden.exists()


@pytest.mark.usefixtures("bare", "whole")
def test_what_is_put_back_of_a_winner_on_its_way_out_replaces_nothing_of_its_end(made, tmp_path, monkeypatch):
    """Its ledger had moved already: only the file of the sweep, which moves last, says that there is an end."""
    public, options = made
    kept, replaced = tmp_path / "kept", Path.replace

    def replace_and_keep(path, target):
        found = replaced(path, target)
        if path.name == "ledger.jsonl" and HIDDEN in str(path):
            shutil.copytree(path.parent.parent, kept)
        return found

    monkeypatch.setattr(Path, "replace", replace_and_keep)
    run_sweep(Spec.from_mapping(SPEC), options)
    monkeypatch.setattr(Path, "replace", replaced)
    (public.path / "points.jsonl").write_text("")  # stands for what the final has written since
    before = {file.name: file.read_bytes() for file in public.path.iterdir() if file.is_file()}
    hidden = SweepFolder(kept.rename(beside(public.path)))
    assert private_run.recover(hidden).path == public.path
    after = {file.name: file.read_bytes() for file in public.path.iterdir() if file.is_file()}
    assert {name for name in before if after[name] != before[name]} <= {"driver.json"}
    assert not hidden.path.exists()


@pytest.mark.usefixtures("bare", "whole")
def test_a_selection_that_was_given_up_before_a_trial_has_ended(made, monkeypatch):
    """Its folder said that it runs, and to resume it reserved from its account once more."""

    class Killed(BaseException):
        """Stands for a kill."""

    def die(*_):
        raise Killed

    public, options = made
    with monkeypatch.context() as patched:
        patched.setattr(selection_run, "_select", die)
        patched.setattr(SweepFolder, "write_manifest", _once_in(public.path, SweepFolder.write_manifest))
        with pytest.raises(Killed):
            run_sweep(Spec.from_mapping(SPEC), options)
    assert public.read_manifest().status is SweepStatus.RUNNING
    with pytest.raises(RecordError, match="had begun no trial"):
        resume_sweep(public.path, give_up=True)
    manifest = public.read_manifest()
    assert (manifest.status, manifest.reason) == (SweepStatus.STOPPED, private_run.UNBEGUN)
    with pytest.raises(RecordError, match="start another sweep"):
        resume_sweep(public.path)
    public.write_manifest(replace(manifest, status=SweepStatus.RUNNING))  # as an earlier version left it
    with pytest.raises(RecordError, match=r"no trial of .* had begun, and its hidden folder is gone; delete it"):
        resume_sweep(public.path)
    assert not public.ledger.exists()


def _once_in(path, write):
    """Write the manifest of a folder once: who is killed says nothing at its end."""
    written = []

    def once(folder, manifest):
        if folder.path != path or not written:
            write(folder, manifest)
        written.append(folder.path) if folder.path == path else None

    return once


@pytest.mark.usefixtures("bare", "whole")
@pytest.mark.parametrize("deleted", ["the folder of its end", "its ledger alone"])
def test_a_winner_on_its_way_out_does_not_lose_its_ledger(made, monkeypatch, deleted):
    """Killed when the ledger had moved: what is left of the winner would become a sweep without a price."""

    class Killed(BaseException):
        """Stands for a kill."""

    public, options = made
    replaced = Path.replace

    def replace_and_die(path, target):
        found = replaced(path, target)
        if path.name == "ledger.jsonl" and HIDDEN in str(path):
            raise Killed
        return found

    monkeypatch.setattr(Path, "replace", replace_and_die)
    with pytest.raises(Killed):
        run_sweep(Spec.from_mapping(SPEC), options)
    monkeypatch.setattr(Path, "replace", replaced)
    hidden = beside(public.path)
    with pytest.raises(RecordError, match=r"whose private selection in .* has not; end that first with sweeper resume"):
        delete_sweep(public.path)
    assert public.ledger.exists()
    if deleted == "its ledger alone":
        public.ledger.unlink()
    else:
        shutil.rmtree(public.path)
    before = sorted(file for file in hidden.rglob("*") if file.is_file())
    with pytest.raises(RecordError, match=r"Expected the ledger of a private selection in .*, got none: restore it"):
        private_run.recover(SweepFolder(hidden))
    assert sorted(file for file in hidden.rglob("*") if file.is_file()) == before
    assert [path.name for path in hidden.parent.iterdir() if path.is_dir()] == (
        sorted([hidden.name, public.path.name])[: 1 + public.path.exists()]
    )


def _ordinary(tmp_path):
    folder = SweepFolder.create(tmp_path, "plain", datetime(2026, 1, 1))
    content = {**SPEC, "search": {"trials": 1}}
    plain = Spec.from_mapping(content).to_plain()
    folder.write_manifest(Manifest(name="plain", spec=plain, source="s", status=SweepStatus.INTERRUPTED))
    return folder.path
