"""A headless Chromium, driven by the W3C WebDriver protocol through chromedriver: what the tests of the console need of
it, and no more.

Where there is no Chromium with its driver (Debian: `apt install chromium chromium-driver`), tests skip and say so.
"""

import base64
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

__all__ = ["Browser", "running_browser"]

PATIENCE_SECONDS = 60.0
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Down": "\ue015", "Up": "\ue013", "Right": "\ue014", "Left": "\ue012"}
MISSING = "no Chromium with chromedriver is installed (Debian: apt install chromium chromium-driver)"


class Browser:
    """One window. Every method waits until what it asks for is there, for a minute at most."""

    def __init__(self, driver: httpx.Client, session: str) -> None:
        self._driver = driver
        self._path = f"/session/{session}"

    def command(self, method: str, path: str, **body: Any) -> Any:
        """The value that a command answers. Raises `AssertionError` with what the browser says is wrong."""
        answer = self._driver.request(method, self._path + path, json=body if method == "POST" else None)
        value = answer.json()["value"]
        assert answer.status_code == 200, value
        return value

    def devtools(self, name: str, **parameters: Any) -> Any:
        """A command of the DevTools protocol."""
        return self.command("POST", "/goog/cdp/execute", cmd=name, params=parameters)

    def open(self, address: str) -> None:
        """Goes to an address."""
        self.command("POST", "/url", url=address)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns; `return` is written in it, `arguments` are its arguments."""
        return self.command("POST", "/execute/sync", script=script, args=list(arguments))

    def run_later(self, script: str, *arguments: Any) -> Any:
        """What a script gives to its last argument, a function."""
        return self.command("POST", "/execute/async", script=script, args=list(arguments))

    def wait(self, condition: str, *arguments: Any) -> Any:
        """The value of a JavaScript expression, once it is true."""
        return self.until(lambda: self.run(f"return {condition}", *arguments), condition)

    def text(self, selector: str = "main") -> str:
        """What is to be read in an element."""
        found: str = self.wait("document.querySelector(arguments[0])?.innerText", selector)
        return found

    def see(self, *texts: str, within: str = "body") -> None:
        """Waits until all of these texts are to be read."""
        for each in texts:
            self.wait("document.querySelector(arguments[0])?.innerText.includes(arguments[1])", within, each)

    def find(self, selector: str, text: str = "") -> str:
        """The visible element of a selector whose text, label or title contains `text`; the smallest of several."""
        script = """
            const found = [...document.querySelectorAll(arguments[0])].filter((each) => each.checkVisibility()
                && !each.disabled && [each.innerText, each.getAttribute("aria-label"), each.textContent]
                    .some((said) => (said || "").includes(arguments[1])));
            return found.sort((a, b) => a.textContent.length - b.textContent.length)[0] || null;
        """
        element = self.until(lambda: self.run(script, selector, text), f"{selector} with {text!r}")
        return str(element[ELEMENT])

    def click(self, text: str, selector: str = "button, a, summary, [role=treeitem] .node") -> None:
        """Clicks what is called so, as a person would: it must be in view and not covered."""

        def click() -> None:
            element = self.find(selector, text)
            self.run("arguments[0].scrollIntoView({block: 'center'})", {ELEMENT: element})
            self.command("POST", f"/element/{element}/click")

        self._until_done(click, f"a click on {text!r}")

    def _until_done(self, act: Callable[[], None], what: str) -> None:
        """Repeats what is done with an element that it finds, while the page is drawn again in between."""

        def done() -> bool:
            try:
                act()
            except AssertionError as error:
                if "stale element reference" in str(error):
                    return False
                raise
            return True

        self.until(done, what)

    def double_click(self, text: str, selector: str = "button") -> None:
        """Clicks twice at once, as many people do."""
        element = {ELEMENT: self.find(selector, text)}
        self.run("arguments[0].scrollIntoView({block: 'center'})", element)
        clicks = [{"type": kind, "button": 0} for kind in ("pointerDown", "pointerUp", "pointerDown", "pointerUp")]
        there = {"type": "pointerMove", "origin": element, "x": 0, "y": 0}
        self.command("POST", "/actions", actions=[{"type": "pointer", "id": "mouse", "actions": [there, *clicks]}])

    def labelled(self, label: str) -> str:
        """The input that a label names."""
        script = """
            const labels = [...document.querySelectorAll("label")];
            const label = labels.find((each) => each.innerText.trim() === arguments[0]);
            return label ? label.control : document.querySelector(`[aria-label="${arguments[0]}"]`);
        """
        return str(self.until(lambda: self.run(script, label), f"the input {label!r}")[ELEMENT])

    def type(self, label: str, text: str, *, clear: bool = True) -> None:
        """Writes into the input that a label names."""

        def write() -> None:
            element = self.labelled(label)
            if clear:
                self.command("POST", f"/element/{element}/clear")
            self.command("POST", f"/element/{element}/value", text=text)

        self._until_done(write, f"text in {label!r}")

    def press(self, *keys: str) -> None:
        """Presses keys where the focus is: names such as `Enter`, or characters."""
        actions = [{"type": kind, "value": KEYS.get(key, key)} for key in keys for kind in ("keyDown", "keyUp")]
        self.command("POST", "/actions", actions=[{"type": "key", "id": "keys", "actions": actions}])

    def size(self, width: int, height: int) -> None:
        """Sets the size of the page, in CSS pixels."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def colours(self, scheme: str) -> None:
        """What the system prefers: `light` or `dark`. No motion, so that colours change at once."""
        preferred = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in preferred.items()]
        self.devtools("Emulation.setEmulatedMedia", features=features)

    def picture(self, path: Path, most_height: int = 6_000) -> None:
        """The whole page, up to a height, as a PNG or WebP file."""
        size = self.run("return [document.documentElement.clientWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": size[0], "height": min(size[1], most_height), "scale": 1}
        form = {"format": "webp", "quality": 70} if path.suffix == ".webp" else {"format": "png"}
        shot = self.devtools("Page.captureScreenshot", captureBeyondViewport=True, clip=clip, **form)
        path.write_bytes(base64.b64decode(shot["data"]))

    def log(self, kind: str) -> list[dict[str, Any]]:
        """New lines of a log: `browser` for the console, `performance` for the network."""
        found: list[dict[str, Any]] = self.command("POST", "/se/log", type=kind)
        return found

    def requested(self) -> list[str]:
        """The addresses of all requests since the last call."""
        messages = [json.loads(each["message"])["message"] for each in self.log("performance")]
        return [each["params"]["request"]["url"] for each in messages if each["method"] == "Network.requestWillBeSent"]

    def until(self, ask: Callable[[], Any], what: str) -> Any:
        """What `ask` returns, once it is true."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not (value := ask()):
            if time.monotonic() > end:
                shown = self.run("return document.body.innerText.slice(0, 1500)")
                raise AssertionError(f"waited in vain for {what}; the page says:\n{shown}\n{self.log('browser')}")
            time.sleep(0.05)
        return value


@contextmanager
def running_browser(profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile; skips where none is installed."""
    driver = shutil.which("chromedriver")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if driver is None or chromium is None:
        pytest.skip(MISSING)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120.0, trust_env=False) as client:
            session = _session(client, chromium, profile)
            try:
                yield Browser(client, session)
            finally:
                client.delete(f"/session/{session}")
    finally:
        process.terminate()
        process.wait(30.0)


def _session(client: httpx.Client, chromium: str, profile: Path) -> str:
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--lang=en"]
    options = {
        "binary": chromium,
        "args": [*flags, *quiet, f"--user-data-dir={profile}", "--window-size=1280,900"],
        "prefs": {"intl.accept_languages": "en"},
    }
    wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"performance": "ALL", "browser": "ALL"}}
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            answer = client.post("/session", json={"capabilities": {"alwaysMatch": wanted}})
            break
        except httpx.TransportError:
            assert time.monotonic() < end, "chromedriver does not answer"
            time.sleep(0.1)
    value = answer.json()["value"]
    assert answer.status_code == 200, value
    return str(value["sessionId"])
