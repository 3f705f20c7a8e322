"""Bodies with long runs of one and the same piece: length, bytes and gzip, never held whole.

Ten thousand alike nodes are ten thousand alike entries of a list. Such a run is compressed once by the block,
and its block is repeated: a deflate block may refer to what stands before it, which here is always the same.
The checksum of the whole follows from those of the parts by arithmetic.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache

BLOCK = 256  # pieces
_WINDOW = 32768
_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_END = b"\x03\x00"  # a last, empty block

Part = tuple[bytes, int]


def length(parts: Sequence[Part]) -> int:
    """How many bytes the parts (a piece, and how often) come to."""
    return sum(len(piece) * times for piece, times in parts)


def chunks(parts: Sequence[Part]) -> Iterator[bytes]:
    """The bytes, in portions."""
    for piece, times in parts:
        whole, rest = divmod(times, BLOCK)
        if whole:
            block = piece * BLOCK
            for _ in range(whole):
                yield block
        if rest:
            yield piece * rest


def gzipped(parts: Sequence[Part]) -> bytes:
    """All of it as one gzip stream."""
    out, checksum, plain = [_HEADER], 0, bytearray()

    def flush() -> None:
        nonlocal checksum
        if plain:
            data = bytes(plain)
            out.append(_deflate(data))
            checksum = _joined(checksum, zlib.crc32(data), len(data))
            plain.clear()

    for piece, times in parts:
        whole, rest = divmod(times, BLOCK)
        if whole > 1:
            flush()
            first, again, crc = _blocks(piece)
            out += [first, again * (whole - 1)]
            checksum = _joined(
                checksum, _repeated(crc, len(piece) * BLOCK, whole), len(piece) * BLOCK * whole
            )
        else:
            rest = times
        plain += piece * rest
    flush()
    return b"".join([*out, _END, struct.pack("<II", checksum, length(parts) & 0xFFFFFFFF)])


def _deflate(data: bytes, before: bytes = b"") -> bytes:
    """Blocks that end on a byte and are not the last; they may refer to `before`, which precedes them."""
    packer = (
        zlib.compressobj(6, zlib.DEFLATED, -15, zdict=before)
        if before
        else zlib.compressobj(6, zlib.DEFLATED, -15)
    )
    return packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)


@lru_cache(maxsize=256)
def _blocks(piece: bytes) -> tuple[bytes, bytes, int]:
    """A block of the piece compressed, the same where one precedes it, and a block's checksum."""
    block = piece * BLOCK
    return _deflate(block), _deflate(block, block[-_WINDOW:]), zlib.crc32(block)


# CRC-32 of a concatenation, from those of its parts: appending n bytes multiplies by x^(8n) modulo the
# polynomial.

_POLYNOMIAL = 0xEDB88320


def _times(a: int, b: int) -> int:
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product


def _powers() -> list[int]:
    """x to the power of 2^k, for each k."""
    found = [1 << 30]
    while len(found) < 64:
        found.append(_times(found[-1], found[-1]))
    return found


_POWERS = _powers()


@lru_cache(maxsize=1024)
def _shift(size: int) -> int:
    product, bit = 1 << 31, 3
    while size:
        if size & 1:
            product = _times(_POWERS[bit], product)
        size, bit = size >> 1, bit + 1
    return product


def _joined(one: int, other: int, size: int) -> int:
    """The checksum of what `one` is of, followed by `size` bytes that `other` is of."""
    return _times(_shift(size), one) ^ other


def _repeated(crc: int, size: int, times: int) -> int:
    """The checksum of `size` bytes, that `crc` is of, repeated."""
    found, doubled, bytes_ = 0, crc, size
    while times:
        if times & 1:
            found = _joined(found, doubled, bytes_)
        doubled, bytes_ = _joined(doubled, doubled, bytes_), bytes_ * 2
        times >>= 1
    return found
