"""A process that answers each line it is given with one line of JSON, and writes its errors to a log."""
import json
import subprocess
import threading

LONGEST = 120  # seconds for an answer


class Ended(Exception):
    """The process has ended in place of an answer."""


class AskedProcess:
    def __init__(self, command, log, environment=None):
        self.log = log
        with open(log, "w", encoding="utf-8") as errors:
            self.process = subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=errors)

    def answer(self):
        watch = threading.Timer(LONGEST, self.process.kill)
        watch.start()
        line = self.process.stdout.readline()
        watch.cancel()
        if not line.startswith("{"):
            self.process.communicate()
            lines = self.log.read_text(errors="replace").strip().splitlines()
            raise Ended(f"ended with status {self.process.returncode}: {lines[-1] if lines else 'it said nothing'}")
        return json.loads(line)

    def ask(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self):
        self.process.stdin.close()
        self.process.wait()
