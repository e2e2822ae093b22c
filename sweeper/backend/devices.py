"""The devices of a machine: which worker trains on which, how much of it the worker may take, and its loss.

A process that has used CUDA cannot be forked. The process that forks workers therefore only imports; each worker sees
one device alone, because ``CUDA_VISIBLE_DEVICES`` names it before the worker first uses CUDA.
"""

import os
import socket
import sys
from collections.abc import Sequence

import torch

from clipless.training.memory import is_out_of_memory
from sweeper.errors import SweeperError

# Of each process, beside what it allocates: kernels and the libraries' own buffers.
CONTEXT_BYTES = 700 * 2**20
VISIBLE = "CUDA_VISIBLE_DEVICES"
_LOST = ("CUDA error", "cuDNN error", "CUBLAS_STATUS", "CUDNN_STATUS", "NCCL error", "HIP error")


def visible_devices() -> tuple[str, ...]:
    """Return the GPUs that this process may use, by the names that ``CUDA_VISIBLE_DEVICES`` takes.

    It must not be called where workers are forked.
    """
    count, named = torch.cuda.device_count(), os.environ.get(VISIBLE)
    names = map(str, range(count)) if named is None else (name.strip() for name in named.split(","))
    return tuple(names)[:count]


def workers_per_device(share: float) -> int:
    """Return how many workers fit on a device that each take a share of.

    >>> [workers_per_device(share) for share in (1.0, 0.5, 0.3, 0.1)]
    [1, 2, 3, 10]
    """
    return int(1 / share + 1e-9)


class DeviceShares:
    """Shares of devices, which workers take and give back.

    >>> shares = DeviceShares(["0", "1"], 0.5)
    >>> [shares.take() for _ in range(4)]
    ['0', '1', '0', '1']
    >>> shares.give_back("1")
    >>> shares.take()
    '1'

    Guarantees:
        The workers of a device take no more than all of it.
    """

    def __init__(self, devices: Sequence[str], share: float) -> None:
        self._free = dict.fromkeys(devices, workers_per_device(share))

    def take(self) -> str:
        """Return the device on which the next worker trains, the one with most room.

        Raises:
            SweeperError: none has room.
        """
        device = max(self._free, key=self._free.__getitem__, default="")
        if not self._free.get(device):
            raise SweeperError(f"Expected room for a worker on a GPU, got none on any of {len(self._free)}")
        self._free[device] -= 1
        return device

    def give_back(self, device: str) -> None:
        """Take back the share of a worker that has ended."""
        self._free[device] += 1


def cap_memory(gpus: float) -> None:
    """Keep a process that has a part of a GPU to that part of its memory, its context included.

    Neither the driver nor Ray enforces it, and the allocator counts no context.
    """
    if 0 < gpus < 1:
        _, whole = torch.cuda.mem_get_info()
        torch.cuda.set_per_process_memory_fraction(max(gpus - CONTEXT_BYTES / whole, gpus / 2))


def is_lost(error: BaseException) -> bool:
    """Whether an error says that the device, or this process's access to it, is gone.

    After one, every later call of the process fails: it has to end, and the trial to be started in another one.
    """
    if is_out_of_memory(error):
        return False
    return isinstance(error, torch.AcceleratorError) or any(text in str(error) for text in _LOST)


def placement(gpus: float) -> dict[str, str]:
    """Return the ``node`` and the ``device`` that train a trial, by name, and the id of the ``process``.

    Members of a stack have one process.
    """
    has_ray = "ray" in sys.modules  # a process of the driver's own does not pay for the import
    node = _node() if has_ray else socket.gethostname()
    return {"node": node, "device": _device(gpus), "process": str(os.getpid())}


def _node() -> str:
    """Return the name that this node was started with, that of its host otherwise: addresses change with restarts."""
    import ray

    if not ray.is_initialized():  # it is imported, but trials run in processes of the driver's own
        return socket.gethostname()
    here, nodes = ray.get_runtime_context().get_node_id(), ray.nodes()  # type: ignore[no-untyped-call]
    names = {node["NodeID"]: node["NodeName"] for node in nodes if node["NodeName"] != node["NodeManagerAddress"]}
    return str(names.get(here) or socket.gethostname())


def _device(gpus: float) -> str:
    if not gpus:
        return "cpu"
    number = os.environ.get(VISIBLE) or torch.cuda.current_device()  # Ray, too, shows a process its device alone
    share = f", {gpus:g} of it" if gpus < 1 else ""
    return f"GPU {number}, {torch.cuda.get_device_name()}{share}"
