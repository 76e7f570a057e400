"""`goalgrid report --serve`: serve a live page of a grid on this machine. It only reads the runs folder."""

import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import Any

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import Trial
from goalgrid.grid.messages import Wording, tell, warn
from goalgrid.grid.store.home import State
from goalgrid.reports import report
from goalgrid.results.analysis.documents import Document
from goalgrid.results.export.report_page import Measured
from goalgrid.state.grid_state import GridState

SECONDS = 1.0
"""Seconds between two checks of the folder."""

SILENT_SECONDS = 10.0
"""Seconds after which an idle connection is closed."""

MOST = 64
"""Maximum number of open connections; one more closes the oldest."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; connect-src 'self'"


class LivePage:
    """A page that follows the runs folder: its state every second, its results whenever another trial is done.

    Results take seconds to read and draw, so another thread reads them, and the state does not wait for them.
    """

    def __init__(
        self, grid_state: GridState, beside: Callable[[], Document | None], paper: str | None, wording: Wording = str
    ) -> None:
        self._trouble, self._wording = "", wording
        self._grid_state, self._beside, self._paper = grid_state, beside, paper
        self._measured, self._read = Measured(), 0
        self._done: list[Trial] | None = None
        self._reading: Future[Measured] | None = None
        self._standing: dict[str, Any] | None = None
        self._readers = ThreadPoolExecutor(1)
        self.current = b"", ""
        """The page and its ETag, in one tuple, since requests may read them while they change."""

    def follow(self) -> None:
        """Read the folder now, then keep following it in a daemon thread."""
        self._look()
        threading.Thread(target=self._follow, name="report", daemon=True).start()

    def _follow(self) -> None:
        while True:
            time.sleep(SECONDS)
            seen = self._grid_state
            try:
                self._grid_state = GridState.of(seen.grid, seen.home, seen.only)
                self._look()
            except UserError as error:  # a file that cannot be read now: the page stays as it was
                if str(error) != self._trouble:
                    warn(error.text, error.step)
                self._trouble = str(error)

    def _look(self) -> None:
        """Start reading results if more trials are done, take results that have been read, and render any change."""
        if self._reading and self._reading.done():
            reading, self._reading = self._reading, None
            self._measured, self._read, self._standing = reading.result(), self._read + 1, None
        if self._reading is None and self._done != (done := self._grid_state.having(State.DONE)):
            self._done, self._reading = done, self._readers.submit(report.read, self._grid_state)
        if (standing := report.standing_of(self._grid_state, self._wording)) != self._standing:
            self._standing = standing
            html = report.render(
                self._grid_state,
                measured=self._measured,
                live=self._read + 1,
                beside=self._beside(),
                paper=self._paper,
                wording=self._wording,
            )
            self.current = html.encode(), f'"{secrets.token_hex(8)}"'


class _Server(ThreadingHTTPServer):
    """Server with a bounded number of connections, each in a thread, so that idle ones cannot block others."""

    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._open = deque[Any]()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.append(request)
        if len(self._open) > MOST:
            with suppress(OSError):  # its thread then reads the end, and closes it
                self._open.popleft().shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with suppress(ValueError):
            self._open.remove(request)
        super().shutdown_request(request)


def serve(page: LivePage, host: str, port: int) -> None:
    """Serve the page until the process ends; on interfaces other than loopback, under a secret path.

    Raises UserError if the address or the port cannot be used.
    """
    try:
        here = ip_address(host).is_loopback
        server = _Server((host, port), _handler(page, path := "/" if here else f"/{secrets.token_urlsafe(16)}/"))
    except ValueError:
        raise UserError(f"--host must be an IP address, e.g. 127.0.0.1 or 0.0.0.0, not {host!r}") from None
    except (OSError, OverflowError) as error:
        raise UserError(
            f"port {port} of {host} cannot be used: {str(error).rstrip('.')}. --port 0 picks a free one."
        ) from None
    port = server.server_address[1]
    name = socket.gethostname()
    tell(f"http://{host if here else name}:{port}{path}   (Ctrl-C ends it)")
    if here:
        tell(f"from another machine: ssh -L {port}:127.0.0.1:{port} {name}, then open the same address there")
    page.follow()
    server.serve_forever()


def _handler(page: LivePage, path: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers one path, and only for local host names, so that DNS rebinding by a foreign page fails."""

        timeout = SILENT_SECONDS

        def do_GET(self) -> None:
            names = {"localhost", "127.0.0.1", "[::1]"}
            host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
            if self.path != path or (path == "/" and host not in names):
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            html, mark = page.current
            same = self.headers.get("If-None-Match") == mark
            self.send_response(HTTPStatus.NOT_MODIFIED if same else HTTPStatus.OK)
            self.send_header("ETag", mark)
            if not same:
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(html)))
                self.send_header("Content-Security-Policy", POLICY)
                self.send_header("Referrer-Policy", "no-referrer")
            self.end_headers()
            if not same:
                self.wfile.write(html)

        def log_message(self, *_: object) -> None:
            """Log no requests."""

    return Handler
