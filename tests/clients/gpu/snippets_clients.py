#!/usr/bin/env python3
"""snippets_clients.py FOLDER: the snippets of tools/python/README.md, those that need a GPU too."""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
test = ROOT / "tests/clients/python/snippets_test.py"
sys.exit(subprocess.call([sys.executable, "-B", test, ROOT / "tools/python/README.md"],
                         env={**os.environ, "EMM_PLUGIN": "pool"}))
