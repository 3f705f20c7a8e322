"""A worker process: one event loop that speaks HTTP, and the threads that run Django."""

import asyncio
import contextlib
import logging
import os
import socket
import sys
import time

import uvicorn

from openrelay.web.application import Application
from openrelay.web.connections import Connections
from openrelay.web.options import Options, allowed_connections
from openrelay.web.protocol import Protocol
from openrelay.web.refusals import Refusal

# The parent asks every second; after so many without a question it is not watching.
PARENT_SILENT_SECONDS = 30
_PAUSE_SECONDS = 0.5


class Worker(uvicorn.Server):
    """uvicorn's server on a socket that it shares with the other workers, watched by their parent.

    All workers accept from one queue of connections, so a worker that hangs takes none away from the others.
    """

    def __init__(
        self, config: uvicorn.Config, options: Options, listener: socket.socket, control: socket.socket
    ):
        super().__init__(config)
        self.options = options
        self.limit = allowed_connections(options)
        self.listener = listener
        self.control = control
        self.asked_at = time.monotonic()
        self.table = Connections()
        self.tasks: set[asyncio.Task[object]] = set()
        self.application: Application

    def problem(self) -> str:
        """Why the parent is to be replaced; empty while it watches."""
        if time.monotonic() - self.asked_at > PARENT_SILENT_SECONDS:
            return "The parent process of the web workers does not answer."
        return ""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        loop = asyncio.get_running_loop()
        self.listener.setblocking(False)
        self.control.setblocking(False)
        loop.add_reader(self.control, self._answer_parent)
        loop.add_reader(self.listener, self._accept)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().remove_reader(self.listener)
        self.listener.close()
        await super().shutdown()

    async def on_tick(self, counter: int) -> bool:
        if counter % 5 == 0:
            self.table.sweep()
        return await super().on_tick(counter)

    def _answer_parent(self) -> None:
        try:
            asked = self.control.recv(64)
        except BlockingIOError:
            return
        if not asked:
            # It has ended, and nobody would start this worker again.
            asyncio.get_running_loop().remove_reader(self.control)
            self.should_exit = True
            return
        self.asked_at = time.monotonic()
        if not self.application.problem():
            with contextlib.suppress(OSError):
                self.control.send(b".")

    def _accept(self) -> None:
        # One at a time: a worker that is busy leaves the next one to the others.
        loop = asyncio.get_running_loop()
        try:
            connection, _ = self.listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            # Out of files or memory: idle connections give way, and the queue of the kernel keeps the rest.
            logging.getLogger(__name__).error("a connection could not be accepted: %s", error)
            self.table.make_room()
            loop.remove_reader(self.listener)
            loop.call_later(_PAUSE_SECONDS, self._accept_again)
            return
        if len(self.server_state.connections) >= self.limit and not self.table.make_room():
            connection.close()
            return
        connection.setblocking(False)
        task = loop.create_task(loop.connect_accepted_socket(self._protocol, connection))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _accept_again(self) -> None:
        if not self.should_exit:
            asyncio.get_running_loop().add_reader(self.listener, self._accept)

    def _protocol(self) -> Protocol:
        return Protocol(
            options=self.options,
            table=self.table,
            config=self.config,
            server_state=self.server_state,
            app_state={},
        )


def main() -> None:
    """Serve on the sockets whose descriptors are the arguments: the listener, and the one to the parent."""
    options = Options.read()
    os.environ.setdefault("DATABASE_POOL_SIZE", str(options.threads))
    listener, control = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    from django.conf import settings  # noqa: PLC0415  (after the pool's size is known)

    from openrelay.wsgi import application  # noqa: PLC0415

    # After the application has set Django up.
    from openrelay.api.handler import translate  # noqa: PLC0415  isort: skip

    def refusal_of(error: Exception, request_id: str) -> Refusal:
        """The API's own answer to an error that came up after the views, in a list that is being read."""
        known = translate(error, request_id)
        return Refusal((known.status, known.code), known.message)

    config = uvicorn.Config(
        "",
        loop="asyncio",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=options.idle_seconds,
        timeout_graceful_shutdown=options.stop_seconds,
    )
    worker = Worker(config, options, listener, control)
    worker.application = Application(
        application, options, settings.TRUSTED_PROXIES, worker.problem, refusal_of
    )
    config.app = worker.application
    # The log has nothing of what a client sends.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    worker.run()


if __name__ == "__main__":
    main()
