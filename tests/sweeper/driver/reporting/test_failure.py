"""A driver that cannot begin: the whole error for the owner of the data, its kind for everybody else."""

import json

import pytest
import yaml

from sweeper.cli.main import main
from sweeper.driver.reporting import failure
from sweeper.errors import FOR_THE_OWNER, SpecError
from sweeper.store.sweep_folder import SweepFolder

CELL = "Name-042450"
RANGES = """\
source: codebook
target: {column: ill, classes: ["no", "yes"]}
columns: {age: {low: 0, high: 120}, who: {drop: true}}
"""
DATA = {"path": "patients.csv", "ranges": "ranges.yaml", "evaluation": "private"}
SPEC = {
    "name": "probe",
    "model": {"architecture": "mlp", "width": 4},
    "training": {"epochs": 1, "batch_size": 8},
    "privacy": {"epsilon": 1.0, "delta": 1e-6, "score_noise": 50},
    "search": {"trials": 1, "objectives": ["epsilon", "accuracy"]},
}
ROWS = "who,age,ill\n" + "".join(f"{CELL},{age},{'yes' if age % 2 else 'no'}\n" for age in range(20, 90))
QUOTED = {
    "a split column": (ROWS, {"splits": {"column": "who", "train": ["a"], "validation": ["b"], "test": ["c"]}}, CELL),
    "a unit": (ROWS.replace(f"{CELL},33,", ",33,"), {"unit": "who"}, "row 14"),
    "a label": (ROWS.replace("yes", "hiv"), {}, "hiv"),
    "a number": (ROWS.replace("33", "33 years"), {}, "33 years"),
    "a gap": (ROWS.replace("33,", ","), {}, "row 14"),
    "a header": ("\n".join(ROWS.splitlines()[1:]), {}, CELL),
    "a ragged row": (ROWS + "1,2,3,4\n", {}, "Row #72"),
}


@pytest.fixture
def folder(tmp_path):
    """A folder that the service made for a sweep."""
    path = tmp_path / "out" / "probe-1"
    (path / "models").mkdir(parents=True)
    return path


def drive(folder, rows, data):
    """Run a driver as the service does, in this process; return its exit code."""
    (folder.parent.parent / "patients.csv").write_text(rows)
    (folder.parent.parent / "ranges.yaml").write_text(RANGES)
    whole = {key: str(folder.parent.parent / text) for key, text in DATA.items() if key != "evaluation"}
    (folder / "spec.yaml").write_text(yaml.safe_dump(SPEC | {"data": DATA | whole | data}))
    with pytest.raises(SystemExit) as ended:
        main(["run", str(folder / "spec.yaml"), "--into", str(folder)])
    return ended.value.code


@pytest.mark.parametrize("kind", QUOTED)
def test_of_an_error_about_rows_everybody_is_told_its_kind_and_the_owner_all(kind, folder, capsys):
    rows, data, quoted = QUOTED[kind]
    assert drive(folder, rows, data) == 2
    assert failure.said(folder) == f"DataError: {FOR_THE_OWNER}"
    assert quoted in capsys.readouterr().err, "at the console"
    (noted,) = SweepFolder(folder).failures()
    assert noted["trial"] is None
    assert quoted in noted["error"]
    assert (folder / "failures.jsonl").stat().st_mode & 0o777 == 0o600
    for path in folder.rglob("*"):
        assert path.name == "failures.jsonl" or path.is_dir() or quoted not in path.read_text(), path


def test_an_error_of_the_request_is_told_to_everybody_and_a_spec_that_cannot_be_read_is_one(folder):
    assert drive(folder, ROWS, {"colour": "yiq"}) == 2
    assert failure.said(folder).startswith("Expected RGB images in [0, 1] for colour: yiq")
    (folder / "spec.yaml").write_text("name: x\n")
    with pytest.raises(SystemExit):
        main(["run", str(folder / "spec.yaml"), "--into", str(folder)])
    assert failure.said(folder).startswith("2 mistakes: (1) Expected a value for data, got none")


def test_nothing_is_written_where_no_sweep_is_to_be(tmp_path):
    for folder in (tmp_path, tmp_path / "none", None):
        with pytest.raises(SpecError), failure.noting(folder):
            raise SpecError("no")
    assert list(tmp_path.iterdir()) == []


def test_an_error_that_the_run_has_kept_is_not_kept_twice(folder):
    (folder / "spec.yaml").touch()
    SweepFolder(folder).save_failure("ValueError: x")
    with pytest.raises(ValueError, match="x"), failure.noting(folder):
        raise ValueError("x")
    assert len(SweepFolder(folder).failures()) == 1


def test_what_an_earlier_driver_said_is_forgotten(folder):
    (folder / "failure.json").write_text(json.dumps({"said": "no"}))
    assert failure.said(folder) == "no"
    failure.forget(folder)
    failure.forget(folder)
    assert failure.said(folder) == ""


def test_a_full_disk_hides_no_error(folder):
    (folder / "spec.yaml").touch()
    (folder / "failures.jsonl").mkdir()
    (folder / "failure.json").mkdir()
    with pytest.raises(ValueError, match="x"), failure.noting(folder):
        raise ValueError("x")
    assert failure.said(folder) == ""
