"""Programs that use emm, and ones that only seem to, for the tests of `emm top` beside this file."""
import os
import pathlib
import secrets
import signal
import socket
import struct
import subprocess
import time

import emm_program

HOLDER = os.environ["EMM_TEST_HOLDER"]
MIB = 1 << 20
MAGIC, VERSION = 0x746D6D65, 1
OTHER_USER = 65534
TIMEOUT = 60  # seconds until a test gives up


def environment(**variables):
    kept = {key: value for key, value in os.environ.items()
            if not key.startswith("EMM_") or key == "EMM_DRIVER"}
    return {**kept, **variables}


def names():
    """The names of the sockets at which processes can be asked."""
    found = []
    for line in pathlib.Path("/proc/net/unix").read_text(errors="replace").splitlines():
        fields = line.split()
        if len(fields) == 8 and fields[7].startswith("@emm-top-") and int(fields[3], 16) & 0x10000:
            found.append(fields[7][1:])
    return found


def names_of(pid):
    return [name for name in names() if name.startswith(f"emm-top-{pid}-")]


def until(condition):
    """The result of `condition` once it is true. A long time-out ends the wait, so no speed is judged."""
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it never came about")


class Holder:
    """A program that uses emm."""

    def __init__(self, test, *steps, plugin="pool", called="holder", run_by=(), **options):
        self.process = subprocess.Popen(
            [*(run_by or [called]), *steps, "ready", "wait"], executable=run_by[0] if run_by else HOLDER, env=environment(EMM_PLUGIN=plugin, **options),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        test.addCleanup(self.end)
        self.said = {}
        while "ready" not in self.said:
            self.hear()
        self.pid = self.process.pid

    def hear(self):
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(self.process.stderr.read())
        word, _, rest = line.strip().partition(" ")
        self.said[word] = int(rest)

    def tell(self, step):
        self.process.stdin.write(step + "\nready\n")
        self.process.stdin.flush()
        self.said.pop("ready", None)
        while "ready" not in self.said:
            self.hear()

    def end(self):
        """Its exit status, if it ends by itself."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.stdin.close()
            try:
                self.process.wait(timeout=TIMEOUT)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.errors = self.process.stderr.read() if not self.process.stderr.closed else self.errors
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            stream.close()
        return self.process.returncode


def top(*arguments, **variables):
    return emm_program.run("top", *arguments, **variables)


def shown():
    """The output of emm top --json, by process id."""
    processes = emm_program.answer("top", "--interval", "0.05")["processes"]
    return {process["pid"]: process for process in processes}


def stats_of(process):
    return process["contexts"][0]["stats"]


def request(wish=1, magic=MAGIC):
    return struct.pack("<4I", magic, VERSION, wish, 0)


def framed(text, version=VERSION, size=None):
    return struct.pack("<4I", MAGIC, version, len(text) if size is None else size, 0) + text


class Liar:
    """A process of this user that is called as if it used emm, and answers as it likes."""

    def __init__(self, answer, user=None):
        self.answer, self.user = answer, user

    def __enter__(self):
        ready, tell = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                if self.user is not None:
                    os.setresgid(self.user, self.user, self.user)
                    os.setresuid(self.user, self.user, self.user)
                listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                listening.bind(f"\0emm-top-{os.getpid()}-{secrets.token_hex(8)}")
                listening.listen(16)
                os.write(tell, b"1")
                while True:
                    client = listening.accept()[0]
                    try:
                        client.recv(1 << 16)
                        self.answer(client)
                    except OSError:
                        pass  # another test's tool, which has left
                    client.close()
            finally:
                os._exit(1)
        os.close(tell)
        os.read(ready, 1)
        os.close(ready)
        return self

    def __exit__(self, *_):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
