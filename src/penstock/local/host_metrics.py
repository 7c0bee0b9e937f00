"""One metrics page for all brokers of a host: their pages, with the broker as a label of every sample.

A page in Prometheus's text format has the samples of a metric in one block behind its HELP and TYPE lines. So the pages
are taken apart and joined metric by metric. `penstock_host_node_up` says which brokers have answered: one that does not
is missing from the other metrics.
"""

from __future__ import annotations

import re
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
UP: Final = "penstock_host_node_up"
ANSWER_S: Final = 5.0
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(\{)?")


def joined(pages: Mapping[int, str | None]) -> str:
    """The page of a host, of the pages of its nodes; None for a node that did not answer."""
    heads: dict[str, dict[str, str]] = {}
    samples: dict[str, list[str]] = {}
    for node_id, page in pages.items():
        family = ""
        for line in (page or "").splitlines():
            if line.startswith("#"):
                _, kind, name, *_ = [*line.split(" ", 3), "", ""]
                if kind in ("HELP", "TYPE"):
                    family = name
                    heads.setdefault(family, {}).setdefault(kind, line)
                    samples.setdefault(family, [])
            elif line.strip():
                samples.setdefault(family, []).append(labelled(line, node_id))
    lines = [f"# HELP {UP} Whether a node of this host has answered with its metrics.", f"# TYPE {UP} gauge"]
    lines += [f'{UP}{{node="{node_id}"}} {int(page is not None)}' for node_id, page in pages.items()]
    for family, found in samples.items():
        lines += [heads[family][kind] for kind in ("HELP", "TYPE") if kind in heads.get(family, {})]
        lines += found
    return "\n".join(lines) + "\n"


def labelled(sample: str, node_id: int) -> str:
    match = _SAMPLE.match(sample)
    if match is None:
        return sample
    name, has_labels = match.groups()
    rest = sample[match.end() :]
    if not has_labels:
        return f'{name}{{node="{node_id}"}}{rest}'
    return f'{name}{{node="{node_id}"{"" if rest.startswith("}") else ","}{rest}'


def fetch_pages(urls: Mapping[int, str]) -> dict[int, str | None]:
    """The pages of all nodes, at the same time: a node that hangs delays the others by one time-out at most."""
    with ThreadPoolExecutor(max_workers=max(1, len(urls))) as threads:
        return dict(zip(urls, threads.map(_fetch, urls.values()), strict=True))


def _fetch(url: str) -> str | None:
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_S) as answer:
            content: bytes = answer.read()
    except (urllib.error.URLError, OSError):
        return None
    return content.decode()


class HostMetrics:
    """Serves the page on a thread of its own."""

    def __init__(self, address: tuple[str, int], pages: Callable[[], Mapping[int, str | None]]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.split("?", 1)[0] != "/metrics":
                    self.send_error(404, "the page is /metrics")
                    return
                content = joined(pages()).encode()
                self.send_response(200)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Requests are not logged."""

        self._server = ThreadingHTTPServer(address, Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="host-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def urls_of(ports: Iterable[tuple[int, int]]) -> dict[int, str]:
    return {node_id: f"http://127.0.0.1:{port}/metrics" for node_id, port in ports}
