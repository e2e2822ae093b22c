"""A part of a GPU is a part of its memory, and records name the device."""

import sys

import pytest
import ray
import torch

from sweeper.backend import devices


@pytest.fixture
def gpu(monkeypatch):
    """A stand-in for a GPU, which remembers what it was asked for."""
    fractions = []
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", fractions.append)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100")
    monkeypatch.setattr(ray, "get_gpu_ids", lambda: [3])
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "10.0.0.7")
    return fractions


@pytest.mark.parametrize(("gpus", "capped"), [(0.25, [0.25]), (0.99, [0.99]), (1.0, []), (0.0, [])])
def test_only_a_part_of_a_gpu_is_capped(gpu, gpus, capped):
    devices.cap_memory(gpus)
    assert gpu == capped


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("gpus", "device"),
    [(0.0, "cpu"), (1.0, "GPU 3, NVIDIA H100"), (0.25, "GPU 3, NVIDIA H100, 0.25 of it")],
)
def test_a_trial_says_where_it_is_trained(gpus, device):
    assert devices.placement(gpus) == {"node": "10.0.0.7", "device": device}


def test_a_worker_of_this_machine_does_not_import_ray_to_say_where_it_is(monkeypatch):
    monkeypatch.delitem(sys.modules, "ray")
    assert devices.placement(0.0) == {"node": devices.THIS_MACHINE, "device": "cpu"}
    assert "ray" not in sys.modules
