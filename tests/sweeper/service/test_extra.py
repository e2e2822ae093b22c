"""Without the packages of the extra ``service`` everything works but the service, which says what it needs."""

import json
import subprocess
import sys

import pytest

from sweeper.service.settings import EXTRA

BLOCKED = """
import json, sys
blocked, commands = map(json.loads, sys.argv[1:])
sys.modules.update(dict.fromkeys(blocked))  # None: an import fails as if it were not installed
from sweeper.cli.main import main
for command in commands:
    sys.argv[:] = ["sweeper", *command]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
"""


@pytest.fixture
def sweeper(tmp_path):
    """Run commands, until one fails, where those packages are not installed."""

    def run(*commands):
        words = [[str(word) for word in command] for command in commands]
        command = [sys.executable, "-c", BLOCKED, json.dumps(list(EXTRA)), json.dumps(words)]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=300)

    return run


def test_lists_and_tokens_need_none_of_them(sweeper, make_sweep, tmp_path):
    ran = sweeper(("list", "--out", make_sweep().path.parent), ("token", "--tokens", tmp_path / "tokens.json"))
    assert ran.returncode == 0, ran.stderr


@pytest.mark.long
def test_reports_exports_and_lists_need_none_of_them(sweeper, make_sweep, tmp_path):
    folder, other = make_sweep().path, make_sweep("other-20250102-000000").path
    ran = sweeper(
        ("front", folder, "--format", "html", "--output", tmp_path / "report.html"),
        ("front", folder, "--format", "csv", "--output", tmp_path / "front.csv"),
        ("front", folder, "--format", "json", "--figure", "front", "--output", tmp_path / "figure.json"),
        ("compare", folder, other, "--output", tmp_path / "both.html"),
        ("list", "--out", folder.parent),
        ("show", folder),
        ("schema",),
        ("token", "--tokens", tmp_path / "tokens.json"),
    )
    assert ran.returncode == 0, ran.stderr
    for name in ("report.html", "front.csv", "figure.json", "both.html"):
        assert (tmp_path / name).stat().st_size > 0
