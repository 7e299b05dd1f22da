"""Plain values as lines of JSON, between a checker and a program that it does not trust.

Whatever bytes arrive, decoding gives objects of the built-in types and `Reference`s, or
`MalformedMessageError`: no class, method or comparison of the sender crosses over.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO

# Four megabytes of brackets become some hundred megabytes of lists, which the limits allow for.
LONGEST_MESSAGE = 4 << 20
MOST_OF_ITERATOR = 10_000
_LARGEST_JSON_INT = 2**53


class MalformedMessageError(Exception):
    """The other side sent what is no message, or ended before it answered."""


@dataclass(frozen=True)
class Reference:
    """Stands for an object that stays with the program."""

    number: int


def send(stream: BinaryIO, message: Any) -> None:
    """Write one message."""
    stream.write(json.dumps(message).encode() + b"\n")
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """Read one message; None at the end of the stream.

    Raises
    ------
    MalformedMessageError
        If it is too long, cut off, or no JSON.
    """
    line = stream.readline(LONGEST_MESSAGE + 1)
    if not line:
        return None
    if not line.endswith(b"\n"):
        raise MalformedMessageError("a message too long or cut off")
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise MalformedMessageError("a message that is not JSON") from error


def encode(value: Any, refer: Callable[[Any], int]) -> Any:
    """A value as JSON; objects that are no plain data become the numbers that `refer` gives."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        plain = int(value)
        return plain if abs(plain) < _LARGEST_JSON_INT else ["int", hex(plain)]
    if isinstance(value, float):
        return ["float", float.hex(value)]
    if isinstance(value, complex):
        return ["complex", [float.hex(value.real), float.hex(value.imag)]]
    if isinstance(value, (bytes, bytearray)):
        return ["bytes", value.hex()]
    for tag, kind in _COLLECTIONS.items():
        if isinstance(value, kind):
            return [tag, [encode(element, refer) for element in value]]
    if isinstance(value, dict):
        return ["dict", [[encode(key, refer), encode(value[key], refer)] for key in value]]
    if isinstance(value, Iterator):
        elements = list(islice(value, MOST_OF_ITERATOR + 1))
        if len(elements) > MOST_OF_ITERATOR:
            raise ValueError(f"an iterator of more than {MOST_OF_ITERATOR} elements")
        return ["iterator", [encode(element, refer) for element in elements]]
    if isinstance(value, type) and value in _TYPES.values():
        return ["type", value.__name__]
    return ["reference", refer(value)]


_COLLECTIONS: dict[str, type[Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}
_TYPES: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (bool, int, float, complex, str, bytes, dict)
} | _COLLECTIONS


def decode(message: Any) -> Any:
    """The plain value that a message stands for, references as `Reference`.

    Raises
    ------
    MalformedMessageError
        If it stands for none.
    """
    try:
        return _decode(message)
    except (KeyError, TypeError, ValueError, RecursionError, OverflowError) as error:
        raise MalformedMessageError("a message that stands for no value") from error


def _decode(message: Any) -> Any:
    if message is None or isinstance(message, (bool, str, int)):
        return message
    tag, content = message
    if tag == "dict":
        return {_decode(key): _decode(value) for key, value in content}
    if tag in _COLLECTIONS:
        return _COLLECTIONS[tag](_decode(element) for element in content)
    if tag == "iterator":
        return iter([_decode(element) for element in content])
    if tag == "complex":
        real, imaginary = content
        return complex(float.fromhex(real), float.fromhex(imaginary))
    return _SCALARS[tag](content) if tag in _SCALARS else _unknown(tag)


def _unknown(tag: Any) -> Any:
    raise ValueError(tag)


_SCALARS: dict[str, Callable[[Any], Any]] = {
    "int": lambda text: int(text, 16),
    "float": float.fromhex,
    "bytes": bytes.fromhex,
    "type": lambda name: _TYPES[name],
    "reference": lambda number: Reference(int(number)),
}
