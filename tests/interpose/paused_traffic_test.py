#!/usr/bin/env python3
"""paused_traffic_test.py EMM TRAFFIC PLUGIN ARGUMENT...: random traffic goes on as ever, with all that it checks, while
emm pause and emm resume put it to sleep and wake it again and again. A pause may be refused for a capture, or because
work or a reset goes on; a resume never is. One that meets the program's end hears no answer."""
import contextlib
import subprocess
import sys
import time

EMM, TRAFFIC, PLUGIN = sys.argv[1:4]
NO_PROCESS = ("is not a process of this user that uses emm", "there is no process")
REFUSALS = ("a capture is in progress", "its work on the device did not end within", "is busy: a thread of the program",
            *NO_PROCESS)
HUNG_UP = "hung up without an answer"
LEAST_PAUSES = 3
SECONDS_TO_END = 30


def ask(*words):
    return subprocess.run([EMM, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=120, check=False)


def met_the_end(answer, program):
    """Whether what was asked got no answer because the program was ending."""
    if HUNG_UP in answer.stderr:
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(SECONDS_TO_END)
    return program.poll() is not None


def main():
    program = subprocess.Popen([EMM, "run", "--pausable", "--plugin", PLUGIN, "--", TRAFFIC, *sys.argv[4:]])
    pauses, refusals = 0, {}
    try:
        while program.poll() is None:
            paused = ask("pause", program.pid, "--limit", "0.5")
            why = next((words for words in REFUSALS if words in paused.stderr), None)
            if paused.returncode == 0:
                pauses += 1
            elif why:
                refusals[why] = refusals.get(why, 0) + 1
            elif not met_the_end(paused, program):
                sys.exit(f"the pause failed: {paused.stderr}")
            resumed = ask("resume", program.pid)
            known = any(words in resumed.stderr for words in NO_PROCESS)
            if resumed.returncode != 0 and not known and not met_the_end(resumed, program):
                sys.exit(f"the resume failed: {resumed.stderr}")
            time.sleep(0.01)
        print(f"{pauses} pauses; refused: {refusals}")
        sys.exit(program.returncode or pauses < LEAST_PAUSES)
    finally:
        program.kill()
        program.wait()


if __name__ == "__main__":
    main()
