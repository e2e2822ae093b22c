"""The device of a trial's process: how much of it the process may take, and its name for the records."""

import sys

import torch

THIS_MACHINE = "127.0.0.1"


def cap_memory(gpus: float) -> None:
    """Keep a process that has a part of a GPU to that part of its memory; Ray itself does not enforce it."""
    if 0 < gpus < 1:
        torch.cuda.set_per_process_memory_fraction(gpus)


def placement(gpus: float) -> dict[str, str]:
    """Return where a trial is trained: the address of the ``node``, and the ``device``."""
    if "ray" not in sys.modules:  # a process of the driver's own, which does not pay for the import
        return {"node": THIS_MACHINE, "device": "cpu"}
    import ray

    node = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
    return {"node": node, "device": _device(gpus)}


def _device(gpus: float) -> str:
    if not gpus:
        return "cpu"
    import ray

    number = ",".join(map(str, ray.get_gpu_ids()))
    share = f", {gpus:g} of it" if gpus < 1 else ""
    return f"GPU {number}, {torch.cuda.get_device_name()}{share}"
