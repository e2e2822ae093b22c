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
_STATE = {
    "searchFilter": "",
    "orderByKey": "attributes.start_time",
    "orderByAsc": False,
    "startTime": "ALL",
    "lifecycleFilter": "Active",
    "datasetsFilter": [],
    "modelVersionFilter": "All Runs",
    "columnOrder": [],
    "columnWidths": {},
    "runsHiddenMode": "FIRST_10_RUNS",
    "hideEmptyCharts": True,
}


def results_view(objectives: Sequence[str]) -> str:
    """Return the value of the tag of an experiment whose sweeps have these objectives."""
    state = json.dumps(_STATE | {"selectedColumns": columns(objectives)}).encode()
    packed = base64.b64encode(zlib.compress(state)).decode()
    now = time.time_ns() // 1_000_000
    view = {"name": NAME, "createdAt": now, "updatedAt": now, "state": f"deflate;{packed}"}
    return json.dumps(view)


def columns(objectives: Sequence[str]) -> list[str]:
    """Return what is shown of a run: of its best point in each objective all that belongs to it, price and duration.

    >>> columns(["epsilon", "certified@0.25"])[:2]
    ['metrics.`best/certified/0.25`', 'metrics.`best/certified/0.25/test`']
    """
    scores = [name for name in objectives if name != "epsilon"]
    names = [name for score in map(best_name, scores) for name in (score, f"{score}/test", f"{score}/epsilon")]
    return [*(f"metrics.`{name}`" for name in (*names, "price")), "attributes.`Duration`"]
