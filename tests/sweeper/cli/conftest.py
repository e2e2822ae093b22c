import json
import subprocess
import sys

import pytest

TRAINS = {"torch", "ray", "mlflow", "optuna"}  # what takes seconds to import
PRICES = {"dp_accounting", "scipy"}  # and the second
PROGRAM = """
import contextlib, io, json, sys
from sweeper.cli.main import main
said = io.StringIO()
with contextlib.redirect_stdout(said):
    try:
        main(sys.argv[1:])
    except SystemExit as ended:
        code = ended.code or 0
print(json.dumps([code, said.getvalue(), sorted(sys.modules)]))
"""


@pytest.fixture
def imported():
    """Run a command in a process of its own; return what it printed and the packages that it imported."""

    def run(*arguments, code=0):
        command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        ended, said, modules = json.loads(done.stdout)
        assert ended == code, done.stderr
        return said, {name for name in modules if "." not in name}

    return run


@pytest.fixture
def answer(call):
    """Run a command that must end well; return what it says."""

    def run(*arguments):
        code, out, err = call(*arguments)
        assert (code, err) == (0, "")
        return out

    return run


@pytest.fixture
def refusal(call):
    """Run a command that must be refused; return the one sentence it says."""

    def run(*arguments):
        code, out, err = call(*arguments)
        assert (code, out) == (2, "")
        assert "Traceback" not in err
        (sentence,) = err.splitlines()
        assert sentence.startswith("sweeper: ")
        return sentence.removeprefix("sweeper: ")

    return run
