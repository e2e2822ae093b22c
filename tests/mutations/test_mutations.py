"""The planted faults are caught, and the script that plants them notices when one is not."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
spec = importlib.util.spec_from_file_location("mutations_run", HERE / "run.py")
run = importlib.util.module_from_spec(spec)
sys.modules["mutations_run"] = run
spec.loader.exec_module(run)

DEMANDED = {
    "noise left out",
    "noise scaled by the drawn batch size",
    "sum divided by the drawn batch size",
    "guard left out of one parameter",
    "rows that are not finite multiplied instead of masked",
    "convolution gain without sqrt(m)",
    "projection skipped",
    "shuffled instead of Poisson batches",
    "batch mask from a known seed",
    "batches and noise from the logged seed",
    "epsilon from the wrong q",
    "validation rows in training",
}
HARMLESS = """
[[fault]]
name = "a docstring changed"
file = "models/clipless/certificates/radii.py"
old = "Certificate radii as users write them"
new = "Radii of certificates as users write them"
tests = ["tests/clipless/certificates/test_radii.py::test_numbers_and_fractions_are_read"]
"""


def script(*arguments):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    command = [sys.executable, str(HERE / "run.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=600)


def fault(**changes):
    content = {"name": "x", "file": "f.py", "old": "a = 1", "new": "a = 2", "tests": ("t",)}
    return run.Fault(**(content | changes))


@pytest.mark.slow
@pytest.mark.long
def test_planted_faults_are_caught():
    """One in forty of them; continuous integration plants them all."""
    done = script("--short", "--every", "40")
    count = len(run.read_faults()[::40])
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, [f"{count} of {count} caught"]), (
        done.stdout + done.stderr
    )


@pytest.mark.slow
@pytest.mark.long
def test_a_fault_that_no_test_notices_is_reported(tmp_path):
    (tmp_path / "faults.toml").write_text(HARMLESS)
    done = script("--faults", str(tmp_path / "faults.toml"))
    assert done.returncode == 1
    assert "passed      the named tests without a fault" in done.stdout
    assert "NOT CAUGHT  a docstring changed: passed" in done.stdout
    assert done.stdout.splitlines()[-1] == "0 of 1 caught"


def test_the_list_fits_the_sources_and_holds_every_demanded_fault():
    assert {fault.name for fault in run.read_faults()} >= DEMANDED


def test_every_named_test_exists():
    for listed in run.read_faults():
        for test in listed.tests:
            file, _, name = test.partition("::")
            assert f"def {name.partition('[')[0]}(" in (run.ROOT / file).read_text(encoding="utf-8"), test


@pytest.mark.parametrize(("source", "count"), [("b = 1", 0), ("a = 1\na = 1", 2)])
def test_a_text_that_does_not_occur_exactly_once_is_an_error(source, count):
    with pytest.raises(run.ListError, match=f"expected the old text once in f.py, found it {count} times"):
        fault().planted(source)
    assert fault().planted("a = 1\nb = 1") == "a = 2\nb = 1"


def test_a_list_that_does_not_fit_ends_the_script(tmp_path, capsys):
    listed = tmp_path / "faults.toml"
    listed.write_text(HARMLESS + HARMLESS)
    assert run.main(["--faults", str(listed)]) == 1
    assert "a docstring changed: listed twice" in capsys.readouterr().err
    listed.write_text(HARMLESS.replace("Certificate radii", "Nothing like it"))
    assert run.main(["--faults", str(listed)]) == 1
    assert "found it 0 times" in capsys.readouterr().err


def test_a_text_that_no_name_contains_runs_nothing(capsys):
    with pytest.raises(SystemExit, match="2"):
        run.main(["--only", "no such fault"])
    assert "no fault's name contains 'no such fault'" in capsys.readouterr().err


def test_faults_are_planted_in_a_copy_only(tmp_path):
    planted = next(f for f in run.read_faults() if f.name == "noise left out")
    before = (run.ROOT / planted.file).read_text(encoding="utf-8")
    run.copy_sources(tmp_path, planted)
    assert (tmp_path / planted.file).read_text(encoding="utf-8") == before.replace(planted.old, planted.new)
    assert (run.ROOT / planted.file).read_text(encoding="utf-8") == before
    assert not list((tmp_path / planted.file).parent.glob("__pycache__/training.*"))


def test_tests_that_should_have_failed_are_named():
    failures = run.Failures()
    failures.failed = ["a.py::test_one[3]", "a.py::test_two"]
    assert failures.missing(["a.py::test_one", "a.py::test_two", "a.py", "a.py::test"]) == ["a.py::test"]
