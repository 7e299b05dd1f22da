"""``heads.json``: the heads of a study in a form that other tools can read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headsieve.models.heads import kind_of

if TYPE_CHECKING:
    from headsieve.results import Result

SCHEMA = 1


def heads_json(result: Result, general: Mapping[str, Sequence[str]]) -> str:
    """The text of ``heads.json``.

    Parameters
    ----------
    result : Result
    general : mapping of str to sequence of str
        For each capability the heads that everything needs.

    Returns
    -------
    str
        ``schema``, the ``model`` as in ``result.json``, the ``units`` that were searched
        (``heads``, ``kv-groups``, ``attention-layers`` or ``mlp-layers``), and for each of the
        ``capabilities`` the names of its ``selected`` heads in order of knocking out and of its
        ``general`` heads, and all ``heads``, those of the most negative effect first. Numbers are
        not rounded.
    """
    record = {
        "schema": SCHEMA,
        "model": result.model.model_dump(mode="json"),
        "units": kind_of(next(iter(result.capabilities.values())).heads[0].head),
        "capabilities": {
            name: {
                "selected": found.selected,
                "general": list(general.get(name, ())),
                "heads": [head.model_dump(mode="json") for head in found.heads],
            }
            for name, found in result.capabilities.items()
        },
    }
    return json.dumps(record, indent=2) + "\n"
