"""A data folder as PostgreSQL's image makes it."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from sweeper.errors import SweeperError
from sweeper.stack import database

pytestmark = pytest.mark.postgresql


@pytest.fixture
def folder():
    """A folder that PostgreSQL's user can reach, which those of pytest are not."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def environment(folder):
    (folder / "password").write_text("secret\n")
    return {"POSTGRES_USER": "m", "POSTGRES_DB": "runs", "POSTGRES_PASSWORD_FILE": str(folder / "password")}


def test_a_data_folder_is_made_once_with_its_database(folder, environment):
    data, bin_, owner = folder / "data", database.programs(), database.owner()
    data.mkdir()
    database.prepare(data, environment, bin_, owner)
    made = (data / "PG_VERSION").stat().st_mtime_ns
    assert (data / "pg_hba.conf").read_text().rstrip().endswith("host all all all scram-sha-256")
    database.prepare(data, environment, bin_, owner)
    assert (data / "PG_VERSION").stat().st_mtime_ns == made
    identity = {} if owner is None else {"user": owner, "group": owner, "extra_groups": []}
    said = subprocess.run(
        [bin_ / "postgres", "--single", "-D", data, "runs"],
        input="SELECT rolname FROM pg_roles WHERE rolsuper\n",
        text=True,
        capture_output=True,
        check=True,
        cwd="/",
        **identity,
    ).stdout
    assert 'rolname = "m"' in said


def test_a_folder_in_which_no_database_can_be_made_is_named(folder, environment):
    (folder / "data").mkdir()
    (folder / "data" / "something").write_text("in the way")
    with pytest.raises(SweeperError, match="choose another folder with --state"):
        database.prepare(folder / "data", environment, database.programs(), database.owner())


def test_root_is_not_who_runs_it(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert database.owner() in ("postgres", "nobody")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert database.owner() is None


def test_without_postgresql_the_remedy_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "INSTALLED", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SweeperError, match="apt-get install postgresql"):
        database.programs()
    (tmp_path / "postgres").write_text("")
    (tmp_path / "postgres").chmod(0o755)
    assert database.programs() == tmp_path
