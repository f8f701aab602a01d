"""A proxy on the loopback address, between MLflow's client and its server, that has faults."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


@dataclass(frozen=True)
class Fault:
    """What happens to requests.

    status: the answer in place of the server's; 0: the server's own; -1: none, the connection ends.
    after: whether the request is carried out all the same. seconds: that each takes longer.
    every: n for each n-th request. naming: what rejected requests have in their path or body.
    """

    status: int = 0
    after: bool = False
    seconds: float = 0.0
    every: int = 1
    naming: str = ""


PASS = Fault()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads, block_on_close, request_queue_size = True, False, 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that ends in the middle is what this is for."""


@dataclass
class Proxy:
    """Forwards to `to` (a port of this machine); `port` is its own.

    rejected: a fault that comes before the other. faults: requests that met each. seen: requests.
    """

    to: int
    port: int
    fault: Fault = PASS
    rejected: Fault | None = None
    faults: Counter[Fault] = field(default_factory=Counter)
    seen: int = 0
    _server: _Server | None = None
    _open: set[socket.socket] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._server = _Server(("127.0.0.1", self.port), self._handler())
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """As a server that is gone: nobody listens, and open connections end."""
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()
        self._server = None
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _meets(self, path: str, body: bytes) -> Fault:
        """The fault of this request."""
        with self._lock:
            self.seen += 1
            fault, rejected = self.fault, self.rejected
            if rejected and (rejected.naming in path or rejected.naming.encode() in body):
                fault = rejected
            self.faults[fault] += 1
            return fault if self.faults[fault] % fault.every == 0 else PASS

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                with proxy._lock:
                    proxy._open.add(self.connection)

            def finish(self) -> None:
                with proxy._lock:
                    proxy._open.discard(self.connection)
                super().finish()

            def log_message(self, format: str, *args: Any) -> None:
                """Quiet."""

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                fault = proxy._meets(self.path, body)
                time.sleep(fault.seconds)
                status, headers, content = 0, [], b""
                if not fault.status or fault.after:
                    status, headers, content = self._carried_out(body)
                if fault.status == -1:
                    self.close_connection = True
                    return
                if fault.status:
                    status, headers = fault.status, [("Content-Type", "application/json")]
                    content = json.dumps({"error_code": fault.status, "message": "made"}).encode()
                self.send_response(status)
                for name, value in headers:
                    if name.lower() not in HOP:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            def _carried_out(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
                link = http.client.HTTPConnection("127.0.0.1", proxy.to, timeout=60)
                headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP}
                try:
                    link.request(self.command, self.path, body or None, headers)
                    answer = link.getresponse()
                    return answer.status, answer.getheaders(), answer.read()
                finally:
                    link.close()

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _serve  # noqa: N815

        return Handler
