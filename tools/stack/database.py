"""A PostgreSQL of this machine instead of the image: its programs, and the first start of an empty data folder."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from sweeper.errors import SweeperError

INSTALLED = Path("/usr/lib/postgresql")
_UNPRIVILEGED = ("postgres", "nobody")


def programs() -> Path:
    """Return the folder of PostgreSQL's programs: the newest installed one, or that of ``postgres`` on the path.

    Raises:
        SweeperError: there is none.
    """
    found = sorted(INSTALLED.glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("postgres")
    if not found and on_path is None:
        raise SweeperError("Expected PostgreSQL on this machine, found none; install it: apt-get install postgresql")
    return found[-1].parent if found else Path(str(on_path)).parent


def owner() -> str | None:
    """Return who runs PostgreSQL: this user, ``None``, or an unprivileged one instead of root, whom it refuses."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in _UNPRIVILEGED if name in known)


def prepare(data: Path, environment: Mapping[str, str], bin_: Path, user: str | None) -> None:
    """Make a data folder with its database, as the image does at its first start; one that exists is left alone.

    Args:
        data: the folder.
        environment: the ``POSTGRES_*`` variables of the image, its password file among them.
        bin_: folder of the programs.
        user: who runs them; this user if ``None``.

    Raises:
        SweeperError: it cannot be made.
    """
    if (data / "PG_VERSION").exists():
        return
    more = environment.get("POSTGRES_INITDB_ARGS", "").split()
    with tempfile.NamedTemporaryFile() as password:
        password.write(Path(environment["POSTGRES_PASSWORD_FILE"]).read_bytes().strip())
        password.flush()
        if user is not None:
            shutil.chown(password.name, user, user)
        init = [str(bin_ / "initdb"), "--pgdata", str(data), "--username", environment["POSTGRES_USER"]]
        init += ["--pwfile", password.name, "--no-sync", "--no-instructions", "--encoding=UTF8", "--locale=C.UTF-8"]
        _run([*init, *more], "", data, user)
    with (data / "pg_hba.conf").open("a", encoding="utf-8") as rules:
        rules.write("host all all all scram-sha-256\n")
    single = [str(bin_ / "postgres"), "--single", "-D", str(data), "postgres"]
    _run(single, f'CREATE DATABASE "{environment["POSTGRES_DB"]}"\n', data, user)


def _run(command: list[str], text: str, data: Path, user: str | None) -> None:
    if user is not None:
        shutil.chown(data, user, user)
    identity = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    done = subprocess.run(
        command,
        input=text,
        text=True,
        capture_output=True,
        check=False,
        cwd="/",
        **identity,  # type: ignore[call-overload]
    )
    if done.returncode != 0:
        said = " ".join(done.stderr.split())[-300:]
        raise SweeperError(f"Cannot make a PostgreSQL database in {data}: {said}; choose another folder with --state")
