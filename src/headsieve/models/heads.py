"""Attention heads and larger units: their names, and where each writes in a loaded model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, get_args

from headsieve.errors import HeadsieveError

Units = Literal["heads", "kv-groups", "attention-layers", "mlp-layers"]
UNITS: tuple[Units, ...] = get_args(Units)

_HEAD_NAME = re.compile(r"L(\d+)H(\d+)", re.IGNORECASE)
_UNIT_NAME = re.compile(r"L(\d+)(?:G(\d+)|A|M)", re.IGNORECASE)
_LETTERS: dict[Units, str] = {"kv-groups": "G", "attention-layers": "A", "mlp-layers": "M"}
# One and many of each kind, in words.
NOUNS: dict[Units, tuple[str, str]] = {
    "heads": ("head", "heads"),
    "kv-groups": ("KV group", "KV groups"),
    "attention-layers": ("attention layer", "attention layers"),
    "mlp-layers": ("MLP layer", "MLP layers"),
}


_HOW_TO_WRITE = (
    "write layer and head as in L13H4, a KV group as L13G1, a layer's attention or MLP as L13A or "
    "L13M."
)


class Head(NamedTuple):
    """One query head, written ``L13H4``: layer 13, head 4, both counted from 0."""

    layer: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here

    def __str__(self) -> str:
        return f"L{self.layer}H{self.index}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """Read a head from its name.

        Raises
        ------
        HeadsieveError
            If the text is not of the form ``L13H4``.
        """
        match = _HEAD_NAME.fullmatch(text.strip())
        if match is None:
            raise HeadsieveError(f"{text!r} is not a head; {_HOW_TO_WRITE}")
        return cls(int(match[1]), int(match[2]))


class Unit(NamedTuple):
    """A unit larger than a head, which is searched for and knocked out in the same way.

    A KV group, written ``L13G1``, is all query heads that share a key-value head; an attention
    layer, ``L13A``, is the whole output of a layer's attention, and an MLP layer, ``L13M``, that
    of its feed-forward part, biases included.
    """

    layer: int
    index: int  # type: ignore[assignment]  # as in Head
    kind: Units

    def __str__(self) -> str:
        letter = _LETTERS[self.kind]
        return f"L{self.layer}{letter}{self.index if letter == 'G' else ''}"


AnyUnit = Head | Unit


def parse_unit(text: str) -> AnyUnit:
    """Read a head, a KV group or a layer from its name.

    Raises
    ------
    HeadsieveError
        If the text is no such name.
    """
    match = _UNIT_NAME.fullmatch(text.strip())
    if match is None:
        return Head.parse(text)
    letter = text.strip()[len(match[1]) + 1].upper()
    kind = next(kind for kind, own in _LETTERS.items() if own == letter)
    return Unit(int(match[1]), int(match[2] or 0), kind)


def require_units(word: str) -> None:
    """Refuse a word that names no units.

    Raises
    ------
    HeadsieveError
    """
    if word not in UNITS:
        raise HeadsieveError(f"There are no units {word!r}; use {', '.join(UNITS)}.")


def kind_of(unit: AnyUnit | str) -> Units:
    """What kind of unit something is, by its name or itself."""
    if isinstance(unit, str):
        unit = parse_unit(unit)
    return unit.kind if isinstance(unit, Unit) else "heads"


@dataclass(frozen=True)
class Site:
    """A place in the model where units write.

    Attributes
    ----------
    layer : int
    module : str
        Name of the module whose input or output is zeroed.
    columns : slice
        The units that write there, in a mask.
    width : int or None
        Numbers of the module's input that belong to one unit; None: the only unit is the module's
        whole output.
    """

    layer: int
    module: str
    columns: slice
    width: int | None


@dataclass(frozen=True)
class LayerMLP:
    """The feed-forward part of one layer: the modules whose outputs, together, are its output."""

    layer: int
    modules: tuple[str, ...]


@dataclass(frozen=True)
class LayerHeads:
    """The heads of one layer.

    Attributes
    ----------
    layer : int
    heads : int
        Query heads.
    head_dim : int
        Columns of the projection's input that belong to one head.
    kv_heads : int
        Key-value heads; ``heads // kv_heads`` query heads share one.
    projection : str
        Name of the attention output projection among the model's modules.
    """

    layer: int
    heads: int
    head_dim: int
    kv_heads: int
    projection: str


class Geometry:
    """All units of a model in one order: by layer, then by index.

    A mask over the model is a row of ``len(geometry)`` zeros and ones in this order.

    Parameters
    ----------
    layers : sequence of LayerHeads
        The layers whose heads can be knocked out.
    uncovered : sequence of int
        Layers without such heads (linear attention, state space).
    mlps : sequence of LayerMLP
        The feed-forward parts of all layers that have one.
    units : {"heads", "kv-groups", "attention-layers", "mlp-layers"}
        What the columns of a mask stand for.

    Attributes
    ----------
    heads : tuple of Head or Unit
        The units.
    sites : tuple of Site
        Where they write.

    Raises
    ------
    HeadsieveError
        If there are no such units.
    """

    def __init__(
        self,
        layers: Sequence[LayerHeads],
        uncovered: Sequence[int] = (),
        mlps: Sequence[LayerMLP] = (),
        units: Units = "heads",
    ) -> None:
        self.layers = tuple(layers)
        self.uncovered = tuple(uncovered)
        self.mlps = tuple(mlps)
        self.units = units
        heads: list[AnyUnit] = []
        sites: list[Site] = []
        for layer, count, modules, width in self._parts():
            columns = slice(len(heads), len(heads) + count)
            sites += [Site(layer, module, columns, width) for module in modules]
            if units == "heads":
                heads += [Head(layer, index) for index in range(count)]
            else:
                heads += [Unit(layer, index, units) for index in range(count)]
        if not heads:
            raise HeadsieveError(f"headsieve finds no {NOUNS[units][1]} in this architecture.")
        self.heads = tuple(heads)
        self.sites = tuple(sites)
        self._column = {head: column for column, head in enumerate(self.heads)}

    def _parts(self) -> Iterator[tuple[int, int, tuple[str, ...], int | None]]:
        """Each layer's number, units, modules and numbers a unit (None: the whole output)."""
        if self.units == "mlp-layers":
            for mlp in self.mlps:
                yield mlp.layer, 1, mlp.modules, None
            return
        for layer in self.layers:
            whole = layer.heads * layer.head_dim
            if self.units == "attention-layers":
                yield layer.layer, 1, (layer.projection,), None
                continue
            count = layer.heads if self.units == "heads" else layer.kv_heads
            yield layer.layer, count, (layer.projection,), whole // count

    def of(self, units: Units) -> Geometry:
        """The same model in other units.

        Raises
        ------
        HeadsieveError
            If there are no such units, or the model has none.
        """
        require_units(units)
        if units == self.units:
            return self
        return Geometry(self.layers, self.uncovered, self.mlps, units)

    def units_of(self, names: Iterable[AnyUnit | str]) -> Units:
        """What kind of units some are; of none, the kind of this geometry.

        Raises
        ------
        HeadsieveError
            If they are of several kinds, or a name is none of a unit.
        """
        if isinstance(names, (str, Head, Unit)) or not isinstance(names, Iterable):
            raise HeadsieveError(f"Give heads as a list, as in ['L13H4'], not {names!r}.")
        kinds = dict.fromkeys(
            kind_of(name) for name in names if isinstance(name, (str, Head, Unit))
        )
        if len(kinds) > 1:
            raise HeadsieveError(
                f"{' and '.join(NOUNS[kind][1] for kind in kinds)} cannot be mixed; name units of "
                "one kind."
            )
        return next(iter(kinds), self.units)

    def __len__(self) -> int:
        return len(self.heads)

    def column(self, head: AnyUnit | str) -> int:
        """Position of a unit in a mask.

        Raises
        ------
        HeadsieveError
            If that is no unit, or the model has no such unit.
        """
        if isinstance(head, str):
            head = parse_unit(head)
        if not isinstance(head, (Head, Unit)):
            raise HeadsieveError(f"{head!r} is not a head; {_HOW_TO_WRITE}")
        try:
            return self._column[head]
        except KeyError:
            raise HeadsieveError(
                f"The model has no {NOUNS[kind_of(head)][0]} {head}; {self.describe()}."
            ) from None

    def columns(self, heads: Iterable[AnyUnit | str]) -> list[int]:
        """Positions of several units in a mask, in their order and without repetition.

        Raises
        ------
        HeadsieveError
            If the model lacks one of them, or if a single one is given in place of several.
        """
        if isinstance(heads, (str, Head, Unit)) or not isinstance(heads, Iterable):
            raise HeadsieveError(f"Give heads as a list, as in ['L13H4'], not {heads!r}.")
        return list(dict.fromkeys(self.column(head) for head in heads))

    def to_dict(self) -> dict[str, Any]:
        """Layers with their heads, the total, and the layers not covered, for JSON."""
        return {
            "heads": sum(layer.heads for layer in self.layers),
            "layers": [asdict(layer) for layer in self.layers],
            "uncovered": list(self.uncovered),
        }

    def describe(self) -> str:
        """One clause on the shape, as in ``layers 0 to 29 have 9 heads each``."""
        if self.units != "heads":
            return f"its {NOUNS[self.units][1]} are {self.heads[0]} to {self.heads[-1]}"
        counts = {layer.heads for layer in self.layers}
        numbers = [layer.layer for layer in self.layers]
        if len(counts) == 1 and numbers == list(range(numbers[0], numbers[-1] + 1)):
            return f"layers {numbers[0]} to {numbers[-1]} have {counts.pop()} heads each"
        return "its heads are " + ", ".join(
            f"L{layer.layer}H0-L{layer.layer}H{layer.heads - 1}" for layer in self.layers
        )
