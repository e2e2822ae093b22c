"""The device of a trial's process: how much of it the process may take, its name for the records, and its loss."""

import socket
import sys
from typing import Any

import torch

from clipless.training.memory import is_out_of_memory

# Of each process, beside what it allocates: kernels and the libraries' own buffers.
CONTEXT_BYTES = 700 * 2**20
_LOST = ("CUDA error", "cuDNN error", "CUBLAS_STATUS", "CUDNN_STATUS", "NCCL error", "HIP error")


def cap_memory(gpus: float) -> None:
    """Keep a process that has a part of a GPU to that part of its memory, its context included.

    Ray itself does not enforce it, and the allocator counts no context.
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
    """Return where a trial is trained: the name of the ``node``, and the ``device``."""
    ray = sys.modules.get("ray")  # a process of the driver's own does not pay for the import
    return {"node": socket.gethostname() if ray is None else _node(), "device": _device(gpus, ray)}


def _node() -> str:
    """Return the name that this node was started with, that of its host otherwise: addresses change with restarts."""
    import ray

    if not ray.is_initialized():  # it is imported, but trials run in processes of the driver's own
        return socket.gethostname()
    here, nodes = ray.get_runtime_context().get_node_id(), ray.nodes()  # type: ignore[no-untyped-call]
    names = {node["NodeID"]: node["NodeName"] for node in nodes if node["NodeName"] != node["NodeManagerAddress"]}
    return str(names.get(here) or socket.gethostname())


def _device(gpus: float, ray: Any) -> str:
    if not gpus:
        return "cpu"
    number = torch.cuda.current_device() if ray is None else ",".join(map(str, ray.get_gpu_ids()))
    share = f", {gpus:g} of it" if gpus < 1 else ""
    return f"GPU {number}, {torch.cuda.get_device_name()}{share}"
