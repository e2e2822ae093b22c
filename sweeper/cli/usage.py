"""Mistakes on the command line that its parser finds, as one sentence each, in the style of all others."""

from collections.abc import Iterable
from typing import Any

import typer
from typer.core import TyperGroup

from clipless.spelling import did_you_mean, nearest
from sweeper.errors import SweeperError

EXIT_WITHOUT_COMMAND = 2

# What others call a command, and what it is here.
SYNONYMS = {
    "export": "front SWEEP --format csv",
    "csv": "front SWEEP --format csv",
    "json": "front SWEEP --format json",
    "report": "front SWEEP --format html",
    "html": "front SWEEP --format html",
    "plot": "front SWEEP --figure list",
    "figure": "front SWEEP --figure list",
    "figures": "front SWEEP --figure list",
    "train": "run SPEC",
    "start": "run SPEC",
    "sweep": "run SPEC",
    "validate": "check SPEC",
    "plan": "check SPEC",
    "price": "check SPEC",
    "cost": "check SPEC",
    "ls": "list",
    "status": "show SWEEP",
    "info": "show SWEEP",
    "best": "pick SWEEP",
    "select": "pick SWEEP",
    "continue": "resume SWEEP",
    "cancel": "stop SWEEP",
    "kill": "stop SWEEP",
    "diff": "compare SWEEP SWEEP",
    "template": "data ranges TABLE",
    "init": "data ranges TABLE",
    "datasets": "data list",
    "server": "serve",
    "help": "--help",
}
# What pydantic calls a mistake, what was expected, and what to do.
_VALUES = {
    "int_parsing": ("an integer", "write it in digits, such as {option} 2"),
    "int_from_float": ("an integer", "leave the decimals out"),
    "float_parsing": ("a number", "write it in digits, such as {option} 2.5"),
    "greater_than_equal": ("{option} >= {ge:g}", "raise it"),
    "less_than_equal": ("{option} <= {le:g}", "lower it"),
}


class Commands(TyperGroup):
    """A group of commands that knows what a wrong name was meant to be."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Show the help where no command is named."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            typer.echo(ctx.get_help(), nl=False)
            ctx.exit(EXIT_WITHOUT_COMMAND)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that is named first.

        Raises:
            SweeperError: no such command; says which one is meant.
        """
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            known = self.list_commands(ctx)
            raise SweeperError(f"Unknown command {name!r} of {ctx.command_path}; {_meant(name, known, ctx)}")
        return super().resolve_command(ctx, args)


def in_words(error: Any) -> str:
    """Return a mistake that the parser found as one sentence."""
    ctx, param = error.ctx, getattr(error, "param", None)
    command = "sweeper" if ctx is None else ctx.command_path
    asked = f"{command} --help shows what it takes"
    if hasattr(error, "possibilities"):
        known = [] if ctx is None else [name for one in ctx.command.params for name in (*one.opts, *one.secondary_opts)]
        return f"Unknown option {error.option_name!r} of {command}; {did_you_mean(error.option_name, known) or asked}"
    if param is None:
        where = "" if ctx is None else f" ({command})"
        return f"{error.format_message().rstrip('.')}{where}; {asked}"
    name = _name(param)
    if hasattr(error, "param_type"):
        return f"Expected a value for {name}, got none ({command}); add it: {_explain(param)}"
    details: Any = getattr(error.__cause__, "errors", list)()
    if not details or details[0]["type"] not in _VALUES:
        return f"Expected another value: {error.message.rstrip('.')} ({name} of {command}); {asked}"
    expected, remedy = (text.format(option=name, **details[0].get("ctx", {})) for text in _VALUES[details[0]["type"]])
    return f"Expected {expected}, got {details[0]['input']!r} ({name} of {command}); {remedy}"


def _meant(name: str, known: Iterable[str], ctx: Any) -> str:
    synonyms = SYNONYMS if ctx is ctx.find_root() else {}
    found = nearest(name, [*known, *synonyms])
    if found in synonyms:
        return f"use {ctx.command_path} {synonyms[found]}"
    return f"{ctx.command_path} --help lists them" if found is None else f"did you mean {found!r}?"


def _name(param: Any) -> str:
    """Return what a user calls an option or an argument."""
    if param.param_type_name == "option":
        return max(map(str, param.opts), key=len)
    return str(param.metavar or param.name).upper()


def _explain(param: Any) -> str:
    text = (param.help or "").rstrip(".")
    return text[:1].lower() + text[1:] if text else "it is required"
