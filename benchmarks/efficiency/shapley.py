"""KernelSHAP and ProxySPEX of shapiq, which is optional.

To an approximator a head that is kept is a player that is present. It calls a function with the
coalitions whose values it wants; with the same seed it wants the same ones again, so the first
call only learns which, and the second one is given their values.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headsieve.sensing.problem import Masks

FloatArray = NDArray[np.float64]
Ask = Callable[[int, int, int], Masks]
Decode = Callable[[Masks, FloatArray, int], FloatArray]


class UnableError(Exception):
    """A method cannot be applied to a problem."""


class _WantedError(Exception):
    """Carries the coalitions out of an approximator."""

    def __init__(self, coalitions: NDArray[np.bool_]) -> None:
        self.coalitions = coalitions


def _approximator(name: str) -> tuple[Ask, Decode]:
    def make(heads: int, seed: int) -> Any:
        from shapiq import approximator

        options = {"max_order": 1} if name == "ProxySPEX" else {}
        return getattr(approximator, name)(n=heads, random_state=seed, **options)

    def approximate(
        heads: int, budget: int, seed: int, game: Callable[[NDArray[Any]], FloatArray]
    ) -> Any:
        with warnings.catch_warnings():
            # Of overflows in the weights of coalitions, and of budgets larger than needed.
            warnings.simplefilter("ignore")
            return make(heads, seed).approximate(budget=budget, game=game)

    def ask(heads: int, budget: int, seed: int) -> Masks:
        def learn(coalitions: NDArray[Any]) -> FloatArray:
            raise _WantedError(np.asarray(coalitions, dtype=bool))

        try:
            approximate(heads, budget, seed, learn)
        except _WantedError as wanted:
            return ~wanted.coalitions
        except ValueError as error:
            raise UnableError(f"shapiq's {name} cannot take {heads} heads: {error}.") from error
        raise AssertionError(f"{name} asked for no coalition.")

    def decode(masks: Masks, scores: FloatArray, seed: int) -> FloatArray:
        values = approximate(masks.shape[1], len(masks), seed, lambda _coalitions: scores)
        # What a head adds when it is present is what the score loses without it.
        return -np.asarray(values.get_n_order_values(1), dtype=np.float64)

    return ask, decode


kernel_shap = _approximator("KernelSHAP")
proxy_spex = _approximator("ProxySPEX")
