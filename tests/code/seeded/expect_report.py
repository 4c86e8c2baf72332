#!/usr/bin/env python3
"""expect_report.py TEXT COMMAND...: passes if the command fails and says TEXT."""
import subprocess
import sys

text, command = sys.argv[1], sys.argv[2:]
done = subprocess.run(command, capture_output=True, text=True, check=False)
if done.returncode == 0 or text not in done.stdout + done.stderr:
    sys.exit(f"expected a failure that says {text!r}, found status {done.returncode} and\n"
             f"{done.stdout}{done.stderr}")
