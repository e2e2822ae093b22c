"""How busy the driver's machine is, under the names by which MLflow shows system metrics; Linux only."""

import os
import shutil
from pathlib import Path

PROC = Path("/proc")
_MEGABYTE = 1e6
_IDLE = slice(3, 5)  # idle and waiting for a disk, among the times of /proc/stat


class SystemMetrics:
    """Samples processor, memory and disk; a machine that does not tell has none of them.

    Args:
        proc: where the kernel tells; tests have their own.
    """

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._before: tuple[float, float] | None = None

    def sample(self) -> dict[str, float]:
        """Return percentages and megabytes; the processor's since the sample before."""
        try:
            return self._processor() | self._memory() | _disk()
        except (OSError, ValueError, KeyError, IndexError):
            return {}

    def _processor(self) -> dict[str, float]:
        times = [float(one) for one in (self._proc / "stat").read_text().splitlines()[0].split()[1:9]]
        now, before = (sum(times), sum(times[_IDLE])), self._before
        self._before = now
        if before is None or now[0] <= before[0]:
            return {}
        busy = 1.0 - (now[1] - before[1]) / (now[0] - before[0])
        return {"system/cpu_utilization_percentage": round(100.0 * busy, 1)}

    def _memory(self) -> dict[str, float]:
        lines = (line.split() for line in (self._proc / "meminfo").read_text().splitlines())
        sizes = {name.rstrip(":"): 1024.0 * float(size) for name, size, *_ in lines}
        used = sizes["MemTotal"] - sizes["MemAvailable"]
        return {
            "system/system_memory_usage_megabytes": round(used / _MEGABYTE, 1),
            "system/system_memory_usage_percentage": round(100.0 * used / sizes["MemTotal"], 1),
        }


def _disk() -> dict[str, float]:
    total, used, _ = shutil.disk_usage(os.sep)
    return {
        "system/disk_usage_percentage": round(100.0 * used / total, 1),
        "system/disk_usage_megabytes": round(used / _MEGABYTE, 1),
    }
