"""A headless Chromium (Debian: `apt-get install chromium`), spoken to by its DevTools protocol."""

import base64
import contextlib
import json
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator

import websockets.sync.client

FLAGS = [
    "--headless=new", "--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--hide-scrollbars",
    "--remote-allow-origins=*", "--remote-debugging-port=0", "--no-first-run", "--disable-background-networking",
]  # fmt: skip


def chromium() -> str | None:
    """Where it is, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Page:
    """One open page: what it asked for, what it raised, and pictures of it."""

    def __init__(self, socket):
        self._socket, self._last = socket, 0
        self.requests: list[str] = []
        self.raised: list[str] = []

    def call(self, method: str, **params) -> dict:
        self._last += 1
        self._socket.send(json.dumps({"id": self._last, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=60))
            self._note(message)
            if message.get("id") == self._last:
                assert "error" not in message, message
                return message["result"]

    def _note(self, message: dict) -> None:
        params = message.get("params", {})
        if message.get("method") == "Network.requestWillBeSent" and not params["request"]["url"].startswith("data:"):
            self.requests.append(params["request"]["url"])
        if message.get("method") == "Runtime.exceptionThrown":
            self.raised.append(json.dumps(params["exceptionDetails"])[:500])

    def wait(self, seconds: float) -> None:
        """Let the page run, and note what it does."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                self._note(json.loads(self._socket.recv(timeout=left)))

    def evaluate(self, script: str):
        return self.call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def picture(self) -> bytes:
        """A PNG of what is seen."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])


@contextlib.contextmanager
def opened(path: pathlib.Path | str, width: int = 1280, height: int = 800) -> Iterator[Page]:
    """A page of a file or an address, in a browser of its own that ends with it."""
    where = path.resolve().as_uri() if isinstance(path, pathlib.Path) else path
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [chromium(), *FLAGS, f"--user-data-dir={folder}", f"--window-size={width},{height}", "about:blank"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            port = _port(process)
            with _socket(port) as socket:
                page = Page(socket)
                for domain in ("Page", "Runtime", "Network"):
                    page.call(f"{domain}.enable")
                page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                          mobile=width < 600)  # fmt: skip
                page.call("Page.navigate", url=where)
                yield page
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=20)


def _port(process: subprocess.Popen) -> int:
    """Where its DevTools listen, which it says on stderr."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("DevTools listening on"):
            return int(line.split(":")[2].split("/")[0])
    raise RuntimeError(f"chromium ended with {process.wait()} and opened no port")


def _socket(port: int):
    import urllib.request

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=20) as answer:
        target = next(t for t in json.load(answer) if t["type"] == "page")
    return websockets.sync.client.connect(target["webSocketDebuggerUrl"], max_size=None)
