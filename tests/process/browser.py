"""A page in headless Chromium, driven over a pair of pipes (Chrome DevTools Protocol)."""
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")
LIMIT = 120 # seconds for one answer


def program():
    """The browser's path, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """With one page. `faults` has what its console and its exceptions said."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        commands, self.out = os.pipe()
        self.answers, answers = os.pipe()
        high = [os.dup2(commands, 53), os.dup2(answers, 54)]  # away from 3 and 4
        script = 'exec "$@" 3<&53 4>&54 53<&- 54>&-'
        self.process = subprocess.Popen(
            ["bash", "-c", script, "bash", program(), "--headless", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars", "--remote-debugging-pipe",
             "--user-data-dir=" + self.folder.name, "about:blank"],
            pass_fds=high, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for descriptor in (commands, answers, *high):
            os.close(descriptor)
        self.buffer, self.number, self.session, self.faults, self.events = b"", 0, None, [], []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(domain + ".enable")

    def close(self):
        os.close(self.out)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.answers)
        self.folder.cleanup()

    def receive(self):
        end = time.monotonic() + LIMIT
        while b"\0" not in self.buffer:
            if not select.select([self.answers], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self.answers, 1 << 20)
            if not part:
                raise EOFError("the browser has ended")
            self.buffer += part
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def note(self, message):
        method, parameters = message.get("method"), message.get("params", {})
        self.events.append(method)
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.faults.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled":
            self.faults.append(str(parameters["args"]))
        elif method == "Log.entryAdded":
            self.faults.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            url = parameters["request"]["url"]
            if not url.startswith(("file:", "data:")):
                self.faults.append("asks for " + url)

    def send(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.note(answer)

    def open(self, path, width=1280, height=900, dark=False):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=False)
        self.send("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.events.clear()
        self.send("Page.navigate", url="file://" + str(path))
        while "Page.loadEventFired" not in self.events:
            self.note(self.receive())

    def value(self, expression):
        """The value of the expression in the page, as JSON."""
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def mouse(self, kind, x, y, **more):
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def drag(self, from_x, to_x, y):
        self.mouse("mousePressed", from_x, y, button="left", clickCount=1)
        self.mouse("mouseMoved", (from_x + to_x) / 2, y, button="left", buttons=1)
        self.mouse("mouseMoved", to_x, y, button="left", buttons=1)
        self.mouse("mouseReleased", to_x, y, button="left", clickCount=1)
