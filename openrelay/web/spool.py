"""The files of answers that wait for their readers: counted for the process and for each client."""

import tempfile
from collections import Counter
from threading import Lock
from typing import IO

from openrelay.web import refusals
from openrelay.web.refusals import Refusal

# A client holds at most this part of the files and of the bytes.
_PART_OF_ONE_CLIENT = 4


class Spool:
    """Bounds the answers that are in files: how many, and how many bytes on disk."""

    def __init__(self, files: int, size: int) -> None:
        self.files = files
        self.size = size
        self.open_files: Counter[str] = Counter()
        self.held_bytes: Counter[str] = Counter()
        self.lock = Lock()

    def create(self, client: str) -> "SpoolFile":
        """A new temporary file for an answer to `client`. Raises Refusal when there are too many."""
        self._count_file(client)
        try:
            return SpoolFile(self, client, tempfile.TemporaryFile())
        except BaseException:
            self.release(client, 0)
            raise

    def adopt(self, client: str, file: IO[bytes]) -> "SpoolFile":
        """An answer to `client` that is a file already. Raises Refusal when there are too many."""
        self._count_file(client)
        return SpoolFile(self, client, file)

    def reserve(self, client: str, size: int) -> None:
        """Count more bytes of a file. Raises Refusal when there are too many."""
        with self.lock:
            total = self.held_bytes.total() + size
            if total > self.size or self.held_bytes[client] + size > self.size // _PART_OF_ONE_CLIENT:
                raise _too_many()
            self.held_bytes[client] += size

    def release(self, client: str, size: int) -> None:
        """Count a file and its bytes no more."""
        with self.lock:
            for counter, number in ((self.open_files, 1), (self.held_bytes, size)):
                counter[client] -= number
                if counter[client] <= 0:
                    del counter[client]

    def _count_file(self, client: str) -> None:
        with self.lock:
            most = max(1, self.files // _PART_OF_ONE_CLIENT)
            if self.open_files.total() >= self.files or self.open_files[client] >= most:
                raise _too_many()
            self.open_files[client] += 1


class SpoolFile:
    """A file with an answer, until it is sent."""

    def __init__(self, spool: Spool, client: str, file: IO[bytes]) -> None:
        self.spool = spool
        self.client = client
        self.file = file
        self.size = 0
        self.is_open = True

    def write(self, piece: bytes) -> None:
        """Append a piece. Raises Refusal when the spool is full, OSError when the disk is."""
        self.spool.reserve(self.client, len(piece))
        self.size += len(piece)
        self.file.write(piece)

    def rewind(self) -> None:
        """Go to the beginning, to be read."""
        self.file.seek(0)

    def read(self, size: int) -> bytes:
        """The next bytes; empty at the end."""
        return self.file.read(size)

    def close(self) -> None:
        """Close the file and free its space. Raises OSError for bytes that a full disk did not take."""
        if not self.is_open:
            return
        self.is_open = False
        try:
            self.file.close()
        finally:
            self.spool.release(self.client, self.size)


def _too_many() -> Refusal:
    return Refusal(
        refusals.TRY_AGAIN,
        "Too many large answers wait to be read. Read those that you asked for, then try again.",
    )
