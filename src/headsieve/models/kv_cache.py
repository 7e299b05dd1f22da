"""A cache of keys and values that is appended to in place."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers.cache_utils import DynamicLayer

# Tokens for which there is room when a layer's cache has to be copied to grow.
_ROOM = 64


class RoomyLayer(DynamicLayer):  # type: ignore[misc]  # its module bears no types
    """What `transformers.DynamicCache` keeps of a layer, without copying all of it for each token.

    Keys and values are views of tensors that have room for the tokens to come.
    """

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Begin with nothing."""
        super().lazy_initialization(key_states, value_states)
        self.keys, self.values = key_states[..., :0, :], value_states[..., :0, :]
        self._whole: tuple[Tensor, Tensor] = self.keys, self.values

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append keys and values, and return all there are."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        old, end = self.keys.shape[-2], self.keys.shape[-2] + key_states.shape[-2]
        # Whoever chose among the rows has put others in their place.
        ours = self.keys.data_ptr() == self._whole[0].data_ptr()
        if not ours or end > self._whole[0].shape[-2]:
            self._whole = _with_room(self.keys, end), _with_room(self.values, end)
        for whole, new in zip(self._whole, (key_states, value_states), strict=True):
            whole[..., old:end, :] = new
        self.keys, self.values = (whole[..., :end, :] for whole in self._whole)
        return self.keys, self.values


def _with_room(states: Tensor, needed: int) -> Tensor:
    whole = states.new_empty((*states.shape[:-2], needed + _ROOM, states.shape[-1]))
    whole[..., : states.shape[-2], :] = states
    return whole
