"""A web server in a thread of this process, for downloads that need no network."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Site:
    """What is served: name -> content; of a name in `broken` only half of what was promised is sent."""

    url: str
    files: dict[str, bytes]
    broken: set[str]
    asked: list[str] = field(default_factory=list)  # every name that was asked for, in order


@contextmanager
def serving(files: Mapping[str, bytes], broken: frozenset[str] = frozenset()) -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.lstrip("/")
            site.asked.append(name)
            if name not in site.files:
                self.send_error(404)
                return
            content = site.files[name]
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if name in site.broken else content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site = Site(f"http://127.0.0.1:{server.server_address[1]}/", dict(files), set(broken))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
