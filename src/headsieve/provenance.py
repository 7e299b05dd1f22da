"""What a result says of where it comes from: the model, the versions, what it took."""

from __future__ import annotations

import platform
import resource
import sys
from importlib import metadata
from typing import TYPE_CHECKING

from headsieve.results import Cost, ModelInfo

if TYPE_CHECKING:
    from headsieve.measure.journal import Journal
    from headsieve.models.loading import Model

_PACKAGES = ("torch", "transformers", "numpy", "scikit-learn", "scipy")


def describe_model(model: Model) -> ModelInfo:
    """The model as ``result.json`` names it."""
    return ModelInfo(
        name=model.name,
        revision=model.revision,
        architecture=type(model.hf).__name__,
        layers=len(model.geometry.layers) + len(model.geometry.uncovered),
        heads=sum(layer.heads for layer in model.geometry.layers),
        dtype=model.dtype,
        device=model.device.type,
        fingerprint=model.fingerprint,
    )


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that results can depend on."""
    return {
        "python": platform.python_version(),
        **{package: metadata.version(package) for package in _PACKAGES},
    }


def peak_memory() -> int:
    """The most memory this process has held, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in KiB, macOS in bytes.
    return peak if sys.platform == "darwin" else peak * 1024


def total_cost(journal: Journal) -> Cost:
    """What all measurements of a journal took, and this process's memory."""
    evaluations, tokens, seconds = journal.totals()
    return Cost(
        evaluations=evaluations,
        tokens=tokens,
        seconds=seconds,
        peak_memory_bytes=peak_memory(),
    )
