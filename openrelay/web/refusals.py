"""Answers that the web server gives before Django sees the request: in the API's error shape."""

import json

# The codes are those of openrelay.core.errors and openrelay.api.parser.
BAD_REQUEST = (400, "VALIDATION_ERROR")
TIMEOUT = (408, "REQUEST_TIMEOUT")
TOO_LARGE = (413, "PAYLOAD_TOO_LARGE")
HEADERS_TOO_LARGE = (431, "HEADERS_TOO_LARGE")
TRY_AGAIN = (503, "TRY_AGAIN")
FAILED = (500, "INTERNAL_ERROR")

Headers = list[tuple[bytes, bytes]]


class Refusal(Exception):
    """A request that is refused: the kind, the sentence, and whether the connection ends with it."""

    def __init__(self, kind: tuple[int, str], message: str, *, close: bool = False) -> None:
        super().__init__(message)
        self.status, self.code = kind
        self.message = message
        self.close = close
        # The id of the request, where it was told to the log.
        self.request_id: bytes | None = None

    def render(self) -> tuple[int, Headers, bytes]:
        """Status, headers and body of the answer."""
        body = json.dumps({"error": self.message, "code": self.code}, separators=(",", ":")).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        if self.status == 503:
            headers.append((b"retry-after", b"1"))
        if self.close:
            headers.append((b"connection", b"close"))
        return self.status, headers, body
