"""Files of trials by way of a storage: pushed whole, pulled by the driver, fetched by the next node."""

import json
from types import SimpleNamespace

import pytest

from sweeper.backend import storage as module
from sweeper.backend.storage import SharedFolder, Storage, fetch_models, url_of_sweep
from sweeper.backend.trial_states import Hooks
from sweeper.driver.options import Options
from sweeper.driver.runner import run_sweep
from sweeper.errors import RecordError, SweeperError
from sweeper.records import TrialStatus
from sweeper.specification.spec import Spec
from sweeper.trials.stream import EpochRow

pytestmark = pytest.mark.slow

NAME = "checkpoints/t0001-0.safetensors"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)


@pytest.fixture(params=["memory://{}/a", "file://{}/b"], ids=["memory", "file"])
def url(request, tmp_path):
    return request.param.format(tmp_path)


@pytest.fixture
def folder(tmp_path):
    """A folder of another node, with a checkpoint and a model."""
    path = tmp_path / "node"
    for name in (NAME, "models/t0001-1.safetensors"):
        (path / name).parent.mkdir(parents=True)
        (path / name).write_bytes(name.encode())
    return path


def test_what_one_node_pushes_another_pulls(url, folder, tmp_path):
    Storage(url).push(folder, NAME)
    there = Storage(url)
    assert there.checkpoints("t0001") == [NAME]
    assert there.checkpoints("t0002") == []
    there.pull(tmp_path / "other", NAME)
    assert (tmp_path / "other" / NAME).read_bytes() == NAME.encode()
    there.delete(NAME, "never-there")
    assert there.checkpoints("t0001") == []


def test_a_file_that_is_being_written_is_not_there_yet(url, folder, monkeypatch):
    there = Storage(url)
    files = there._files
    monkeypatch.setattr(type(files), "mv", lambda *_args, **_options: 1 / 0)
    with pytest.raises(RecordError, match=r"Cannot write .*/checkpoints/t0001-0\.safetensors: ZeroDivisionError"):
        there.push(folder, NAME)
    assert there.checkpoints("t0001") == []


def test_a_storage_that_stumbles_is_asked_again(url, folder, monkeypatch):
    there, errors = Storage(url), [TimeoutError("slow"), TimeoutError("slow")]
    real = type(there._files).put_file

    def put(*args, **options):
        if errors:
            raise errors.pop()
        return real(*args, **options)

    monkeypatch.setattr(type(there._files), "put_file", put)
    there.push(folder, NAME)
    assert there.checkpoints("t0001") == [NAME]


def test_a_model_that_is_not_there_is_named(url, tmp_path):
    with pytest.raises(RecordError, match=r"Cannot read .*; check the storage \(--storage\)"):
        Storage(url).pull(tmp_path / "here", "models/none")


def test_a_url_that_nobody_knows_is_refused():
    with pytest.raises(SweeperError, match="Expected a URL that fsspec knows, such as s3://BUCKET/PATH, got odd://x"):
        Storage("odd://x")


def test_a_file_system_whose_package_is_missing_is_refused_with_the_remedy(monkeypatch):
    def missing(*_args, **_options):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(module.fsspec.core, "url_to_fs", missing)
    with pytest.raises(SweeperError, match="Cannot use s3://bucket: Install s3fs to access S3; pip install it"):
        Storage("s3://bucket")


def test_a_trial_goes_on_on_another_node_from_what_was_shared(url):
    one = SharedFolder(url, "t0001")
    one.fetch()
    (one.path / NAME).write_bytes(b"epoch 1")
    (one.path / "models" / "t0001-1.safetensors").write_bytes(b"model")
    one.share(["models/t0001-1.safetensors"], "a")
    assert not (one.path / "models" / "t0001-1.safetensors").exists(), "the driver has it"
    other = SharedFolder(url, "t0001")
    other.fetch()
    assert (other.path / NAME).read_bytes() == b"epoch 1"
    assert list((other.path / "models").iterdir()) == []
    (one.path / NAME).write_bytes(b"not shared")
    one.fetch()
    assert (one.path / NAME).read_bytes() == b"epoch 1", "what was never shared is forgotten"
    one.close()
    other.close()
    assert not one.path.exists()


def test_nothing_of_an_earlier_attempt_is_left_in_a_folder_that_is_fetched_again(url):
    one = SharedFolder(url, "t0001")
    one.fetch()
    (one.path / NAME).write_bytes(b"never shared")
    one.fetch()
    assert not (one.path / NAME).exists()
    one.close()


def test_nothing_is_shared_before_it_was_fetched(url):
    one = SharedFolder(url, "t0001")
    one.share(["models/none"], "a")
    one.close()


def test_the_driver_has_a_model_before_it_is_told_and_forgets_checkpoints_at_the_end(url, folder, tmp_path):
    there, sweep, told = Storage(url), tmp_path / "sweep", []
    sweep.mkdir()
    there.push(folder, NAME)
    there.push(folder, "models/t0001-1.safetensors", "a")

    def on_epoch(_trial, row):
        told.append((sweep / row.model).exists() if row.model else None)

    hooks = fetch_models(Hooks(on_epoch=on_epoch, on_end=lambda *given: told.append(given)), there, sweep)
    hooks.on_plan("t0001", SimpleNamespace(attempt="a"))
    hooks.on_epoch("t0001", EpochRow(epoch=1, values={}, model="models/t0001-1.safetensors"))
    hooks.on_epoch("t0001", EpochRow(epoch=2, values={}))
    hooks.on_end("t0001", TrialStatus.INTERRUPTED, "", 1)
    assert there.checkpoints("t0001") == [NAME], "it may go on"
    hooks.on_end("t0001", TrialStatus.COMPLETED, "", 1)
    assert there.checkpoints("t0001") == []
    assert told[:2] == [True, None]


def test_a_node_that_was_taken_for_dead_does_not_replace_the_model_that_was_scored(url, folder, tmp_path):
    """It ends the epoch that another node has trained again from its checkpoint, and pushes a model of that name."""
    there, sweep, model = Storage(url), tmp_path / "sweep", "models/t0001-1.safetensors"
    sweep.mkdir()
    hooks = fetch_models(Hooks(), there, sweep)
    for attempt in ("first", "second"):
        hooks.on_plan("t0001", SimpleNamespace(attempt=attempt))
    for attempt in ("second", "first"):
        (folder / model).write_text(attempt)
        there.push(folder, model, attempt)
    hooks.on_epoch("t0001", EpochRow(epoch=1, values={}, model=model))
    assert (sweep / model).read_text() == "second"


@pytest.mark.usefixtures("bare", "untracked")
@pytest.mark.parametrize(
    ("engine", "cluster"), [("in_process", None), pytest.param("ray_running", "auto", marks=pytest.mark.long)]
)
def test_a_sweep_by_way_of_a_storage_has_every_model_and_leaves_nothing_there(
    content, tmp_path, request, engine, cluster
):
    request.getfixturevalue(engine)
    content["training"] = {"epochs": 2, "batch_size": 256, "learning_rate": 0.05, "sensitivity_fraction": 0.1}
    content["search"] = {"trials": 1}
    spec = Spec.from_mapping(content, str(tmp_path / "spec.yaml"))
    ended = run_sweep(spec, Options(out=tmp_path / "out", storage=f"file://{tmp_path}/storage", cluster=cluster))
    kept = [point.model for point in ended.front.front_points]
    assert kept
    assert all((ended.sweep.directory / model).exists() for model in kept)
    assert not (ended.sweep.directory / "checkpoints").exists(), "trials wrote elsewhere"
    left = [path for path in (tmp_path / "storage").rglob("*") if path.is_file()]
    assert left == []
    assert json.loads((ended.sweep.directory / "sweep.json").read_text())["storage"] == f"file://{tmp_path}/storage"


def test_sweeps_of_one_name_have_folders_of_their_own_on_a_storage(tmp_path):
    """Or a trial of one would go on from a checkpoint of the other."""
    found = {url_of_sweep("s3://b", tmp_path / of / "small-1", id_) for of, id_ in (("a", "1" * 32), ("b", "2" * 32))}
    assert len(found) == 2
