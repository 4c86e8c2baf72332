"""Runs a mode, samples its process, and judges what it has."""
import os
import signal
import subprocess
import threading
import time

from fit import LEAST_SAMPLES, line_of
from modes import ALLOCATOR, KEPT_OF_CONTEXT, LEAST
from sample import sample

SAMPLES = 400  # in a run
LEAST_INTERVAL = 0.02  # seconds between samples
SECONDS_TO_END = 120  # after its time is up, with its last round and checks
UNITS = {"host memory": (1 << 20, "MiB"), "reserved": (1 << 20, "MiB")}
MEASURES = tuple(LEAST)
TITLE = "| mode | " + " | ".join(f"{name} ({UNITS[name][1]})" if name in UNITS else name for name in MEASURES) + \
        " | contexts |\n|---" + "|---" * (len(MEASURES) + 1) + "|"


def pause_again_and_again(emm, pid, stop):
    while not stop.wait(0.05):
        for word in ("pause", "resume"): # a pause may be refused, for a capture
            subprocess.run([emm, word, str(pid), *(["--limit", "0.5"] if word == "pause" else [])],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120, check=False)


def watch(process, seconds):
    """The samples of each measure until the time is up or the process has ended, host memory without what is known to be kept
    of contexts; how many contexts came, and the seconds."""
    samples = {name: [] for name in MEASURES}
    first, contexts = None, 0  # numbers
    begin = time.monotonic()
    interval = max(LEAST_INTERVAL, seconds / SAMPLES)
    while process.poll() is None and time.monotonic() - begin < seconds:
        try:
            found = sample(process.pid)
        except (OSError, ValueError):
            continue # it has just ended, which poll tells next
        contexts = max(contexts, found.pop("contexts", 0))
        first = first or contexts
        found["host memory"] -= KEPT_OF_CONTEXT * (contexts - first)
        for name, value in found.items():
            samples[name].append((time.monotonic() - begin, value))
        time.sleep(interval)
    return samples, contexts - (first or 0), time.monotonic() - begin


def kill(process):
    """With its children and peers."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def end(process, ends_by_itself):
    """The fault in how it ends, or None."""
    try:
        if process.poll() is None and not ends_by_itself:
            return None
        status = process.wait(SECONDS_TO_END)
        if status != 0 or not ends_by_itself:
            return f"the program ended with status {status}"
        return None
    except subprocess.TimeoutExpired:
        return f"the program has not ended {SECONDS_TO_END} s after its time was up"
    finally:
        kill(process)


def judge(name, samples, contexts, tells_reserved):
    """A row of the table, and what has grown."""
    cells, problems = [], []
    for measure in MEASURES:
        if measure == "reserved" and not tells_reserved:
            cells.append("-")
            continue
        try:
            line = line_of(samples[measure])
        except ValueError as error:
            cells.append("?")
            problems.append(f"{name}: {measure}: {error}")
            continue
        size, unit = UNITS.get(measure, (1, ""))
        cells.append(f"{line.begin / size:.1f}, {3600 * line.slope / size:+.1f} ± {3600 * line.error / size:.1f}")
        if line.has_grown(LEAST[measure]):
            problems.append(f"{name}: {measure} has grown by {line.growth / size:.1f} {unit} in {line.seconds:.0f} s, "
                            f"{line.slope / line.error if line.error else float('inf'):.1f} times the error of the slope")
    return f"| {name} | " + " | ".join(cells) + f" | {contexts} |", problems


def filled(word, build, seconds):
    return word.replace("{build}", str(build)).replace("{seconds}", str(seconds))


def run(name, mode, seconds, build):
    """The mode's row, and its problems."""
    assert seconds / LEAST_INTERVAL > 2 * LEAST_SAMPLES, "too short for a fit"
    command = [filled(word, build, seconds) for word in mode.command]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("EMM_") or key == "EMM_DRIVER"}
    with subprocess.Popen(command, env={**kept, **ALLOCATOR, **mode.variables}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          start_new_session=True) as process:
        stop = threading.Event()
        pausing = threading.Thread(target=pause_again_and_again, args=(build / "tools/emm/emm", process.pid, stop))
        if mode.pauses:
            pausing.start()
        try:
            samples, contexts, watched = watch(process, seconds)
        except BaseException: # a signal ends the soak
            kill(process)
            raise
        finally:
            stop.set()
            if mode.pauses:
                pausing.join()
        problem = end(process, mode.ends)
    row, problems = judge(name, samples, contexts, mode.tells_reserved)
    if problem:
        problems.append(f"{name}: {problem}, after {watched:.0f} s")
    return row, problems
