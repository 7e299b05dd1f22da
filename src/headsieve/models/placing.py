"""Moving small arrays to where a model runs without waiting for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


def placed(array: NDArray[Any], device: torch.device) -> torch.Tensor:
    """An array as a tensor on a device.

    From pageable memory the copy to a GPU would wait until the GPU has done all it was given, so
    the copy is made from pinned memory.
    """
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
