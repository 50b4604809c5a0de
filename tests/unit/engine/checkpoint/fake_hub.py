"""A model hub on this machine: the few addresses that the hub library asks for, over plain HTTP."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlparse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class FakeHub:
    """One repository, `owner/model`, and what was asked of it."""

    files: dict[str, bytes]
    is_gated: bool = False
    stall_after_bytes: int | None = None
    """Weights stop arriving after this many bytes."""
    address: str = ""
    is_damaged: bool = False
    """Large files arrive with another last byte than their checksums say."""
    fetched: list[tuple[str, int]] = field(default_factory=list)
    """(file, first byte) of every download."""
    released: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    """Answer requests until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(hub: FakeHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Silence."""

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def _answer(self) -> None:
            path = urlparse(self.path).path
            if path.startswith("/api/models/owner/model/tree/"):
                self._json([{"type": "file", "path": n, "size": len(c), "oid": _etag(c)} for n, c in hub.files.items()])
            elif path.startswith("/api/models/owner/model"):
                siblings = [_sibling(name, content) for name, content in hub.files.items()]
                self._json({"id": "owner/model", "sha": COMMIT, "siblings": siblings})
            elif path.startswith("/owner/model/resolve/"):
                self._file(path, path.split("/", 5)[5])
            elif path.startswith("/storage/"):
                self._file(path, path.removeprefix("/storage/"))
            else:
                self._refuse(404, "RepoNotFound")

        def _lead_to_storage(self, name: str, content: bytes) -> None:
            """Large files lie on another host; their checksum and size come with the way there."""
            self.send_response(302)
            self.send_header("Location", f"{hub.address.replace('127.0.0.1', 'localhost')}/storage/{name}")
            self.send_header("X-Linked-ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Linked-Size", str(len(content)))
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _file(self, path: str, name: str) -> None:
            if hub.is_gated:
                self._refuse(403, "GatedRepo")
                return
            if name not in hub.files:
                self._refuse(404, "EntryNotFound")
                return
            content = hub.files[name]
            if name.endswith(".gguf") and not path.startswith("/storage/"):
                self._lead_to_storage(name, content)
                return
            span = self.headers.get("Range", "bytes=0-")
            first = int(span.removeprefix("bytes=").split("-")[0])
            self.send_response(206 if first else 200)
            self.send_header("ETag", f'"{_etag(content)}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", str(len(content) - first))
            if first:
                self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
            self.end_headers()
            if self.command == "GET":
                hub.fetched.append((name, first))
                if hub.is_damaged:
                    content = content[:-1] + b"?"
                self._send(content[first:], name)

        def _send(self, content: bytes, name: str) -> None:
            if hub.stall_after_bytes is not None and name.endswith((".safetensors", ".gguf")):
                self.wfile.write(content[: hub.stall_after_bytes])
                self.wfile.flush()
                hub.released.wait()
                return
            self.wfile.write(content)

        def _json(self, content: object) -> None:
            body = json.dumps(content).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _refuse(self, status: int, code: str) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("X-Error-Message", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

    return Handler


def _sibling(name: str, content: bytes) -> dict[str, object]:
    found: dict[str, object] = {"rfilename": name, "size": len(content), "blobId": _etag(content)}
    if name.endswith(".gguf"):
        found["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
    return found


def _etag(content: bytes) -> str:
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()
