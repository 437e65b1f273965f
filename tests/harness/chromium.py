"""Real browser without a window, driven by the W3C WebDriver protocol.

Knows nothing of zonedrive.  The protocol needs only a few JSON requests to Debian's chromedriver,
so a library is not worthwhile.  Of the untrusted certificates, the browser accepts only that of the
test's service.
"""

import base64
import hashlib
import json
import os
import re
import shutil
import ssl
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import httpx
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.harness.waiting import PATIENCE_SECONDS, eventually

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
START_SECONDS = 60.0
SCRIPT_SECONDS = 60  # of one script in a page, on a busy machine
DRIVERS = ("chromedriver", "chromium.chromedriver")


class Chromium:
    """Browser with a profile of its own."""

    def __init__(self, *trusted: str, display: str = "") -> None:
        """Start the browser, on an X display or without a screen.

        `trusted` are base URLs of services whose certificates it accepts.
        """
        self._display = display
        self._folder = Path(tempfile.mkdtemp(prefix="zdcr"))
        driver = next(found for name in DRIVERS if (found := shutil.which(name)))
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [driver, "--port=0", "--allowed-ips="],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, "DISPLAY": display} if display else None,
            )  # fmt: skip
        self._http = httpx.Client(timeout=4 * SCRIPT_SECONDS, trust_env=False)
        self._session = ""
        try:
            port = eventually(self._port, START_SECONDS, what="chromedriver says its port")
            self._http.base_url = httpx.URL(f"http://127.0.0.1:{port}")
            eventually(self._answers, START_SECONDS, what="chromedriver answers")
            self._begin([key_digest(url) for url in trusted])
        except BaseException:
            self.close()
            raise

    def _port(self) -> str:
        """Return the port that chromedriver has chosen, "" before it has printed it."""
        said = (self._folder / "log").read_text()
        assert self._process.poll() is None, said
        found = re.search(r"started successfully on port (\d+)", said)
        return found[1] if found else ""

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self._folder / "log").read_text()
        try:
            return bool(self._http.get("/status").json()["value"]["ready"])
        except httpx.TransportError:
            return False

    def _begin(self, keys: list[str]) -> None:
        options = {
            "args": [
                "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                "--disable-background-networking", "--disable-component-update", "--no-first-run",
                "--disable-background-timer-throttling", "--disable-renderer-backgrounding",
                "--disable-backgrounding-occluded-windows",
                # One process for the pages of all services: a new one costs as much as a page.
                "--disable-site-isolation-trials",
                "--disable-features=IsolateOrigins,site-per-process",
                "--no-proxy-server", "--window-size=900,700", f"--user-data-dir={self._folder}/p",
                f"--ignore-certificate-errors-spki-list={','.join(keys)}",
                *(["--window-position=0,560"] if self._display else ["--headless=new"]),
            ],
        }  # fmt: skip
        wanted = {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}
        said = self._http.post("/session", json={"capabilities": wanted})
        assert said.is_success, said.text
        self._session = said.json()["value"]["sessionId"]
        self._ask("POST", "/timeouts", {"script": SCRIPT_SECONDS * 1000})

    def close(self) -> None:
        """Stop the browser and all of its processes."""
        try:
            if self._session:
                self._http.delete(f"/session/{self._session}")
        finally:
            self._http.close()
            self._process.terminate()
            self._process.wait(60)
            shutil.rmtree(self._folder, ignore_errors=True)

    def leave(self) -> bytes:
        """Close the browser as a user does; return everything that it has left on the disk."""
        for window in self._ask("GET", "/window/handles"):
            self._ask("POST", "/window", {"handle": window})
            self._ask("DELETE", "/window")
        self._session = ""
        self._process.terminate()
        self._process.wait(60)
        files = (path for path in self._folder.rglob("*") if path.is_file())
        return b"".join(path.read_bytes() for path in files)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        said = self._http.request(method, f"/session/{self._session}{path}", json=body)
        value = said.json()["value"]
        assert said.is_success, value["message"]
        return value

    def _command(self, name: str, parameters: dict[str, Any]) -> None:
        """Run a command of the DevTools protocol."""
        self._ask("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    # --- what a person does ----------------------------------------------------------------------

    def go(self, address: str) -> None:
        """Open an address, and wait until the page has its style, which the driver may not do."""
        self._ask("POST", "/url", {"url": address})
        whole = "return document.readyState === 'complete'"
        eventually(lambda: self.run(whole), what=f"{address} is loaded")

    def tab(self, number: int) -> None:
        """Go to a tab, once it is open; the first one has the number 0."""

        def open_tabs() -> list[str]:
            found: list[str] = self._ask("GET", "/window/handles")
            return found[number:]

        (handle, *_) = eventually(open_tabs, what=f"tab {number} is open")
        self._ask("POST", "/window", {"handle": handle})

    def close_tab(self) -> None:
        """Close the tab, and go to the first one."""
        first, *_ = self._ask("DELETE", "/window")
        self._ask("POST", "/window", {"handle": first})

    def back(self) -> None:
        """Go back in the history."""
        self._ask("POST", "/back", {})

    def fill(self, name: str, text: str) -> None:
        """Replace the text of the field with that name, at once as with a pasted text."""
        field = f"document.querySelector({json.dumps(f'[name={name}]')})"
        script = f"{field}.focus(); {field}.select(); return document.activeElement === {field}"
        assert self.run(script), f"the field {name} takes no text"  # hidden or disabled
        self._command("Input.insertText", {"text": text})

    def paste(self) -> str:
        """Return the text that Ctrl+V enters: what is on the clipboard of the display."""
        self.go("data:text/html,<input name=here>")
        keys = {"text": "\ue009v"}
        self._ask("POST", f"/element/{self._find('input')}/value", keys)
        return str(self.run("return document.querySelector('input').value"))

    def click(self, selector: str) -> None:
        """Click on the element of a CSS selector; a live page may replace it meanwhile."""
        eventually(lambda: self._is_clicked(self._find(selector)), what=f"{selector} is clicked")

    def submit(self, selector: str) -> str:
        """Click on an element that opens another page; return that page's text, once it is loaded.

        Unlike `until` after `click`, never reads the page that has the element.
        """
        before = self._find("html")
        self.click(selector)
        whole = "return document.readyState === 'complete'"
        what = f"{selector} has opened a page"
        eventually(lambda: self._find("html") != before and self.run(whole), what=what)
        return self.text

    def _is_clicked(self, element: str) -> bool:
        """Click on an element; return False if the page no longer has it."""
        said = self._http.post(f"/session/{self._session}/element/{element}/click", json={})
        value = said.json()["value"]
        if said.is_success or value["error"] == "stale element reference":
            return bool(said.is_success)
        raise AssertionError(value["message"])

    def _find(self, selector: str) -> str:
        what = {"using": "css selector", "value": selector}
        return str(self._ask("POST", "/element", what)[ELEMENT])

    # --- what a person sees ----------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Return the address in the address bar."""
        return str(self._ask("GET", "/url"))

    @property
    def text(self) -> str:
        """Return the visible text of the page."""
        return str(self._ask("GET", f"/element/{self._find('body')}/text"))

    def until(self, words: str, seconds: float = PATIENCE_SECONDS) -> str:
        """Wait for a page with these words; return its text."""

        def shown() -> str:
            seen = self.text
            assert words in seen, seen
            return seen

        return eventually(shown, seconds, what=f"the browser shows {words!r}")

    def picture(self, path: Path) -> None:
        """Save a screenshot of the page."""
        path.write_bytes(base64.b64decode(self._ask("GET", "/screenshot")))

    def show_as(self, width: int, *, dark: bool) -> None:
        """Show pages in that width in pixels, in the light or dark scheme of a desktop."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        for command, parameters in (
            ("Emulation.setEmulatedMedia", {"features": [scheme]}),
            ("Emulation.setDeviceMetricsOverride", size),
        ):
            self._command(command, parameters)

    def save_files_in(self, folder: Path) -> None:
        """Save downloads in that folder."""
        parameters = {"behavior": "allow", "downloadPath": str(folder)}
        self._command("Browser.setDownloadBehavior", parameters)

    def choose_file(self, name: str, path: Path) -> None:
        """Choose a file for the field with that name."""
        field = self._find(f'[name="{name}"]')
        self._ask("POST", f"/element/{field}/value", {"text": str(path)})

    def run(self, script: str) -> Any:
        """Return the result of a script in the page, after waiting for a promise.

        Raises AssertionError if the script fails, or does not end because the page is loaded again.
        """
        code = (
            f"const done = arguments[0]; new Promise(said => said((() => {{ {script} }})()))"
            ".then(value => done([value]), error => done(String(error)))"
        )
        found = self._ask("POST", "/execute/async", {"script": code, "args": []})
        assert isinstance(found, list), found
        return found[0]


def key_digest(base_url: str) -> str:
    """Return the digest of a service's public key, in the form of the browser's option."""
    where = httpx.URL(base_url)
    pem = ssl.get_server_certificate((where.host, where.port or 443))
    key = x509.load_pem_x509_certificate(pem.encode()).public_key()
    data = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(data).digest()).decode()
