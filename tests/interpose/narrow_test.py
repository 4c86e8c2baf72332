#!/usr/bin/env python3
"""narrow_test.py NARROW EMM TRAFFIC DRIVER: traffic/narrow.py tells of each variant whether it fails, and keeps what a failed run
wrote."""

import os
import pathlib
import subprocess
import sys
import tempfile


def narrow(script, emm, traffic, driver, simulated):
    environment = dict(os.environ, EMM_DRIVER='sim', EMM_SIM=f'devices=1,memory=384MiB,progress=random{simulated}',
                       LD_LIBRARY_PATH=os.path.dirname(driver))
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, script, emm, traffic, folder, '--left', '0', '--runs', '1', '--seconds', '1'],
                              env=environment, capture_output=True, text=True, timeout=200)
        logs = [log.read_text() for log in sorted(pathlib.Path(folder).iterdir())]
    told = [line for line in done.stdout.splitlines() if line.endswith(' failed')]
    assert len(told) == len(logs) > 10, f'expected a line for each log, found {done.stdout}{done.stderr}'
    return done.returncode, told, logs


def main():
    status, told, logs = narrow(*sys.argv[1:], simulated=',fail=cuMemsetD32Async@200:700')
    assert status == 1 and all(line.endswith(': 1 of 1 failed') for line in told), f'not all have failed: {told}'
    assert all('the context is lost' in log for log in logs), f'not all say why: {logs}'
    status, told, logs = narrow(*sys.argv[1:], simulated='')
    assert status == 0 and all(line.endswith(': 0 of 1 failed') for line in told), f'some have failed: {told} {logs}'


main()
