"""What users add: metrics, samplers, schedulers and architectures, found by the names of their entry points.

Names are looked up without importing anything; a plug-in is imported when a spec uses it, never because a file or a
request names a module. Data sets are plug-ins of `clipless.datasets`. An architecture is made of layers of `clipless`;
layers and losses are no plug-ins: every layer, loss and guard that privacy rests on has a rule in `clipless`, found by
exact type, and one from outside would have none. An architecture may also be declared by the program that runs the
sweep, such as a notebook: it is known in this process, and in the workers that it starts.
"""

import pkgutil
import re
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass
from importlib import metadata as importlib_metadata
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from clipless.spelling import did_you_mean
from clipless.zoo import ARCHITECTURES, Architecture
from clipless.zoo import architecture as make_architecture
from sweeper.errors import SpecError, UnexpectedValueError
from sweeper.records import MEMBERSHIP, Direction
from sweeper.specification.fields.messages import show

if TYPE_CHECKING:
    from torch import nn

    from clipless.datasets import Metadata, Split
    from clipless.network import Network

METRICS = "sweeper.metrics"
SAMPLERS = "sweeper.samplers"
SCHEDULERS = "sweeper.schedulers"
ARCHITECTURE_PLUGINS = "sweeper.architectures"
BUILT_IN_SAMPLERS = ("tpe", "gp", "nsga2", "nsga3", "quasi-random", "random", "grid")
BUILT_IN_METRICS = ("epsilon", "accuracy", "balanced_accuracy", "auroc", *MEMBERSHIP)

_declared: dict[str, Architecture] = {}  # by this program, by name
_NAME = re.compile(r"[a-z][a-z0-9._-]{0,49}")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Metric:
    """A number computed from a model and rows, to be recorded beside the objectives.

    Attributes:
        function: gets copies of the model and of rows, and the public facts about the data; returns a finite number.
        direction: which way it improves.
        reads_training_rows: whether the rows it gets are those that the model was trained on. Its numbers are then
            releases that no epsilon covers: refused unless those rows are published or everything is exploratory.
            Otherwise it gets the validation rows.
        share: whether its numbers always lie in [0, 1], which an objective has to.
    """

    function: "Callable[[Network, Split, Metadata], float]"
    direction: Direction
    reads_training_rows: bool = False
    share: bool = False

    @property
    def is_objective(self) -> bool:
        """Whether it can be an axis of the front: a share, the larger the better, of rows outside training."""
        return self.share and self.direction is Direction.MAXIMIZE and not self.reads_training_rows

    def compute(self, name: str, model: "Network", split: "Split", declared: "Metadata") -> float:
        """Return its number for copies of a model and of rows.

        Raises:
            SpecError: it returned something else.
        """
        value = self.function(deepcopy(model), deepcopy(split), declared)
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = float("nan")
        if isinstance(value, str | bytes) or not isfinite(number):
            raise SpecError(f"Expected a finite number from the metric {name}, got {show(value)}; correct the plug-in")
        if self.share and not 0 <= number <= 1:
            raise SpecError(
                f"Expected a number in [0, 1] from the metric {name}, which was declared a share, got {show(value)}; "
                f"correct the plug-in"
            )
        return number


def metric(
    direction: Direction | str, *, reads_training_rows: bool = False, share: bool = False
) -> "Callable[[Callable[[Network, Split, Metadata], float]], Metric]":
    """Declare a function as a metric; the entry point names the result.

    Args:
        direction: ``"minimize"`` or ``"maximize"``.
        reads_training_rows: whether it is to be given the training rows; see `Metric`.
        share: whether its numbers always lie in [0, 1]; one that is to be maximised may then be an objective.

    Raises:
        ValueError: another direction.
    """
    improves = Direction(direction)
    return lambda function: Metric(function, improves, reads_training_rows, share)


def installed(group: str) -> tuple[str, ...]:
    """Return the names of the plug-ins of a group, in order; imports none."""
    return tuple(sorted({entry.name for entry in importlib_metadata.entry_points(group=group)}))


def installed_metrics() -> tuple[str, ...]:
    """Return the names of the metrics that are plug-ins; imports none."""
    return installed(METRICS)


def is_metric(name: str) -> bool:
    """Whether a plug-in of that name is installed as a metric; it is not imported."""
    return _may_be_own(name) and name in installed(METRICS)


def find_metric(name: str) -> Metric:
    """Import the metric of that name.

    Raises:
        SpecError: none or several of that name, a name that is taken, or no `Metric`.
    """
    found = _load(METRICS, name, BUILT_IN_METRICS)
    if not isinstance(found, Metric):
        raise _unlike("a metric declared by sweeper.specification.plugins.metric", name, found)
    return found


def reading_metrics(names: Iterable[str]) -> tuple[str, ...]:
    """Return those of the names that are plug-ins which read training rows; these are imported to know."""
    return tuple(name for name in names if is_metric(name) and find_metric(name).reads_training_rows)


def architecture(builder: "Callable[..., list[nn.Module] | nn.Module]") -> Architecture:
    """Declare a function as an architecture that specs of this program may name, and return it.

    Args:
        builder: see `clipless.zoo.architecture`; it may return a module of one's own. One that was declared by the same
            name before makes room.

    Raises:
        clipless.errors.UnsupportedError: other arguments, or an option without a default or an annotation.
        SpecError: a name that is none for a plug-in, or that an architecture of this package or a plug-in has.
    """
    made = make_architecture(builder)
    taken = made.name in ARCHITECTURES or made.name in installed(ARCHITECTURE_PLUGINS)
    if taken or not _NAME.fullmatch(made.name):
        expected = "an architecture under a name of its own in small letters, digits and . _ -"
        raise UnexpectedValueError(expected, repr(made.name), "rename the function")
    _declared[made.name] = made
    return made


def known_architectures() -> tuple[str, ...]:
    """Return the names of architectures beside those of this package: plug-ins, none imported, and declared ones."""
    return tuple(sorted({*installed(ARCHITECTURE_PLUGINS), *_declared}))


def declared_builders() -> "list[Callable[..., list[nn.Module] | nn.Module]]":
    """Return the functions of the architectures that this program has declared, for processes that it starts."""
    return [one.builder for one in _declared.values()]


def is_declared(name: str) -> bool:
    """Whether the architecture of that name is one that this program has declared."""
    return name in _declared


def load_architecture(name: str, taken: Iterable[str]) -> Architecture:
    """Return the architecture of that name, declared by this program, or imported.

    Raises:
        SpecError: none or several of that name, a name that is taken, or no `Architecture`.
    """
    if name in _declared:
        return _declared[name]
    found = _load(ARCHITECTURE_PLUGINS, name, taken)
    if not isinstance(found, Architecture):
        raise _unlike("an architecture declared by clipless.zoo.architecture", name, found)
    return found


def check_sampler(name: str) -> str:
    """Return the name of an installed sampler; it is not imported.

    Raises:
        SpecError: none or several of that name, or a name that is taken.
    """
    _entry(SAMPLERS, name, BUILT_IN_SAMPLERS)
    return name


def sampler(name: str, seed: int, kind: type[T]) -> T:
    """Return a new sampler of an installed plug-in: a function of the seed.

    Raises:
        SpecError: no such plug-in, or it gives something else.
    """
    made = _load(SAMPLERS, name, BUILT_IN_SAMPLERS)
    built = made(seed) if callable(made) else made
    if not isinstance(built, kind):
        raise _unlike(f"a function of the seed that returns a {kind.__name__}", name, built)
    return built


def built_in_schedulers() -> tuple[str, ...]:
    """Return the names of this package's own schedulers, those of the modules that hold them; imports none."""
    return _named_modules("schedulers")


def built_in_accountings() -> tuple[str, ...]:
    """Return the ways to keep a budget that a spec can name, those of the modules that hold them; imports none."""
    return _named_modules("privacy", "spending")


def _named_modules(*folder: str) -> tuple[str, ...]:
    names = (module.name for module in pkgutil.iter_modules([str(Path(__file__).parents[1].joinpath(*folder))]))
    return tuple(sorted(name.replace("_", "-") for name in names if not name.startswith("_")))


def check_scheduler(name: str) -> str:
    """Return the name of an installed scheduler; it is not imported.

    Raises:
        SpecError: none or several of that name, or a name that is taken.
    """
    _entry(SCHEDULERS, name, ("none", *built_in_schedulers()))
    return name


def load_scheduler(name: str, kind: type[T]) -> type[T]:
    """Return the class of an installed scheduler.

    Raises:
        SpecError: no such plug-in, or it is something else.
    """
    found = _load(SCHEDULERS, name, ("none", *built_in_schedulers()))
    if not (isinstance(found, type) and issubclass(found, kind)):
        raise _unlike(f"a subclass of sweeper.schedulers.{kind.__name__}", name, found)
    return found


def _unlike(expected: str, name: str, found: Any) -> SpecError:
    return UnexpectedValueError(f"{expected} from the plug-in {name}", show(found), "correct the plug-in")


def _may_be_own(name: str) -> bool:
    """Whether a plug-in may have the name; looking plug-ins up takes 0.05 s, which other names need not pay."""
    return name not in BUILT_IN_METRICS and _NAME.fullmatch(name) is not None


def _load(group: str, name: str, taken: Iterable[str]) -> Any:
    entry = _entry(group, name, taken)
    try:
        return entry.load()
    except Exception as error:  # whatever the module of a plug-in does when it is imported
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        expected = f"a plug-in that can be imported ({entry.value}: {reason})"
        raise UnexpectedValueError(expected, repr(name), "install it again") from error


def _entry(group: str, name: str, taken: Iterable[str]) -> importlib_metadata.EntryPoint:
    kind, names = group.partition(".")[2].removesuffix("s"), installed(group)
    found = {entry.value: entry for entry in importlib_metadata.entry_points(group=group, name=name)}
    known = f"installed are {', '.join(names)}" if names else f"no {kind} is installed as a plug-in"
    if not found:
        hint = did_you_mean(name, (*names, *taken))
        raise UnexpectedValueError(f"a {kind}", repr(name), f"{hint + ' ' if hint else ''}{known}")
    if name in taken or not _NAME.fullmatch(name):
        expected = "a plug-in under a name of its own in small letters, digits and . _ -"
        got = f"the {kind} {name!r} of {next(iter(found))}"
        raise UnexpectedValueError(expected, got, f"rename it ({known})")
    if len(found) > 1:
        remedy = f"uninstall all but one ({known})"
        raise UnexpectedValueError(f"one {kind} {name!r}", " and ".join(sorted(found)), remedy)
    return next(iter(found.values()))
