"""Linear layers that multiply few rows the other way round give the same numbers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from headsieve.models.products import few_rows


@pytest.mark.parametrize("shape", [(3, 1, 16), (5, 16), (16,), (2, 200, 16), (1, 1, 16)])
@pytest.mark.parametrize(("width", "bias"), [(8, True), (40, True), (40, False)])
def test_it_is_the_same_product(shape: tuple[int, ...], width: int, bias: bool) -> None:
    layer = nn.Linear(16, width, bias=bias)
    states = torch.randn(shape)
    with torch.inference_mode():
        expected = layer(states)
        with few_rows(layer):
            found = layer(states)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert found.shape == expected.shape


def test_layers_are_themselves_again() -> None:
    layer = nn.Linear(4, 4)
    with pytest.raises(RuntimeError, match="shapes"), few_rows(layer):
        layer(torch.ones(2, 5))
    assert "forward" not in vars(layer)


def test_other_kinds_of_layers_and_changed_ones_are_left_alone() -> None:
    class Scaled(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(input)

    changed = nn.Linear(4, 4)
    # As accelerate does where it keeps weights elsewhere.
    changed.forward = lambda states: states  # type: ignore[method-assign, assignment]
    both = nn.Sequential(Scaled(4, 4), changed)
    states = torch.randn(3, 4)
    with few_rows(both):
        assert torch.equal(both(states), 2 * nn.functional.linear(states, *both[0].parameters()))
