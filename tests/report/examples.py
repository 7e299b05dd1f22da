"""A small result to show: 4 layers of 3 heads (layer 2 has but 2), two heads selected."""

from __future__ import annotations

from typing import Any, Literal

from headsieve.examples import Example, Examples
from headsieve.report.curve import Curve
from headsieve.results import (
    CapabilityClaim,
    CapabilityResult,
    Claim,
    Cost,
    Evaluations,
    HeadResult,
    ModelInfo,
    RandomSets,
    Result,
    Verification,
)

EFFECTS = {"L1H2": -1.234567, "L3H0": -0.5}
GENERAL = ["L0H0"]


def claim(
    baseline: float,
    knocked_out: float,
    metric: Literal["accuracy", "log_prob"] = "accuracy",
) -> Claim:
    drop = baseline - knocked_out
    ci = (drop - 0.03, drop + 0.04)
    return Claim(
        metric=metric,
        items=60,
        baseline=baseline,
        knocked_out=knocked_out,
        drop=drop,
        ci=ci,
    )


def capability(
    *,
    controls: dict[str, Claim] | None = None,
    random_max: float = 0.09,
    **changes: Any,
) -> CapabilityResult:
    """The example; keywords change the capability's claim, or the selection."""
    heads = []
    for layer in range(4):
        for index in range(2 if layer == 2 else 3):
            name = f"L{layer}H{index}"
            effect = EFFECTS.get(name, 0.01 * index)
            heads.append(
                HeadResult(
                    head=name,
                    layer=layer,
                    index=index,
                    effect=effect,
                    ci=(effect - 0.2, effect + 0.1),
                    selection=0.87,
                    control_effect=-0.043,
                )
            )
    heads.sort(key=lambda head: head.effect)
    selected = changes.pop("selected", list(EFFECTS))
    own: dict[str, Any] = {
        "metric": "accuracy",
        "items": 75,
        "baseline": 0.66,
        "knocked_out": 0.04,
        "drop": 0.62,
        "ci": (0.504, 0.731),
        "p_value": 0.00004,
    }
    if controls is None:
        controls = {"plural": claim(0.90, 0.85), "capital": claim(0.71, 0.72)}
    return CapabilityResult(
        heads=heads,
        selected=selected,
        frontier=[],
        evaluations=Evaluations(capability=500, controls=1500),
        verification=Verification(
            capability=CapabilityClaim(**(own | changes)),
            controls=controls,
            random_sets=RandomSets(count=20, mean_drop=0.02, max_drop=random_max),
        ),
    )


def result(**capabilities: CapabilityResult) -> Result:
    return Result(
        schema=1,
        headsieve="1.0",
        created="2026-01-01T00:00:00Z",
        seed=0,
        command="headsieve locate antonym",
        model=ModelInfo(
            name="tiny-model",
            revision=None,
            architecture="LlamaForCausalLM",
            layers=4,
            heads=11,
            dtype="float32",
            device="cpu",
            fingerprint="0",
        ),
        capabilities=capabilities,
        cost=Cost(evaluations=2000, tokens=1234567, seconds=812.3, peak_memory_bytes=3 * 2**29),
        versions={},
    )


def curve() -> Curve:
    return Curve(
        heads=("L1H2", "L3H0"),
        metric={"antonym": "accuracy", "plural": "accuracy", "text": "log_prob"},
        values={
            "antonym": (0.66, 1 / 3, 0.04),
            "plural": (0.9, 0.88, 0.85),
            "text": (-2.5, -2.51, -2.56),
        },
        capability="antonym",
        ci=((0.55, 0.77), (0.25, 0.45), (0.0, 0.1)),
    )


def said() -> Examples:
    return Examples(
        prefix="big <-> small\nwet <-> dry\n",
        kind="answer",
        items=[
            Example(
                prompt="hot <->",
                expected="cold",
                before="cold",
                after="",
                right_before=True,
                right_after=False,
            ),
            Example(
                prompt="up <->",
                expected="down",
                before="down",
                after="down",
                right_before=True,
                right_after=True,
            ),
        ],
    )
