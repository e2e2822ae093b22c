"""The view of results that MLflow's page offers under *Views*: scores and prices as columns of the list of runs.

It is what that page itself saves with an experiment: a tag whose value names the view, and holds its state as JSON,
deflated. A page that does not know it shows its own columns.
"""

import base64
import json
import time
import zlib
from collections.abc import Sequence

from sweeper.tracking.names import best_name

VIEW_TAG = "mlflow.sharedViewState.sweeper"
NAME = "Results"
_RUN_NAME, _NAME_WIDTH = "attributes.`Run Name`", 330  # pixels; lists cut what is wider
_CREATED, _CREATED_WIDTH = "runDateAndNestInfo", 150
_LETTER, _MARGIN = 7, 32
_STATE = {
    "searchFilter": "",
    "orderByKey": "attributes.start_time",
    "orderByAsc": False,
    "startTime": "ALL",
    "lifecycleFilter": "Active",
    "datasetsFilter": [],
    "modelVersionFilter": "All Runs",
    "runsHiddenMode": "FIRST_10_RUNS",
    "hideEmptyCharts": True,
}


def results_view(columns: Sequence[str]) -> str:
    """Return the value of the tag of an experiment whose runs are shown with these metrics."""
    metrics = {f"metrics.`{name}`": _LETTER * len(name) + _MARGIN for name in columns}
    widths = {_RUN_NAME: _NAME_WIDTH, _CREATED: _CREATED_WIDTH, **metrics}
    state = {"selectedColumns": [*metrics, "attributes.`Duration`"], "columnOrder": [*widths], "columnWidths": widths}
    packed = base64.b64encode(zlib.compress(json.dumps(_STATE | state).encode())).decode()
    now = time.time_ns() // 1_000_000
    return json.dumps({"name": NAME, "createdAt": now, "updatedAt": now, "state": f"deflate;{packed}"})


def results_columns(objectives: Sequence[str], *, noisy: bool) -> tuple[str, ...]:
    """Return the metrics that tell a result: the price, and of the best point in each objective all that belongs to it.

    ``noisy`` is whether scores have intervals, without which none is shown.

    >>> results_columns(["epsilon", "certified@0.25"], noisy=False)
    ('price', 'best/certified/0.25', 'best/certified/0.25/test', 'best/certified/0.25/epsilon')
    """
    ends = ("", "/low", "/high") if noisy else ("",)
    names = [best_name(name) for name in objectives if name != "epsilon"]
    of_each = [*ends, *(f"/test{end}" for end in ends), "/epsilon"]
    return ("price", *(f"{name}{one}" for name in names for one in of_each))
