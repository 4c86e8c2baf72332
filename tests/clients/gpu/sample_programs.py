"""Sample programs of other people's as tests: each has passed if it ends with status 0."""
import os
import re
import subprocess
import sys
import time

SECONDS = 60  # for a program
STATISTICS = re.compile(r"^ *context +plugin +allocations", re.M)


def run(log, prefix, programs, timeout):
    """Runs the programs behind the words of `prefix`, and writes their output beside `log`. The result is as that of
    pytest_suite.run: a program in which emm had a context counts as served once."""
    begin, tests, served = time.monotonic(), {}, 0
    report = log.with_suffix(".stats")
    with open(log.with_suffix(".log"), "w", encoding="utf-8") as file:
        for program in programs:
            if time.monotonic() - begin > timeout:
                return {"tests": tests, "served": served, "finished": False, "seconds": time.monotonic() - begin}
            report.unlink(missing_ok=True)
            tests[f"{program.parent.name}/{program.name}"] = outcome_of(prefix, program, report, file)
            served += bool(report.is_file() and STATISTICS.search(report.read_text(encoding="utf-8", errors="replace")))
    return {"tests": tests, "served": served, "finished": True, "seconds": time.monotonic() - begin}


def outcome_of(prefix, program, report, file):
    """Passed or failed, and the last line of what it says."""
    variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "EMM_STATS": "exit", "EMM_LOG": f"warn:{report}"}
    try:
        done = subprocess.run([*prefix, sys.executable, str(program)], cwd=report.parent, env=variables, text=True,
                              errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return "failed", f"it has not ended after {SECONDS} s"
    file.write(f"== {program}: {done.returncode}\n{done.stdout}\n")
    last = (done.stdout.strip().splitlines() or [""])[-1]
    return ("passed", "") if done.returncode == 0 else ("failed", f"status {done.returncode}: {last}"[:200])
