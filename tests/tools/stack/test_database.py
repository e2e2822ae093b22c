"""A data folder as PostgreSQL's image makes it."""

import contextlib
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from sweeper.errors import SweeperError
from tools.stack import database
from tools.stack.compose import read_compose
from tools.stack.layout import SECRETS

pytestmark = pytest.mark.postgresql
ROOT = Path(__file__).resolve().parents[3]
SECRET = f"{SECRETS}/postgres_password"
PATIENCE_SECONDS = 300.0  # ends a test that hangs; no test takes so long


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


def identity(owner):
    return {} if owner is None else {"user": owner, "group": owner, "extra_groups": []}


@contextlib.contextmanager
def running(folder, data):
    """A server that listens in a folder, and the environment of a client in the container."""
    bin_, owner = database.programs(), database.owner()
    folder.chmod(0o777)
    command = [bin_ / "postgres", "-D", data, "-c", "listen_addresses=", "-c", f"unix_socket_directories={folder}"]
    server = subprocess.Popen(command, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **identity(owner))
    client = {"PATH": f"{bin_}:{os.environ['PATH']}", "PGHOST": str(folder)}
    try:
        end = time.monotonic() + PATIENCE_SECONDS
        while subprocess.run([bin_ / "pg_isready", "--quiet"], env=client, check=False).returncode != 0:
            assert time.monotonic() < end
            time.sleep(0.05)
        yield client
    finally:
        server.terminate()
        server.wait(PATIENCE_SECONDS)


@pytest.mark.long
def test_the_guides_commands_back_up_and_restore_what_the_stack_keeps(folder):
    commands = re.findall(r"docker compose exec .*postgres .*", (ROOT / "docs" / "cluster.md").read_text("utf-8"))
    lines = [
        re.fullmatch(r"docker compose exec --no-TTY postgres sh -c '([^']*)' [<>] mlflow.dump", c) for c in commands
    ]
    dump, restore = (line.group(1).replace(SECRET, str(folder / "password")) for line in lines)
    service = read_compose(ROOT / "docker-compose.yml", {}).services["postgres"]
    assert service.environment["POSTGRES_PASSWORD_FILE"] == SECRET
    (folder / "password").write_text("secret\n")
    (folder / "data").mkdir()
    (folder / "socket").mkdir()
    given = {**service.environment, "POSTGRES_PASSWORD_FILE": str(folder / "password")}
    database.prepare(folder / "data", given, database.programs(), database.owner())
    with running(folder / "socket", folder / "data") as client:

        def run(command, content=None, **more):
            done = subprocess.run(
                command, env=client | more, input=content or b"", capture_output=True, check=False, cwd="/",
                start_new_session=True,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr.decode()
            return done.stdout

        def ask(sql):
            psql = ["psql", "--username=mlflow", "--dbname=mlflow", "--no-align", "--tuples-only", "--command", sql]
            return run(psql, PGPASSWORD="secret").decode().strip()

        ask("CREATE TABLE runs (name text)")
        ask("INSERT INTO runs VALUES ('kept')")
        kept = run(["sh", "-c", dump])
        ask("DELETE FROM runs")
        run(["sh", "-c", restore], kept)
        assert ask("SELECT name FROM runs") == "kept"
        ask("DROP TABLE runs")
        run(["sh", "-c", restore], kept)
        assert ask("SELECT name FROM runs") == "kept"


def test_a_data_folder_is_made_once_with_its_database(folder, environment):
    data, bin_, owner = folder / "data", database.programs(), database.owner()
    data.mkdir()
    database.prepare(data, environment, bin_, owner)
    made = (data / "PG_VERSION").stat().st_mtime_ns
    assert (data / "pg_hba.conf").read_text().rstrip().endswith("host all all all scram-sha-256")
    database.prepare(data, environment, bin_, owner)
    assert (data / "PG_VERSION").stat().st_mtime_ns == made
    said = subprocess.run(
        [bin_ / "postgres", "--single", "-D", data, "runs"],
        input="SELECT rolname FROM pg_roles WHERE rolsuper\n",
        text=True,
        capture_output=True,
        check=True,
        cwd="/",
        **identity(owner),
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
