"""Thrift's compact protocol, in which the headers of a Parquet file are: read, to be changed, and written.

A struct is a dict of the numbers of its fields; each is (kind, value), so that what is not understood is kept. A list
is (kind of its elements, values). Maps, sets and doubles are in no such header.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

__all__ = ["BINARY", "I32", "I64", "LIST", "STRUCT", "Struct", "decode", "encode", "varint"]

TRUE, FALSE, BYTE, I16, I32, I64 = range(1, 7)
BINARY, LIST, STRUCT = 8, 9, 12

Struct: TypeAlias = dict[int, tuple[int, Any]]


def varint(value: int) -> bytes:
    """Return an unsigned number, 7 bits a byte, the lowest first."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def encode(struct: Struct) -> bytes:
    """Turn a struct into bytes."""
    found, last = bytearray(), 0
    for number, (kind, value) in sorted(struct.items()):
        step = number - last
        found += bytes([step << 4 | kind]) if step < 16 else bytes([kind]) + _zigzag(number)
        found += _encoded(kind, value)
        last = number
    return bytes(found) + b"\0"


def _zigzag(value: int) -> bytes:
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)


def _encoded(kind: int, value: Any) -> bytes:
    if kind in (TRUE, FALSE):
        return b""
    if kind in (I16, I32, I64):
        return _zigzag(value)
    if kind == BINARY:
        return varint(len(value)) + bytes(value)
    if kind == LIST:
        of, values = value
        head = bytes([len(values) << 4 | of]) if len(values) < 15 else bytes([0xF0 | of]) + varint(len(values))
        return head + b"".join(_encoded(of, one) for one in values)
    if kind == STRUCT:
        return encode(value)
    raise ValueError(f"no Parquet header has a field of the kind {kind}")


def decode(data: bytes | memoryview) -> Struct:
    """Turn bytes that begin with a struct back."""
    at = 0

    def byte() -> int:
        nonlocal at
        at += 1
        return data[at - 1]

    def number() -> int:
        value = shift = 0
        while True:
            part = byte()
            value |= (part & 0x7F) << shift
            shift += 7
            if part < 0x80:
                return value

    def signed() -> int:
        value = number()
        return value >> 1 ^ -(value & 1)

    def binary() -> bytes:
        nonlocal at
        size = number()
        at += size
        return bytes(data[at - size : at])

    def values() -> tuple[int, list[Any]]:
        head = byte()
        count = head >> 4 if head < 0xF0 else number()
        return head & 0xF, [read[head & 0xF]() for _ in range(count)]

    def struct() -> Struct:
        found: Struct = {}
        last = 0
        while head := byte():
            last = last + (head >> 4) if head >> 4 else signed()
            found[last] = head & 0xF, read[head & 0xF]()
        return found

    read: dict[int, Callable[[], Any]] = {
        TRUE: lambda: True,
        FALSE: lambda: False,
        I16: signed,
        I32: signed,
        I64: signed,
        BINARY: binary,
        LIST: values,
        STRUCT: struct,
    }
    return struct()
