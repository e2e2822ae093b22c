"""Completing a spec: what it leaves to its data, chosen from public numbers, with the reason for each choice.

What is planned, recorded and resumed is the completed spec. A completed spec leaves nothing out: completing it again
changes nothing, so that a sweep that resumes does what it was begun with.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from clipless.datasets import Dataset
from clipless.datasets.metadata import units_word
from clipless.zoo import ARCHITECTURES
from sweeper.planning.prior import load_prior
from sweeper.records import Scalar
from sweeper.specification.fields.nested import with_values
from sweeper.specification.fields.ranges import largest
from sweeper.specification.left_out import Default, PublicNumbers, find_defaults
from sweeper.specification.search import Prior, Sampler
from sweeper.specification.spec import Spec

USUAL_EPSILON = 3.0  # where a spec names none


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedSpec:
    """A spec that leaves nothing to its data, and what was chosen for it."""

    spec: Spec
    chosen: tuple[Default, ...]


def complete(spec: Spec, data: Dataset) -> CompletedSpec:
    """Return a spec with everything that it leaves to its data chosen.

    Raises:
        SpecError: the architecture is left out, and the data are no table; a prior is asked for, and none of its
            configurations is in the search space; or what was chosen does not go together with what the spec says.

    Guarantees:
        Of the data only declarations and the numbers of rows, columns and classes are looked at, which are public: no
        row decides anything.
    """
    numbers = public_numbers(data)
    if "model.architecture" in spec.left_out and not _is_table(data):
        expected = f"{{name}} for examples of shape {data.metadata.input_shape}, which are no table"
        remedy = f"name one of {', '.join(ARCHITECTURES)}"
        raise spec.mistaken(expected.replace("{name}", "architecture"), "model.architecture", None, remedy)
    chosen = [*_of_evaluation(spec, data), *find_defaults(spec.to_plain(), numbers)]
    filled = _filled(spec, chosen)
    of_prior = _of_prior(filled, data, numbers)
    return CompletedSpec(spec=_filled(filled, of_prior), chosen=(*chosen, *of_prior))


def public_numbers(data: Dataset) -> PublicNumbers:
    """Return the numbers of a data set that are public."""
    declared, units = data.metadata, len(data.train)
    counted, columns = units_word(declared.unit), prod(declared.input_shape)
    return PublicNumbers(rows=units, counted=counted, columns=columns, classes=len(declared.classes))


def _is_table(data: Dataset) -> bool:
    return len(data.metadata.input_shape) == 1


def _filled(spec: Spec, chosen: list[Default]) -> Spec:
    if not chosen:
        return spec
    values: Mapping[str, Any] = {one.field: one.value for one in chosen}
    return Spec.from_mapping(with_values(spec.to_plain(), values), spec.source, spec.overrides)


def _of_evaluation(spec: Spec, data: Dataset) -> list[Default]:
    if spec.data.path is None or spec.data.evaluation is not None:
        return []
    because = "the ranges file declares it, or nothing declares rows of your own public"
    return [Default(field="data.evaluation", value=data.metadata.evaluation.value, because=because)]


def _of_prior(spec: Spec, data: Dataset, numbers: PublicNumbers) -> list[Default]:
    """Return the configurations to try first, where nobody says which and the search may be told."""
    search = spec.search
    if search.first or search.warm_start is not None or search.prior is Prior.NONE:
        return []
    takes_first = search.repetitions is None and search.sampler is not Sampler.GRID
    first = _first(spec, numbers) if takes_first and _is_table(data) else []
    if first:
        because = f"they did best on public tables of about N = {numbers.rows} rows at about this epsilon"
        return [
            Default(field="search.prior", value=Prior.TABLES.value, because="the data are a table"),
            Default(field="search.first", value=first, because=because),
        ]
    if search.prior is not None:
        expected = "a table, a search that can be told what to try first, and a space that holds some of the prior"
        raise spec.mistaken(expected, "search.prior", search.prior.value, "leave it out")
    return []


def _first(spec: Spec, numbers: PublicNumbers) -> list[dict[str, Scalar]]:
    given = spec.privacy.sweep_epsilon or spec.privacy.epsilon
    epsilon = USUAL_EPSILON if given is None else float(largest(given))
    return load_prior().first_configurations(spec.dimensions, numbers, epsilon)[: spec.explorers]
