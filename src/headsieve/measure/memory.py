"""Going on in smaller batches when memory runs out, and using memory again instead of anew."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable, Iterator
from functools import cache
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
            if not is_out_of_memory(error) or size == 1:
                raise
            size = (size + 1) // 2
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            continue
        yield part, answer
        start += size


# Parameters of glibc's mallopt(3).
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4


@cache
def keep_freed_memory() -> None:
    """Have the C library keep what this process frees, for its next allocation.

    By default glibc gives large blocks back to the operating system at once, which then clears
    every page of the next one: an eighth of the time that a small model is measured in on a CPU.
    Other C libraries are left as they are.
    """
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        if hasattr(library, "gnu_get_libc_version"):
            library.mallopt(_MMAP_MAX, 0)
            library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, whoever says it."""
    return (
        isinstance(error, (torch.OutOfMemoryError, MemoryError))
        or "not enough memory" in str(error).lower()
        or "out of memory" in str(error).lower()
    )
