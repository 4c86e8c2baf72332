#!/usr/bin/env python3
"""Two programs in one budget, killed at random: at no time has the device more in use than the budget.

    tests/gpu/shared_budget.py [--build BUILD] [--seconds 600] [--limit 8192] [--plugin pool] [--seed 1]

One program grows (tests/process/top/holder.cpp) while the other shrinks, then the other way round; each second one of them is
killed, wherever it is, and another takes its place. Meanwhile this process, which emm does not serve, asks NVML what the
device has in use, as often as it can, and `emm top` what counts against the budget. What contexts take is measured at the
beginning, and allowed for. In the end the budget must be whole again. Without NVML (EMM_DRIVER=sim) only emm is asked. Other
programs on the device disturb it. Prints one line of JSON; ends with 1 if the budget was exceeded, or nothing was refused.
"""
import argparse
import contextlib
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests/process"), str(ROOT / "tests/clients/gpu")]
MIB = 1 << 20
LATE = 64 * MIB  # that a context may take after its creation


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build-gpu")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--limit", type=int, default=8192, help="MiB")
    parser.add_argument("--plugin", default="pool")
    parser.add_argument("--seed", type=int, default=1)
    wish = parser.parse_args()
    os.environ.update(EMM_TEST_PROGRAM=str(wish.build.resolve() / "tools/emm/emm"),
                      EMM_TEST_HOLDER=str(wish.build.resolve() / "tests/process/holder"), EMM_TEST_FIXTURES=str(wish.build))
    return wish


def drop(holder):
    """Closes what leads to a program that was killed."""
    for stream in (holder.process.stdin, holder.process.stdout, holder.process.stderr):
        with contextlib.suppress(OSError):
            stream.close()
    holder.errors = ""


class Member:
    """A place in the group: a program, and the one that follows it when it is killed."""

    def __init__(self, group, number):
        self.group, self.chance = group, random.Random(group.wish.seed * 2 + number)
        self.holder, self.killed, self.counts = None, False, {"grown_mib": 0, "refused": 0, "killed": 0}
        self.start()

    def start(self):
        self.killed = False
        self.holder = self.group.holder("grow=1")

    def carry_out(self, step, count):
        self.holder.tell(f"{step}={count}")
        if step == "grow":
            grown = self.holder.said["grown"]
            self.counts["grown_mib"] += grown
            self.counts["refused"] += grown < count

    def work(self):
        while not self.group.is_over:
            step = "grow" if self.group.grower is self else "free"
            try:
                self.carry_out(step, self.chance.randrange(1, self.group.wish.limit // 16))
            except (AssertionError, OSError) as error:
                if not self.killed:
                    self.group.wrong.append(f"a program ended by itself: {error}")
                    return
                self.holder.process.wait()
                drop(self.holder)
                self.counts["killed"] += 1
                self.start()

    def kill(self):
        self.killed = True
        self.holder.process.send_signal(signal.SIGKILL)


class Group:
    def __init__(self, wish, stack, monitor):
        self.wish, self.monitor, self.addCleanup = wish, monitor, stack.callback
        self.folder = stack.enter_context(tempfile.TemporaryDirectory())
        self.is_over, self.wrong, self.grower = False, [], None
        self.before = monitor.used()
        self.members = [Member(self, number) for number in range(2)]
        self.contexts = max(0, monitor.used() - self.before - sum(self.reserved()))
        self.allowed = self.before + self.contexts + 2 * LATE + wish.limit * MIB
        self.highest, self.above, self.above_after_kill, self.samples, self.most_counted = 0, 0, 0, 0, 0

    def holder(self, *steps):
        from top_programs import Holder
        return Holder(self, *steps, plugin=self.wish.plugin, EMM_LIMIT=f"{self.wish.limit}MiB", EMM_LIMIT_SHARED="budget",
                      EMM_LIMIT_FOLDER=self.folder)

    def contexts_of_members(self):
        from top_programs import shown
        mine = {member.holder.process.pid for member in self.members}
        return [context for pid, process in shown().items() if pid in mine for context in process["contexts"]]

    def reserved(self):
        return [context["stats"]["reserved_bytes"] for context in self.contexts_of_members()]

    def look_at_device(self, killed_at):
        used = self.monitor.used()
        self.samples += 1
        self.highest = max(self.highest, used)
        if used > self.allowed:
            self.above += 1
            self.above_after_kill += time.monotonic() < killed_at + 1

    def look_at_budget(self):
        counted = max((context["account"]["used_bytes"] for context in self.contexts_of_members() if context["account"]),
                      default=0)
        self.most_counted = max(self.most_counted, counted)

    def run(self):
        chance = random.Random(self.wish.seed)
        self.grower = self.members[0]
        threads = [threading.Thread(target=member.work) for member in self.members]
        watch = threading.Thread(target=self.watch_budget)
        for thread in (*threads, watch):
            thread.start()
        now = time.monotonic()
        end, next_kill, next_turn, killed_at = now + self.wish.seconds, now + 1, now + 1, 0
        while (now := time.monotonic()) < end and not self.wrong:
            self.look_at_device(killed_at)
            if now > next_turn:
                self.grower = self.members[self.grower is self.members[0]]
                next_turn = now + chance.uniform(0.05, 1)
            if now > next_kill:
                chance.choice(self.members).kill()
                killed_at, next_kill = now, now + chance.uniform(0.2, 1.8)
            time.sleep(0.002)
        self.is_over = True
        for thread in (*threads, watch):
            thread.join()

    def watch_budget(self):
        while not self.is_over:
            self.look_at_budget()
            time.sleep(0.2)

    def filled_afterwards(self):
        """The MiB that a last program gets once the others were killed."""
        for member in self.members:
            member.kill()
            member.holder.process.wait()
            drop(member.holder)
        return self.holder("fill").said["filled"]

    def verdict(self, filled):
        counts = {name: sum(member.counts[name] for member in self.members) for name in self.members[0].counts}
        if self.above:
            self.wrong.append(f"the device had more in use than allowed in {self.above} of {self.samples} samples, "
                              f"{self.above_after_kill} of them within a second after a kill")
        if self.most_counted > self.wish.limit * MIB:
            self.wrong.append("more counted against the budget than it has")
        if filled < self.wish.limit * 0.99 - 32 or filled > self.wish.limit:
            self.wrong.append(f"a program got {filled} of {self.wish.limit} MiB in the end")
        for name, count in counts.items():
            if count == 0:
                self.wrong.append(f"{name}: none, so the run shows nothing")
        in_mib = {"before": self.before, "contexts": self.contexts, "allowed": self.allowed, "highest": self.highest,
                  "most_counted": self.most_counted}
        return {**counts, "samples": self.samples, "above": self.above, "filled_mib": filled,
                **{f"{name}_mib": value // MIB for name, value in in_mib.items()}, "wrong": self.wrong}


def main():
    wish = options()
    from run_clients import Monitor
    with contextlib.ExitStack() as stack:
        group = Group(wish, stack, Monitor(1 if os.environ.get("EMM_DRIVER") != "sim" else 0))
        group.run()
        told = group.verdict(group.filled_afterwards())
    print(json.dumps(told))
    return 1 if told["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
