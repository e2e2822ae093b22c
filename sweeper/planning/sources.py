"""What a spec names elsewhere, looked for before it is read: its data set, its files, the sweep that it goes on from.

Nothing here imports what reads data or trains, which takes seconds: a name that is misspelled is refused at once.
"""

from collections.abc import Sequence
from pathlib import Path

from clipless.datasets.catalog import available, did_you_mean_data, places_of
from clipless.spelling import did_you_mean_file
from sweeper.errors import InputError, SpecError
from sweeper.specification.fields.messages import place
from sweeper.specification.search import MLFLOW
from sweeper.specification.spec import Spec
from sweeper.store.manifest import MANIFEST_NAME

_FROM_WHERE = "give its path from the folder of the spec, or from where you are"


def check_sources(spec: Spec, data_dir: Path | None = None) -> None:
    """Refuse a data set that is not known here and files that are not there.

    Args:
        spec: what its user wrote.
        data_dir: local copies of data sets.

    Raises:
        SpecError: no such data set, or no earlier sweep.
        InputError: no such file.
    """
    name, options = spec.data.name, spec.data_options()
    if name is not None and not _is_known(name):
        raise SpecError(f"Unknown data set {name!r} ({_place('data.name', spec)}); {did_you_mean_data(name)}")
    table, ranges = options["source"], options.get("ranges")
    if isinstance(table, Path):
        _check_file(spec, "data.path", places_of(table, data_dir))
    if ranges is not None:
        _check_file(spec, "data.ranges", [ranges])
    _check_warm_start(spec)


def _is_known(name: str) -> bool:
    folded = name.lower().replace("_", "-")
    return any(one.lower().replace("_", "-") == folded for one in available())


def _check_file(spec: Spec, field: str, places: Sequence[Path]) -> None:
    """Refuse a file that is in no place; what else lies there is told to the owner of the data alone."""
    if any(place.is_file() for place in places):
        return
    if any(place.is_dir() for place in places):
        raise InputError(f"Expected a file, got the folder {places[0]} ({_place(field, spec)}); name a file in it")
    remedy = next(filter(None, map(did_you_mean_file, places)), _FROM_WHERE)
    looked = " or ".join(map(str, places))
    raise InputError(f"No such file: {looked} ({_place(field, spec)}); {remedy}")


def _place(field: str, spec: Spec) -> str:
    return place(field, spec.source, spec.overrides)


def _check_warm_start(spec: Spec) -> None:
    """Refuse an earlier sweep that is neither beside the spec nor where this runs; MLflow's is looked for by a run."""
    source = spec.search.warm_start
    if source is None or source.startswith(MLFLOW):
        return
    beside = Path(spec.source).parent / source
    if not any((folder / MANIFEST_NAME).is_file() for folder in (beside, Path(source))):
        raise spec.mistaken(
            f"the folder of an earlier sweep, with its {MANIFEST_NAME}",
            "search.warm_start",
            source,
            did_you_mean_file(beside) or did_you_mean_file(Path(source)) or "sweeper list shows those of a folder",
        )
