"""Going on in smaller batches when memory runs out."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

Masks = NDArray[np.bool_]
Answer = TypeVar("Answer")


def halving(run: Callable[[Masks], Answer], masks: Masks) -> Iterator[tuple[slice, Answer]]:
    """Run something for all masks, in ever smaller batches if memory runs out.

    Parameters
    ----------
    run : callable
        Takes masks of shape (some, heads).
    masks : ndarray of bool, shape (masks, heads)

    Yields
    ------
    slice, answer
        Which masks, and what `run` returned for them.
    """
    size = len(masks)
    start = 0
    while start < len(masks):
        part = slice(start, min(start + size, len(masks)))
        try:
            answer = run(masks[part])
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not _is_out_of_memory(error) or size == 1:
                raise
            size = (size + 1) // 2
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            continue
        yield part, answer
        start += size


def _is_out_of_memory(error: BaseException) -> bool:
    return (
        isinstance(error, (torch.OutOfMemoryError, MemoryError))
        or "not enough memory" in str(error).lower()
        or "out of memory" in str(error).lower()
    )
