#!/usr/bin/env python3
"""Many processes in one budget, in a ring in which each reads what the one before it shares, paused and killed at random.

    tests/soak/ring.py [--processes 64] [--seconds 600] [--limit MIB] [--plugin pool] [--seed 1] [--build BUILD]

Each process is ring_member.cpp under `emm run`. Killed are members, at any moment and while they sleep, and `emm pause` and
`emm resume` themselves. Once in a while all members stop, and what their devices have is compared with what emm counts. In the end
half of them are killed at once: the others' content is intact, a program of its own gets the whole rest of the budget, and
nothing is left: no process, name of a socket, lock or file. A member or command that does not go on for --timeout seconds is
told with its stacks. Prints one line of JSON; ends with 1 if anything is wrong. EMM_DRIVER as always: on a GPU, where it is
empty, NVML is asked for what the device has in use, and other programs on it disturb it.
"""
import argparse
import collections
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types

from ring_board import COUNTS, Board

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/clients/gpu"))
from run_clients import Monitor  # noqa: E402
MIB = 1 << 20
LATE = 64 * MIB  # that a context on a GPU may take after its creation
SEGMENT = 32  # MiB, by which a pool of CUDA's grows
GROUP = "ring"
# Reasons to refuse a command for a member that lives: a command before was killed and goes on there, or the budget is full.
REFUSALS = ("it is still busy with an earlier pause or resume", "out of device memory")


def options(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--limit", type=int, help="MiB; by default 8 for each process")
    parser.add_argument("--plugin", default="pool")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pausers", type=int, default=3, help="threads that pause and resume members")
    parser.add_argument("--kills", type=float, default=2, help="in a second")
    parser.add_argument("--pace", type=int, help="microseconds between two steps of a member; by default 800 for each process")
    parser.add_argument("--timeout", type=float, default=120, help="seconds until something hangs")
    parser.add_argument("--fault", help="for ring_test.py: what the first member does wrong")
    wish = parser.parse_args(arguments)
    wish.limit = wish.limit or 8 * wish.processes
    wish.pace = wish.pace or 800 * wish.processes
    wish.build = wish.build.resolve()
    # Pools of CUDA's that grow in the same moment, one of each process, may all be above (tools/interpose/README.md).
    wish.above = 0 if wish.plugin.startswith("pool") else wish.processes * SEGMENT
    return wish


def stacks(pid):
    """Where the threads of a process are."""
    try:
        done = subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 12"], text=True, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=False)
        frames = [line for line in done.stdout.splitlines() if line.startswith(("Thread", "#"))]
    except (OSError, subprocess.TimeoutExpired):
        frames = []
    if frames:
        return "\n".join(frames)
    tasks = pathlib.Path(f"/proc/{pid}/task")
    return "\n".join(f"{(task / 'comm').read_text().strip()}: {(task / 'wchan').read_text()} {(task / 'syscall').read_text().strip()}"
                     for task in tasks.glob("*")) if tasks.is_dir() else "it has ended"


class Member:
    """A place in the ring: a process, and the one that follows it when it is killed."""

    def __init__(self, crowd, number):
        self.crowd, self.number = crowd, number
        self.slot = crowd.board.slots[number]
        self.change = threading.Lock()  # of `killed` and of what is said about its bytes
        self.paused_by = None
        self.process, self.incarnation, self.killed = None, 0, False
        self.beats, self.moved = 0, 0.0

    def start(self):
        wish = self.crowd.wish
        self.incarnation += 1
        self.slot.counting = 1
        self.killed, self.beats, self.moved = False, 0, time.monotonic()
        words = [self.crowd.board_path, self.number, self.incarnation, wish.processes, (wish.limit + wish.above) * MIB, wish.pace,
                 wish.seed * 1000003 + self.number * 1009 + self.incarnation]
        if wish.fault and self.number == 0:
            words.append(wish.fault)
        self.slot.incarnation = self.incarnation
        self.process = subprocess.Popen(
            [self.crowd.emm, "run", "--pausable", "--plugin", wish.plugin, "--limit", f"{wish.limit}MiB", "--shared", GROUP, "--",
             wish.build / "tests/soak/ring_member", *map(str, words)], env=self.crowd.environment, stdin=subprocess.DEVNULL,
            stdout=self.crowd.output, stderr=self.crowd.output)
        self.crowd.pids_ever.add(self.process.pid)

    def is_same(self, incarnation):
        return not self.killed and self.incarnation == incarnation

    def is_awake(self):
        return not self.killed and self.slot.beats > 1 and self.process.poll() is None

    def stop_counting(self, incarnation):
        """Before its memory may go. False: that process is dead."""
        with self.change:
            if not self.is_same(incarnation):
                return False
            self.slot.counting += self.slot.counting % 2
            return True

    def count_again(self, incarnation):
        with self.change:
            if self.is_same(incarnation):
                self.slot.counting += 1 - self.slot.counting % 2

    def kill(self):
        with self.change:
            if self.killed or self.process.poll() is not None:
                return
            self.killed = True
            self.slot.counting += self.slot.counting % 2
            self.crowd.counts[f"killed_{self.slot.doing_name()}{'_paused' if self.paused_by else ''}"] += 1
            self.process.send_signal(signal.SIGKILL)

    def reap(self, may_end=False):
        """Once it has ended: what it has counted is the crowd's. `may_end`: it was told to."""
        status = self.process.wait()
        self.crowd.counts["killed"] += self.killed
        said = self.slot.wrong.decode(errors="replace")
        for name, count in zip(COUNTS, self.slot.count):
            self.crowd.counts[name] += count
        if said:
            self.crowd.complain(f"member {self.number}, process {self.process.pid}: {said}")
        elif not self.killed and (status != 0 or not may_end):
            self.crowd.complain(f"member {self.number}, process {self.process.pid}, ended with status {status} "
                                f"while {self.slot.doing_name()}: {self.crowd.last_lines()}")
        with self.change:
            self.killed = True
            self.crowd.board.clear(self.number)

    def look_for_hang(self, now, timeout):
        if self.slot.beats != self.beats or self.paused_by:
            self.beats, self.moved = self.slot.beats, now
        elif now - self.moved > timeout:
            self.crowd.complain(f"member {self.number}, process {self.process.pid}, hangs while {self.slot.doing_name()}:\n"
                                f"{stacks(self.process.pid)}")


class Crowd:
    def __init__(self, wish, folder, stack):
        self.wish, self.folder = wish, pathlib.Path(folder)
        self.emm = wish.build / "tools/emm/emm"
        self.counts, self.wrong = collections.Counter(), []
        self.chance, self.is_over, self.pausers_rest = random.Random(wish.seed), False, threading.Event()
        self.hungry, self.pids_ever, self.change = set(), set(), threading.Lock()
        for name in ("tmp", "run", "budget"):
            (self.folder / name).mkdir(mode=0o700)
        kept = {key: value for key, value in os.environ.items() if not key.startswith("EMM_") or key == "EMM_DRIVER"}
        self.environment = {**kept, "TMPDIR": str(self.folder / "tmp"), "XDG_RUNTIME_DIR": str(self.folder / "run"),
                            "EMM_LIMIT_FOLDER": str(self.folder / "budget"), "EMM_LOG": "warn",
                            "EMM_SIM": os.environ.get("EMM_SIM", "memory=16GiB,progress=random")}
        self.output = stack.enter_context(open(self.folder / "output", "wb"))
        self.board_path = self.folder / "board"
        self.board = Board(self.board_path, wish.processes)
        self.members = [Member(self, number) for number in range(wish.processes)]
        self.monitor = types.SimpleNamespace(used=lambda: 0) if os.environ["EMM_DRIVER"] else Monitor()
        self.before, self.of_contexts = self.monitor.used(), None

    def complain(self, sentence):
        self.wrong.append(sentence)

    def last_lines(self):
        return " / ".join((self.folder / "output").read_text(errors="replace").splitlines()[-3:])

    # --- pauses

    def command(self, words, killed_after=None):
        """The tool's status and what it says. It may be killed at some moment, in seconds."""
        with subprocess.Popen([self.emm, *words], env=self.environment, text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as tool:
            try:
                return tool.communicate(timeout=killed_after or self.wish.timeout)[1], tool.returncode
            except subprocess.TimeoutExpired:
                if not killed_after:
                    self.complain(f"emm {' '.join(words)} hangs:\n{stacks(tool.pid)}\nthe process:\n{stacks(words[1])}")
                tool.kill()
                self.counts["killed_commands"] += 1
                return "", signal.SIGKILL

    def tell(self, word, member, incarnation, killed_after=None):
        """Whether it is done."""
        said, status = self.command((word, str(member.process.pid)), killed_after)
        self.counts[f"{word}s"] += status == 0
        self.counts[f"{word}s_refused"] += status == 1
        if status not in (0, 1, signal.SIGKILL) or (status == 1 and not any(reason in said for reason in REFUSALS)
                                                    and member.is_same(incarnation)):
            self.complain(f"member {member.number}: emm {word} ends with status {status}: {said}")
        return status == 0

    def pause_and_resume(self, member, incarnation, chance):
        if chance.random() < 0.15:  # a command that is killed on the way; the next one pauses the member for certain
            self.tell("pause", member, incarnation, chance.uniform(0.001, 0.1))
        if self.tell("pause", member, incarnation):
            time.sleep(chance.uniform(0, 0.3))
        if chance.random() < 0.15:
            self.tell("resume", member, incarnation, chance.uniform(0.001, 0.1))
        until = time.monotonic() + self.wish.timeout
        while not self.tell("resume", member, incarnation) and member.is_same(incarnation) and not self.wrong:
            self.make_room(member, True)
            if time.monotonic() > until:
                self.complain(f"member {member.number}, process {member.process.pid}, is not resumed")
            time.sleep(0.1)
        self.make_room(member, False)

    def make_room(self, member, is_needed):
        """The members free memory while one cannot be resumed."""
        with self.change:
            (self.hungry.add if is_needed else self.hungry.discard)(member.number)
            self.board.head.lean = int(bool(self.hungry))

    def pause_again_and_again(self, number):
        chance = random.Random(self.wish.seed * 7919 + number)
        while not self.is_over and not self.wrong:
            member = chance.choice(self.members)
            incarnation = member.incarnation
            if self.pausers_rest.is_set() or member.paused_by or not member.is_awake():
                time.sleep(0.05)
                continue
            with member.change:
                if member.paused_by:
                    continue
                member.paused_by = number + 1
            if member.stop_counting(incarnation):
                self.pause_and_resume(member, incarnation, chance)
                member.count_again(incarnation)
            member.paused_by = None

    # --- kills

    def kill_one(self):
        """In the middle of something, where it can be had."""
        member, until = self.chance.choice(self.members), time.monotonic() + 0.3
        wanted = self.chance.random()
        while wanted < 0.9 and member.slot.doing_name() in ("resting", "waiting") and time.monotonic() < until:
            time.sleep(0.0002)
        if member.slot.beats > 1 or wanted > 0.95:
            member.kill()

    def keep_up(self):
        for member in self.members:
            if member.process.poll() is not None and not self.wrong:
                member.reap()
                member.start()

    def look_for_hangs(self):
        now = time.monotonic()
        for member in self.members:
            member.look_for_hang(now, self.wish.timeout)

    # --- the whole group

    def taken(self):
        """The group's part of its device, as emm tells it, and the number of its processes."""
        done = subprocess.run([self.emm, "info", "--json"], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                              timeout=self.wish.timeout, env={**self.environment, "EMM_LIMIT": f"{self.wish.limit}MiB",
                                                               "EMM_LIMIT_SHARED": GROUP, "EMM_PLUGIN": self.wish.plugin})
        group = json.loads(done.stdout)["group"]
        taken = sum(device["taken"] for device in group["devices"])
        self.counts["most_taken_mib"] = max(self.counts["most_taken_mib"], taken // MIB)
        if taken > (self.wish.limit + self.wish.above) * MIB:
            self.complain(f"emm counts {taken} bytes in the budget of {self.wish.limit} MiB")
        return taken, group["processes"]

    def wait(self, what, condition):
        until = time.monotonic() + 2 * self.wish.timeout
        while not condition() and not self.wrong:
            if time.monotonic() > until:
                self.complain(f"never so: {what}")
            self.keep_up()
            self.look_for_hangs()
            time.sleep(0.05)

    def begin_census(self):
        self.pausers_rest.set()
        self.wait("no member is paused", lambda: not any(member.paused_by for member in self.members))
        self.board.head.census += 1
        self.wait("all members wait", lambda: self.have_told(self.members))

    def have_told(self, members):
        return all(member.slot.census == self.board.head.census for member in members)

    def ask_again(self, members):
        """The bytes of the device that waiting members have: a neighbour may have asked them to give back."""
        self.board.head.census += 1
        until = time.monotonic() + self.wish.timeout
        while not self.have_told(members) and not self.wrong:
            if time.monotonic() > until:
                self.complain("members that wait do not tell what they have")
            time.sleep(0.01)
        return sum(member.slot.device_bytes for member in members)

    def census(self):
        self.begin_census()
        if not self.wrong:
            self.compare()
        self.end_census()

    def compare(self):
        of_devices = self.ask_again(self.members)
        taken, processes = self.taken()
        if of_devices > taken:
            self.complain(f"the devices have {of_devices} bytes in use, and emm counts {taken} in the budget")
        if processes != self.wish.processes:
            self.complain(f"emm counts {processes} processes, and there are {self.wish.processes}")
        self.compare_device(taken)
        self.counts["most_device_mib"] = max(self.counts["most_device_mib"], of_devices // MIB)
        self.counts["censuses"] += 1

    def compare_device(self, taken):
        """Compares with the memory that the GPU has in use. The first time, the rest is that of the contexts."""
        used = self.monitor.used()
        if self.of_contexts is None:
            self.of_contexts = max(0, used - self.before - taken)
        allowed = self.before + self.of_contexts + self.wish.processes * LATE + taken
        if used > allowed:
            self.complain(f"the device has {used} bytes in use, and {allowed} are allowed")
        self.counts["most_used_mib"] = max(self.counts["most_used_mib"], used // MIB)

    def end_census(self):
        self.board.head.released = self.board.head.census
        self.pausers_rest.clear()

    # --- from the beginning to the end

    def run(self):
        for member in self.members:
            member.start()
        self.wait("all members are there", lambda: all(member.is_awake() for member in self.members))
        self.census()
        pausers = [threading.Thread(target=self.pause_again_and_again, args=(number,)) for number in range(self.wish.pausers)]
        for pauser in pausers:
            pauser.start()
        try:
            self.work()
            if not self.wrong:
                self.begin_census()
                self.compare()
        finally:
            self.is_over = True
            for pauser in pausers:
                pauser.join()
        if not self.wrong:
            self.finish()

    def work(self):
        now = time.monotonic()
        end, next_kill, next_census, next_look = now + self.wish.seconds, now, now + self.wish.seconds / 12, now
        while (now := time.monotonic()) < end and not self.wrong:
            self.keep_up()
            self.look_for_hangs()
            if now > next_kill:
                self.kill_one()
                next_kill = now + self.chance.expovariate(self.wish.kills)
            if now > next_look:
                self.taken()
                next_look = now + 2
            if now > next_census:
                self.census()
                next_census = time.monotonic() + self.wish.seconds / 12
            time.sleep(0.01)

    def finish(self):
        """All members wait for the census. Every second one dies."""
        for member in self.members[1::2]:
            member.kill()
        for member in self.members[1::2]:
            member.reap()
        filled = self.fill()
        survivors = self.ask_again(self.members[::2])
        if not os.environ["EMM_DRIVER"]:
            survivors = self.taken()[0]
        self.judge_fill("beside the survivors", filled, self.wish.limit - survivors / MIB)
        self.board.head.over = 1
        self.end_census()
        for member in self.members[::2]:
            self.join(member)
        self.judge_fill("in the end", self.fill(), self.wish.limit)
        self.judge_counts()

    def join(self, member):
        try:
            member.process.wait(self.wish.timeout)
        except subprocess.TimeoutExpired:
            self.complain(f"member {member.number}, process {member.process.pid}, does not end while {member.slot.doing_name()}:\n"
                          f"{stacks(member.process.pid)}")
            member.kill()
        member.reap(may_end=True)

    def fill(self):
        """The part of the budget that another program gets, in MiB."""
        done = subprocess.run([self.wish.build / "tests/process/holder", "fill"], text=True, stdout=subprocess.PIPE, check=False,
                              timeout=self.wish.timeout, env={**self.environment, "EMM_PLUGIN": "pool",
                                                               "EMM_LIMIT": f"{self.wish.limit}MiB", "EMM_LIMIT_SHARED": GROUP})
        return int(done.stdout.split()[1])

    def judge_fill(self, when, filled, expected):
        self.counts[f"filled_mib {when}"] = filled
        if not 0.99 * expected - 32 <= filled <= expected:
            self.complain(f"{when} a program got {filled} MiB of {expected:.1f}")

    def judge_counts(self):
        """A run in which nothing happened shows nothing."""
        for name in ("killed", "refused", "ring_reads", "answers", "looks", *(["pauses", "resumes"] if self.wish.pausers else [])):
            if not self.counts[name]:
                self.complain(f"{name}: none, so the run shows nothing")

    # --- the end

    def kill_all(self):
        for member in self.members:
            if member.process and member.process.poll() is None:
                member.kill()
                member.process.wait()

    def look_for_remains(self):
        pids = self.pids_ever
        for name in pathlib.Path("/proc/net/unix").read_text(errors="replace").split("@")[1:]:
            if match := re.match(r"emm-top-(\d+)-", name):
                if int(match[1]) in pids:
                    self.complain(f"a socket is left: {name.split()[0]}")
        files = [str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()]
        for name in set(files) - {"board", "output", f"budget/limit-{GROUP}"}:
            self.complain(f"a file is left: {name}")
        budget = self.folder / f"budget/limit-{GROUP}"
        if budget.exists() and f":{budget.stat().st_ino} " in pathlib.Path("/proc/locks").read_text():
            self.complain("a lock of the budget's file is left")
        for maps in pathlib.Path("/proc").glob("[0-9]*/maps"):
            try:
                if maps.parent.name != str(os.getpid()) and str(self.folder) in maps.read_text(errors="replace"):
                    self.complain(f"process {maps.parent.name} is left")
            except OSError:
                pass  # it has ended

    def told(self):
        wish = self.wish
        return {"processes": wish.processes, "seconds": wish.seconds, "limit_mib": wish.limit, "plugin": wish.plugin,
                **dict(sorted(self.counts.items())), "wrong": self.wrong}


def main(arguments=None):
    wish = options(arguments)
    os.environ.setdefault("EMM_DRIVER", "sim")
    with tempfile.TemporaryDirectory(prefix="emm-ring-") as folder, contextlib.ExitStack() as stack:
        crowd = Crowd(wish, folder, stack)
        try:
            crowd.run()
        finally:
            crowd.kill_all()
        crowd.look_for_remains()
        for sentence in crowd.wrong:
            print(sentence, file=sys.stderr)
        print(json.dumps(crowd.told()))
    return 1 if crowd.wrong else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main())
