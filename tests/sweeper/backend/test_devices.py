"""A part of a GPU is a part of its memory, and records name the device."""

import os
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest
import ray
import torch

from sweeper.backend import devices
from sweeper.errors import SweeperError


@pytest.fixture
def gpu(monkeypatch):
    """A stand-in for a GPU, which remembers what it was asked for."""
    fractions = []
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", fractions.append)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**30, 80 * 2**30))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100")
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    return fractions


@pytest.fixture
def node(monkeypatch):
    """What Ray says of the node that trains, and of another one."""
    here = {"NodeID": "b", "NodeName": "rack-7", "NodeManagerAddress": "10.0.0.7"}
    other = {"NodeID": "a", "NodeName": "other", "NodeManagerAddress": "10.0.0.6"}
    monkeypatch.setattr(ray, "nodes", lambda: [other, here])
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "b"))
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(socket, "gethostname", lambda: "worker-3")
    return here


@pytest.mark.parametrize(("gpus", "capped"), [(0.25, True), (0.99, True), (1.0, False), (0.0, False)])
def test_only_a_part_of_a_gpu_is_capped(gpu, gpus, capped):
    devices.cap_memory(gpus)
    assert len(gpu) == capped


@pytest.mark.parametrize("gpus", [0.05, 0.1, 0.25, 0.5])
def test_processes_with_their_contexts_fit_into_the_device(gpu, gpus):
    devices.cap_memory(gpus)
    assert round(1 / gpus) * (gpu[0] + devices.CONTEXT_BYTES / (80 * 2**30)) <= 1.0 + 1e-9


def test_a_tiny_part_of_a_small_gpu_keeps_half_of_it(gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**30, 8 * 2**30))
    devices.cap_memory(0.1)
    assert gpu == [0.05]


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (torch.AcceleratorError("CUDA error: unspecified launch failure"), True),
        (RuntimeError("CUDA error: device-side assert triggered"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), False),
        (torch.AcceleratorError("CUDA error: out of memory"), False),
        (RuntimeError("shapes do not match"), False),
        (ValueError("Expected rows"), False),
    ],
)
def test_a_lost_device_is_told_from_other_errors(error, lost):
    assert devices.is_lost(error) is lost


@pytest.mark.usefixtures("gpu", "node")
@pytest.mark.parametrize(
    ("gpus", "device"),
    [(0.0, "cpu"), (1.0, "GPU 3, NVIDIA H100"), (0.25, "GPU 3, NVIDIA H100, 0.25 of it")],
)
def test_a_trial_says_where_it_is_trained(gpus, device):
    assert devices.placement(gpus) == {"node": "rack-7", "device": device, "process": str(os.getpid())}


@pytest.mark.parametrize("given", ["10.0.0.7", ""])
def test_a_node_without_a_name_has_that_of_its_host_not_an_address_that_changes(given, node):
    node["NodeName"] = given
    assert devices.placement(0.0)["node"] == "worker-3"


@pytest.mark.usefixtures("node")
def test_no_ray_is_started_to_say_where_a_trial_is(monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "nodes", lambda: pytest.fail("it would start one"))
    assert devices.placement(0.0)["node"] == "worker-3"


@pytest.mark.usefixtures("gpu", "node")
@pytest.mark.parametrize(("gpus", "device"), [(0.0, "cpu"), (0.5, "GPU 3, NVIDIA H100, 0.5 of it")])
def test_a_worker_of_this_machine_does_not_import_ray_to_say_where_it_is(monkeypatch, gpus, device):
    monkeypatch.delitem(sys.modules, "ray")
    placed = devices.placement(gpus)
    assert (placed["node"], placed["device"]) == ("worker-3", device)
    assert "ray" not in sys.modules


@pytest.mark.parametrize(
    ("named", "count", "expected"),
    [
        (None, 2, ("0", "1")),
        ("3, 1", 2, ("3", "1")),
        ("GPU-aa,MIG-bb", 2, ("GPU-aa", "MIG-bb")),
        ("0,9,1", 1, ("0",)),
        ("", 0, ()),
        (None, 0, ()),
    ],
)
def test_devices_have_the_names_that_this_process_may_use(monkeypatch, named, count, expected):
    """CUDA stops at the first name that it does not know, and counts those before it."""
    if named is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    assert devices.visible_devices() == expected


def test_a_device_never_holds_more_workers_than_fit():
    shares = devices.DeviceShares(["0", "1"], 0.5)
    assert [shares.take() for _ in range(4)] == ["0", "1", "0", "1"]
    with pytest.raises(SweeperError, match="room for a worker on a GPU, got none on any of 2"):
        shares.take()
    shares.give_back("1")
    assert shares.take() == "1"
    with pytest.raises(SweeperError, match="none on any of 0"):
        devices.DeviceShares([], 1.0).take()


WATCHED = """
import torch
used = []
for module, name in ((torch.cuda, "is_available"), (torch.cuda, "device_count"), (torch.cuda, "_lazy_init"),
                     (torch._C, "_cuda_getDeviceCount"), (torch._C, "_cuda_init")):
    setattr(module, name, lambda *_, name=name: used.append(name) or 0)
import sweeper.backend.trainable, sweeper.backend.workers.worker
print(used)
"""


@pytest.mark.long
def test_what_forks_workers_uses_no_cuda_which_a_fork_would_break():
    done = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
