"""The WSGI environment of a request, without the ambiguities that WSGI's names of headers bring."""

import sys
from collections.abc import Mapping
from io import BytesIO
from typing import Any
from urllib.parse import unquote_to_bytes

from openrelay.web.refusals import BAD_REQUEST, Refusal

# A second one of these would be another request in disguise; which of the two counts, each reader guesses.
_ONCE = frozenset(
    {b"authorization", b"content-length", b"content-type", b"host", b"idempotency-key", b"x-forwarded-proto"}
    | {b"x-request-id"}
)
_UNPREFIXED = {"CONTENT_LENGTH", "CONTENT_TYPE"}
# They frame the message; the body is whole when the application sees it.
_FRAMING = frozenset({b"transfer-encoding", b"expect", b"content-length"})


def build_environ(scope: Mapping[str, Any], body: bytes) -> dict[str, Any]:
    """The WSGI environment of an ASGI request with that body.

    WSGI reads `X_Forwarded_For` and `X-Forwarded-For` as one variable, so a header with an underscore in its
    name is dropped, as nginx does. Raises Refusal for a second header where there can be one only.
    """
    server, client = scope["server"] or ("", None), scope["client"] or ("", 0)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(scope["raw_path"]).decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "SERVER_NAME": server[0],
        "SERVER_PORT": str(server[1] or ""),
        "REMOTE_ADDR": client[0],
        "REMOTE_PORT": str(client[1]),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope["scheme"],
        "wsgi.input": BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    if body:
        environ["CONTENT_LENGTH"] = str(len(body))
    for name, value in scope["headers"]:
        if b"_" in name or name in _FRAMING:
            continue
        variable = name.decode("latin-1").upper().replace("-", "_")
        if variable not in _UNPREFIXED:
            variable = f"HTTP_{variable}"
        text = value.decode("latin-1")
        if variable in environ:
            if name in _ONCE:
                raise Refusal(
                    BAD_REQUEST, f"The header {name.decode('latin-1')} is sent twice. Send it once."
                )
            environ[variable] += ("; " if name == b"cookie" else ",") + text
        else:
            environ[variable] = text
    return environ
