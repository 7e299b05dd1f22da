"""Find the few attention heads that a capability of a language model depends on.

The public names are imported when they are first used, so that `import headsieve` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headsieve.atlas_folder import Atlas
    from headsieve.cartography import atlas
    from headsieve.comparison import compare
    from headsieve.errors import HeadsieveError
    from headsieve.handover import export
    from headsieve.localization import locate
    from headsieve.models.heads import Head
    from headsieve.models.loading import Model, load_model
    from headsieve.scoring import score
    from headsieve.study import Study
    from headsieve.tasks import Task, load_task

__all__ = [
    "Atlas",
    "Head",
    "HeadsieveError",
    "Model",
    "Study",
    "Task",
    "atlas",
    "compare",
    "export",
    "load_model",
    "load_task",
    "locate",
    "score",
]

_HOMES = {
    "Atlas": "headsieve.atlas_folder",
    "Head": "headsieve.models.heads",
    "HeadsieveError": "headsieve.errors",
    "Model": "headsieve.models.loading",
    "Study": "headsieve.study",
    "Task": "headsieve.tasks",
    "atlas": "headsieve.cartography",
    "compare": "headsieve.comparison",
    "export": "headsieve.handover",
    "load_model": "headsieve.models.loading",
    "load_task": "headsieve.tasks",
    "locate": "headsieve.localization",
    "score": "headsieve.scoring",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
