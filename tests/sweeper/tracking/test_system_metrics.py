"""How busy the driver's machine is."""

import pytest

from sweeper.tracking.system_metrics import SystemMetrics


def told(proc, busy, idle):
    (proc / "stat").write_text(f"cpu {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 1 1 1\n")
    (proc / "meminfo").write_text("MemTotal:  1000000 kB\nMemFree: 1 kB\nMemAvailable:  250000 kB\n")


def test_processor_memory_and_disk_are_sampled(tmp_path):
    machine = SystemMetrics(tmp_path)
    told(tmp_path, busy=100, idle=100)
    first = machine.sample()
    assert "system/cpu_utilization_percentage" not in first
    assert first["system/system_memory_usage_percentage"] == 75.0
    assert first["system/system_memory_usage_megabytes"] == 768.0
    assert 0 < first["system/disk_usage_percentage"] <= 100
    told(tmp_path, busy=175, idle=125)
    assert machine.sample()["system/cpu_utilization_percentage"] == 75.0


@pytest.mark.parametrize("text", [None, "", "cpu x\n"])
def test_a_machine_that_does_not_tell_has_none(tmp_path, text):
    if text is not None:
        (tmp_path / "stat").write_text(text)
    assert SystemMetrics(tmp_path).sample() == {}
