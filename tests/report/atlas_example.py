"""A small atlas to show: one general head, each capability with a head of its own."""

from __future__ import annotations

import numpy as np

from headsieve.atlas_result import (
    AtlasCapability,
    AtlasHead,
    AtlasResult,
    GeneralHead,
    ModularityResult,
)
from headsieve.results import CapabilityClaim, RandomSets, Verification
from headsieve.sensing.modularity import beyond_shared, cluster, leaves, modularity, shares
from tests.report import examples

GENERAL = "L0H1"
LAYERS, WIDTH = 12, 8


def atlas(count: int = 6) -> AtlasResult:
    """Capabilities ``skill-0`` to so many; the first needs L1H0, the second L1H1, and so on.

    The last is not confirmed, and one more was left out.
    """
    names = [f"skill-{number}" for number in range(count)]
    heads = [(layer, index) for layer in range(LAYERS) for index in range(WIDTH)]
    effects = np.random.default_rng(0).normal(0, 0.03, (len(heads), count))
    effects[1] = -2.0
    for number in range(count):
        effects[WIDTH + number, number] = -1.5
        effects[WIDTH + number - number % 2, number] -= 1.5
    tree = cluster(beyond_shared(shares(effects[: WIDTH + count])))
    found = modularity(effects[: WIDTH + count], np.random.default_rng(0))
    base = examples.result(antonym=examples.capability())
    return AtlasResult(
        schema=1,
        headsieve="1.0",
        created=base.created,
        seed=0,
        command="headsieve atlas",
        model=base.model.model_copy(update={"layers": LAYERS, "heads": LAYERS * WIDTH}),
        left_out={"<b>hard": "accuracy is 0.05 on 16 search items"},
        capabilities={
            name: _capability(number, names, confirmed=number < count - 1)
            for number, name in enumerate(names)
        },
        general=[
            GeneralHead(
                head=GENERAL,
                claims={name: examples.claim(0.9, 0.2) for name in names},
                needed_by=names,
                confirmed=True,
            )
        ],
        heads=[
            AtlasHead(
                head=f"L{layer}H{index}",
                layer=layer,
                index=index,
                alone=column < WIDTH + count,
                effects=dict(zip(names, effects[column].tolist(), strict=True)),
                needed_by=[
                    name
                    for name, effect in zip(names, effects[column], strict=True)
                    if effect < -0.4
                ],
            )
            for column, (layer, index) in enumerate(heads)
        ],
        order=[names[leaf] for leaf in leaves(tree)],
        tree=tree.tolist(),
        modularity=ModularityResult(
            specificity=found.specificity,
            null_mean=found.null_mean,
            null_ci=found.null_interval,
            p_value=found.p_value,
            heads=WIDTH + count,
            permutations=9999,
        ),
        masks=100,
        cost=base.cost,
        versions={},
    )


def _capability(number: int, names: list[str], *, confirmed: bool) -> AtlasCapability:
    others = {
        name: examples.claim(0.8, 0.7 if other == number + 1 else 0.79)
        for other, name in enumerate(names)
        if other != number
    }
    own = examples.capability().verification.capability.model_dump()
    return AtlasCapability(
        selected=[f"L{1 + number // WIDTH}H{number % WIDTH}"],
        verification=Verification(
            capability=CapabilityClaim(**own),
            controls=others,
            random_sets=RandomSets(count=10, mean_drop=0.02, max_drop=0.05 if confirmed else 0.7),
        ),
        adjusted_p=0.001,
        confirmed=confirmed,
    )
