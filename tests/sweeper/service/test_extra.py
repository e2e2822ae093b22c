"""Without the packages of the extra ``service`` everything works but the service, which says what it needs."""

import subprocess
import sys

import pytest

from sweeper.service.settings import EXTRA

BLOCKED = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))  # None: an import fails as if it were not installed
sys.argv[:2] = ["sweeper"]
from sweeper.cli.main import main
main()
"""


@pytest.fixture
def sweeper(tmp_path):
    """Run the command line where those packages are not installed."""

    def run(*arguments):
        command = [sys.executable, "-c", BLOCKED, ",".join(EXTRA), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=300)

    return run


def test_the_service_says_in_one_sentence_what_to_install(sweeper, out):
    ran = sweeper("serve", "--out", out)
    assert ran.returncode != 0
    assert "pip install 'sweeper[service]'" in " ".join(ran.stderr.split())
    assert "Traceback" not in ran.stderr
    assert all(name in ran.stderr for name in EXTRA)


def test_reports_exports_and_lists_need_none_of_them(sweeper, make_sweep, tmp_path):
    folder, other = make_sweep().path, make_sweep("other-20250102-000000").path
    for arguments in (
        ("front", folder, "--format", "html", "--output", tmp_path / "report.html"),
        ("front", folder, "--format", "csv", "--output", tmp_path / "front.csv"),
        ("front", folder, "--format", "json", "--figure", "hypervolume", "--output", tmp_path / "hypervolume.json"),
        ("compare", folder, other, "--output", tmp_path / "both.html"),
        ("list", "--out", folder.parent),
        ("show", folder),
        ("schema",),
        ("token", "--tokens", tmp_path / "tokens.json"),
    ):
        ran = sweeper(*arguments)
        assert ran.returncode == 0, ran.stderr
    for name in ("report.html", "front.csv", "hypervolume.json", "both.html"):
        assert (tmp_path / name).stat().st_size > 0
