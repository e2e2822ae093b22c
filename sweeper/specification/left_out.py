"""What a spec may leave to its data, and what then stands there: values that follow from public numbers alone.

Two things can be left out: ``privacy.delta``, and ``model.architecture``. Where the architecture is left out the data
are taken for a table, and everything else that is left out of ``model`` and ``training`` is chosen for it too. What a
spec says is never changed. The ranges are those in which configurations of `benchmarks/prior.py` did well
on public tables.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, log10
from typing import Any

WIDTHS, DEPTHS, CONSTRAINTS = (32, 64, 128), (1, 2, 3), ("orthogonal", "spectral_ball")
STANDARDISED = (False, True)
EPOCHS, RATES = (10, 20, 40), (1 / 16, 1 / 8, 1 / 4, 1 / 2)
LEARNING_RATES, TEMPERATURES, FRACTIONS = (0.003, 0.05), (0.03, 1.0), (0.03, 0.6)
MAY_LACK = ("model", "architecture", "delta")  # names that a schema would otherwise require
_ARCHITECTURE = "model.architecture"
_MIDDLE = 1  # of the choices for what trials must have in common
_TWO = 2
_SEARCHED = "searched over a range that did well on public tables"
_SPENDS_THE_SAME = "one value, for all candidates of a private selection spend the same"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicNumbers:
    """Numbers of a data set that are public.

    Attributes:
        rows: N, the training rows.
        columns: d, numbers of an encoded row.
        classes: K.
        counted: what N counts: ``rows``, or ``units`` where people with several rows are protected.
    """

    rows: int
    columns: int
    classes: int
    counted: str = "rows"

    @property
    def in_words(self) -> str:
        """Return N and what it counts."""
        return f"N = {self.rows} training {self.counted}"


UNSEEN = PublicNumbers(rows=10_000, columns=10, classes=_TWO)
"""Stands for the numbers of data that nobody has loaded: enough to check everything else that a spec says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Default:
    """A value that was chosen for a spec: ``field`` is its dotted name, ``because`` the reason, as a clause."""

    field: str
    value: Any
    because: str


def default_delta(rows: int) -> float:
    """Return the largest power of ten that is at most 1 / (10 N).

    >>> default_delta(537)
    0.0001
    """
    return float(f"1e-{ceil(log10(10 * rows))}")


def default_batch_sizes(rows: int) -> tuple[int, ...]:
    """Return the batch sizes of the default sampling rates, smallest first.

    >>> default_batch_sizes(1000)
    (62, 125, 250, 500)
    """
    return tuple(dict.fromkeys(max(1, int(rate * rows)) for rate in RATES))


def find_defaults(content: Mapping[str, Any], numbers: PublicNumbers) -> tuple[Default, ...]:
    """Return what stands where a spec, as nested values, leaves something out; nothing where it says everything."""
    return tuple(one for one in _possible(content, numbers) if _value(content, one.field) is None)


def _possible(content: Mapping[str, Any], numbers: PublicNumbers) -> Iterator[Default]:
    if isinstance(content.get("privacy"), Mapping):
        because = f"it is the largest power of ten that is at most 1/(10 N), {numbers.in_words}"
        yield Default(field="privacy.delta", value=default_delta(numbers.rows), because=because)
    sections = [content.get(name) for name in ("model", "training")]
    if all(one is None or isinstance(one, Mapping) for one in sections) and _value(content, _ARCHITECTURE) is None:
        selects = _value(content, "search.selection") == "private"
        yield from _of_model(selects=selects)
        yield from _of_training(content, numbers, selects=selects)


def _of_model(*, selects: bool) -> Iterator[Default]:
    yield Default(field=_ARCHITECTURE, value="mlp", because="the data are a table")
    yield Default(field="model.width", value=list(WIDTHS), because=_SEARCHED)
    yield Default(field="model.depth", value=list(DEPTHS), because=f"{_SEARCHED}; 1 is a linear model")
    yield Default(field="model.constraint", value=list(CONSTRAINTS), because=_SEARCHED)
    scales, because = "declared ranges may be much wider than the rows", _SPENDS_THE_SAME if selects else ""
    value = False if selects else list(STANDARDISED)
    yield Default(field="model.standardise", value=value, because=because or f"{_SEARCHED}, for {scales}")


def _of_training(content: Mapping[str, Any], numbers: PublicNumbers, *, selects: bool) -> Iterator[Default]:
    if _value(content, "privacy.epsilon") is None or _value(content, "privacy.noise_multiplier") is None:
        value, because = (EPOCHS[_MIDDLE], _SPENDS_THE_SAME) if selects else (list(EPOCHS), _SEARCHED)
        yield Default(field="training.epochs", value=value, because=because)
    sizes = default_batch_sizes(numbers.rows)
    rates = ", ".join(f"1/{round(1 / rate)}" for rate in RATES)
    yield Default(
        field="training.batch_size",
        value=sizes[len(sizes) // 2] if selects else list(sizes),
        because=_SPENDS_THE_SAME if selects else f"{_SEARCHED}: {rates} of {numbers.in_words}",
    )
    yield Default(field="training.optimizer", value="adam", because="its learning rates suit tables of any size")
    yield Default(field="training.learning_rate", value={"log": list(LEARNING_RATES)}, because=_SEARCHED)
    two = numbers.classes == _TWO
    yield Default(
        field="training.loss",
        value={"name": "tau-bce" if two else "tau-cce", "temperature": {"log": list(TEMPERATURES)}},
        because=f"there are {'two' if two else numbers.classes} classes; its temperature is {_SEARCHED}",
    )
    yield Default(
        field="training.sensitivity_fraction",
        value={"log": list(FRACTIONS)},
        because=f"{_SEARCHED}; a smaller one means less noise and more clipping",
    )


def _value(content: Mapping[str, Any], name: str) -> Any:
    found: Any = content
    for key in name.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
