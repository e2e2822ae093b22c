"""A spec as a caller gives it, and what it names elsewhere: its data set, its files, an earlier sweep, a cluster.

Nothing here imports what reads data or trains, which takes seconds: a name that is misspelled is refused at once.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clipless.datasets.catalog import available, did_you_mean_data, places_of
from clipless.spelling import did_you_mean_file
from sweeper.errors import InputError, SpecError, SweeperError
from sweeper.specification.data import mistakes_in_name
from sweeper.specification.fields.messages import place
from sweeper.specification.plugins import is_declared
from sweeper.specification.search import MLFLOW, Prior
from sweeper.specification.spec import Spec
from sweeper.store.manifest import MANIFEST_NAME, read_manifest

AnySpec = Spec | Mapping[str, Any] | str | Path
_FROM_WHERE = "give its path from the folder of the spec, or from where you are"


def as_spec(spec: AnySpec) -> Spec:
    """Return a spec that is given as such, as a nested mapping, or as the YAML file that says it.

    Raises:
        SpecError: unreadable, or mistakes in it, each in one sentence; a data set that is not known here among them.
    """
    if not isinstance(spec, Spec | Mapping | str | Path):
        raise SpecError(_no_spec(spec))
    if isinstance(spec, Spec):
        read = spec
    else:
        read = Spec.from_mapping(spec) if isinstance(spec, Mapping) else Spec.from_yaml(spec)
    if mistakes := mistakes_in_name(read.data.name):
        raise SpecError(*mistakes)
    return read


def _no_spec(given: object) -> str:
    if not callable(given):
        return f"Expected a spec: a mapping, the path of its YAML file or a sweeper.Spec; got {type(given).__name__}"
    return (
        "Expected a spec, got a function: Sweeper runs no training function of yours, see docs/own-training.md; to "
        "propose configurations yourself: sweeper.open"
    )


def as_called_spec(spec: AnySpec, trials: int | None) -> Spec:
    """Return the spec of a sweep whose trials a caller proposes, so many in all, or as many as it says.

    Raises:
        SpecError: as `as_spec`; or it says itself what to try first.
    """
    read = as_spec(spec)
    if read.search.first:
        got = f"{len(read.search.first)} configurations"
        raise read.mistaken("no first where a caller proposes the trials", "search.first", got, "leave it out")
    rehearse = False if read.search.rehearse is None else None
    prior = Prior.NONE.value if read.search.prior is None else None
    return read.with_search(rehearse=rehearse, prior=prior, trials=trials)


def check_cluster(spec: Spec, cluster: str | None) -> None:
    """Refuse what a cluster cannot run: a private selection, and architectures that its nodes would not know.

    Raises:
        SweeperError, SpecError: likewise, where there is a cluster.
    """
    if cluster is None:
        return
    if spec.search.repetitions is not None:
        raise SweeperError(
            "Expected no cluster for a private selection, whose number of trials those who see the cluster could "
            f"count, got {cluster} (--cluster); leave it out"
        )
    here = [one.name for one in spec.model.architecture if is_declared(one.name)]
    if here:
        remedy = "make it a plug-in that is installed on every node"
        raise spec.mistaken("an architecture that every node of a cluster knows", "model.architecture", here[0], remedy)


def check_sources(spec: Spec, data_dir: Path | None = None) -> None:
    """Refuse a data set that is not known here and files that are not there.

    Args:
        spec: what its user wrote.
        data_dir: local copies of data sets.

    Raises:
        SpecError: no such data set; or an earlier sweep as `check_warm_start` refuses it.
        InputError: no such file.
        RecordError: as `check_warm_start`.
    """
    name, options = spec.data.name, spec.data_options()
    if name is not None and not _is_known(name):
        raise SpecError(f"Unknown data set {name!r} ({_place('data.name', spec)}); {did_you_mean_data(name)}")
    table, ranges = options["source"], options.get("ranges")
    if isinstance(table, Path):
        _check_file(spec, "data.path", places_of(table, data_dir))
    if ranges is not None:
        _check_file(spec, "data.ranges", [ranges])
    check_warm_start(spec)


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


def check_warm_start(spec: Spec) -> None:
    """Refuse an earlier sweep that is not there, or that nobody has paid for beside an account.

    It lies beside the spec or where this runs. What lies in MLflow is looked for by a run.

    Raises:
        SpecError: likewise.
        RecordError: beside an account, a file of the earlier sweep that cannot be read.
    """
    source = spec.search.warm_start
    if source is None or source.startswith(MLFLOW):
        return
    beside = Path(spec.source).parent / source
    found = next((folder for folder in (beside, Path(source)) if (folder / MANIFEST_NAME).is_file()), None)
    if found is None:
        raise spec.mistaken(
            f"the folder of an earlier sweep, with its {MANIFEST_NAME}",
            "search.warm_start",
            source,
            did_you_mean_file(beside) or did_you_mean_file(Path(source)) or "sweeper list shows those of a folder",
        )
    if spec.privacy.account is None:
        return
    claim = read_manifest(found).claim  # a run reads that of older sweeps in their front
    if claim is not None and claim.get("exploratory"):
        raise spec.mistaken(
            "an earlier sweep that is not exploratory beside privacy.account, for nobody has paid for what it shows",
            "search.warm_start",
            source,
            "leave it out, or name another",
        )
