"""The command line: puts the commands together, and turns every error into one sentence.

An error ends as one sentence on standard error and exit code 2, several mistakes of a file as one sentence each;
``--debug`` shows the traceback. The packages are
imported by the commands that use them: they take seconds.
"""

import pkgutil
import sys
from collections.abc import Iterator
from importlib import import_module, metadata
from typing import Annotated

import typer

from sweeper.backend.on_ray.starting import leave
from sweeper.cli import commands, usage
from sweeper.errors import SpecError, SweeperError

EXIT_USER_ERROR = 2

# The headings of the help text by module, in order; other modules follow by name.
_PANELS = {
    "running": "Run a sweep",
    "specs": "Before a run",
    "fronts": "Look at sweeps",
    "models": "Use a model",
    "papers": "Check and file a model",
    "records": "Keep house",
    "data": "Data",
    "account": "Data",
    "service": "The service",
}

app = typer.Typer(
    name="sweeper",
    help="Privacy / utility / certified-robustness fronts of the models trainable on a data set.",
    cls=usage.Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sweeper {metadata.version('sweeper')}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Hold what every command takes; `main` looks at it."""


def groups() -> Iterator[typer.Typer]:
    """Yield the commands of each module of ``sweeper.cli.commands``, under the heading of their module."""
    found = {module.name for module in pkgutil.iter_modules(commands.__path__)}
    for name in [*(one for one in _PANELS if one in found), *sorted(found - set(_PANELS))]:
        group: typer.Typer = import_module(f"{commands.__name__}.{name}").app
        panel = _PANELS.get(name, "More")
        if isinstance(group.info.name, str):
            group.info.rich_help_panel = panel
            group.info.cls = usage.Commands
        else:
            for command in group.registered_commands:
                command.rich_help_panel = panel
        yield group


for _group in groups():
    app.add_typer(_group)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; the entry point of the ``sweeper`` program."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    try:
        given = ["--debug"] * debug + [argument for argument in arguments if argument != "--debug"]
        code = app(given, prog_name="sweeper", standalone_mode=False)
        leave(code if isinstance(code, int) else 0)
    except SystemExit as ended:
        leave(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
    except typer.TyperException as error:
        typer.echo(f"sweeper: {usage.in_words(error)}", err=True)
        sys.exit(EXIT_USER_ERROR)
    except Exception as error:
        if debug:
            raise
        typer.echo(f"sweeper: {_in_words(error)}", err=True)
        sys.exit(EXIT_USER_ERROR)


def _in_words(error: Exception) -> str:
    """Return an error as one sentence, several mistakes of a spec or a ranges file as a line each."""
    from clipless.errors import CliplessError, DataError

    if isinstance(error, SpecError | DataError) and len(error.mistakes) > 1:
        lines = (" ".join(mistake.split()) for mistake in error.mistakes)
        return "\n  ".join([f"{len(error.mistakes)} mistakes:", *lines])
    if isinstance(error, SweeperError | CliplessError):
        return " ".join(str(error).split())
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return f"unexpected {what}; --debug shows where it came from"
