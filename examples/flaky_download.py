"""Download from a server that is often busy: each part is tried again as its policy says, and kept once it is there.

The server, which runs in this process, turns away whoever asks for part 2 the first time. With the argument `broken` it
turns away everybody who asks for part 3; the script gives up, and the next time goes on with that part alone.

    $ python examples/flaky_download.py broken
    part 1: 1,000 bytes
    Attempt 1 of task `download` failed; it is tried again in …: <HTTPError 503: 'Service Unavailable'>
    part 2: 2,000 bytes
    Attempt 1 of task `download` failed; it is tried again in …: <HTTPError 503: 'Service Unavailable'>
    Attempt 2 of task `download` failed; it is tried again in …: <HTTPError 503: 'Service Unavailable'>
    gave up: HTTP Error 503: Service Unavailable
    $ python examples/flaky_download.py
    part 3: 3,000 bytes
    all parts: 6,000 bytes

Runs are kept in `examples/.flowfn/flows.db`, or where FLOWFN_DB says.
"""

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.request import urlopen

from flowfn import RetryPolicy, entrypoint, task

refusals = {"/2": 1}


class Server(BaseHTTPRequestHandler):
    """Has parts at `/1`, `/2` and `/3`, when it has the time."""

    def do_GET(self) -> None:
        left = refusals.get(self.path, 0)
        refusals[self.path] = left - 1
        content = b"" if left > 0 else b"x" * 1000 * int(self.path[1:])
        self.send_response(503 if left > 0 else 200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)


@task(retry_policy=RetryPolicy(initial_interval=0.05, max_attempts=3))
def download(part: int) -> bytes:
    # A 503 is tried again; a 404 would not be.
    with urlopen(f"http://127.0.0.1:{server.server_port}/{part}", timeout=10) as response:
        content: bytes = response.read()
    print(f"part {part}: {len(content):,} bytes")
    return content


@entrypoint
def download_all(parts: int) -> int:
    return sum(len(download(part).result()) for part in range(1, parts + 1))


def main(how: str = "") -> None:
    if how == "broken":
        refusals["/3"] = 99
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        print(f"all parts: {download_all.run(3):,} bytes")
    except HTTPError as error:
        print(f"gave up: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
