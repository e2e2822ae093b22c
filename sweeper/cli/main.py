"""The command line: puts the commands together, and turns every error into one sentence.

An error ends as one sentence on standard error and exit code 2; ``--debug`` shows the traceback. The packages are
imported by the commands that use them: they take seconds.
"""

import pkgutil
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Annotated

import typer

from sweeper.backend.starting import leave
from sweeper.cli import commands
from sweeper.errors import SweeperError

EXIT_USER_ERROR = 2

# In the order of the help text; other modules follow by name.
_ORDER = ("running", "specs", "fronts", "models", "records", "data", "service")

app = typer.Typer(
    name="sweeper",
    help="Privacy / utility / certified-robustness fronts of the models trainable on a data set.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
) -> None:
    """Hold what every command takes; `main` looks at it."""


def groups() -> Iterator[typer.Typer]:
    """Yield the commands of each module of ``sweeper.cli.commands``."""
    found = {module.name for module in pkgutil.iter_modules(commands.__path__)}
    for name in [*(one for one in _ORDER if one in found), *sorted(found - set(_ORDER))]:
        yield import_module(f"{commands.__name__}.{name}").app


for _group in groups():
    app.add_typer(_group)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; the entry point of the ``sweeper`` program."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    try:
        app(["--debug"] * debug + [argument for argument in arguments if argument != "--debug"])
    except SystemExit as ended:
        leave(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
    except Exception as error:
        if debug:
            raise
        typer.echo(f"sweeper: {_sentence(error)}", err=True)
        sys.exit(EXIT_USER_ERROR)


def _sentence(error: Exception) -> str:
    from clipless.errors import CliplessError

    if isinstance(error, SweeperError | CliplessError):
        return " ".join(str(error).split())
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return f"unexpected {what}; --debug shows where it came from"
