"""A headless Chromium over its debugging pipe: no driver to install, and keys are real keys.

`python tests/browser.py PAGE PICTURE.png` takes the picture of a report that the README shows.
"""

import base64
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from PIL import Image

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
KEYS = {"Tab": 9, "Enter": 13}
AXE = Path(__file__).parents[1] / "node_modules" / "axe-core" / "axe.min.js"
SIZES = {"phone": (390, 844, True), "desktop": (1280, 900, False)}  # width, height, is a phone


@final
class Page:
    """One tab. `events` are those that arrived while something else was waited for."""

    def __init__(self, commands: Any, answers: Any) -> None:
        self._commands, self._answers, self._number = commands, answers, 0
        self.events: deque[dict[str, Any]] = deque()
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for part in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{part}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        self._commands.flush()
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        held = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            if not byte:
                raise RuntimeError("the browser went away")
            held += byte
        answer: dict[str, Any] = json.loads(held)
        return answer

    def open(self, path: Path, width: int = 1200, height: int = 900, phone: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone
        )  # fmt: skip
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def run(self, script: str) -> Any:
        """The value of an expression, awaited."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            pressed = {"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
            self.call("Input.dispatchKeyEvent", **pressed, **(text if kind == "keyDown" else {}))

    def prefer(self, scheme: str) -> None:
        """light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, top: float, bottom: float, width: float) -> bytes:
        """A PNG of part of the page, also of what is not in view."""
        clip = {"x": 0, "y": top, "width": width, "height": bottom - top, "scale": 1}
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(answer["data"])

    def requests(self) -> list[str]:
        """Addresses that were asked for, whatever came of it."""
        asked = [
            event["params"]["request"]["url"] for event in self.events if event["method"] == "Network.requestWillBeSent"
        ]
        return [address for address in asked if not address.startswith("data:")]

    def complaints(self) -> list[str]:
        """What the console would show in red."""
        found = []
        for event in self.events:
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(event["params"]["exceptionDetails"]))
            elif event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] in ("error", "warning"):
                found.append(event["params"]["entry"]["text"])
            elif event["method"] == "Runtime.consoleAPICalled" and event["params"]["type"] in ("error", "warning"):
                found.append(str(event["params"]["args"]))
        return found


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    if CHROMIUM is None:
        raise RuntimeError("there is no Chromium")
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    command = [CHROMIUM, *QUIET, f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(  # the pipe is file 3 and file 4, whatever their numbers are here
        ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", *command],
        pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        with os.fdopen(ours_out, "wb") as commands, os.fdopen(ours_in, "rb") as answers:
            yield Page(commands, answers)
    finally:
        process.terminate()
        process.wait(20)


def shown(path: Path, to: Path) -> None:
    """A report from its first figure to its main table, in few colours, since a file in git is for ever."""
    with tempfile.TemporaryDirectory() as profile, browser(Path(profile)) as page:
        page.prefer("light")
        page.open(path, 1200)
        top, bottom = page.run(
            "[document.querySelector('h3').getBoundingClientRect().top,"
            " document.querySelector('.table').getBoundingClientRect().bottom]"
        )
        drawn = page.picture(top - 16, bottom + 16, 1200)
    Image.open(io.BytesIO(drawn)).convert("RGB").quantize(128).save(to, optimize=True)


if __name__ == "__main__":
    shown(Path(sys.argv[1]), Path(sys.argv[2]))
