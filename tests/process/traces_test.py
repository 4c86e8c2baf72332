#!/usr/bin/env python3
"""traces_test.py quick|full TRACES PLUGIN...: every trace, through every plugin, fails nothing, leaks
nothing and hands nothing over too early.

TRACES is a folder of recordings; EMM_TEST_TRACES may name another. `quick` touches the memory while
work is pending; `full` does so in every mode of the simulated driver and in both orders.
"""
import itertools
import os
import pathlib
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor

from emm_program import answer

LEVEL, FOLDER, PLUGINS = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
PROGRESS = ["eager", "lazy", "random"]
# (order, touched, progress)
WAYS = {"quick": [("strict", False, "eager"), ("strict", True, "lazy")],
        "full": [(order, False, "eager") for order in ("strict", "free")]
                + [(order, True, progress) for order in ("strict", "free")
                   for progress in PROGRESS]}[LEVEL]


# A pool of pages must do with this share of the peak of live memory. infer_gpt's peak is 92 pages of 2 MiB, and 1.05
# times the peak is one page short for one request.
TIGHT = {"train_gpt.csv.gz": 1.05, "infer_gpt.csv.gz": 1.06}


def traces():
    folders = [FOLDER]
    if os.environ.get("EMM_TEST_TRACES"):
        folders.append(pathlib.Path(os.environ["EMM_TEST_TRACES"]))
    files = [path for folder in folders for pattern in ("*.csv", "*.csv.gz")
             for path in sorted(folder.glob(pattern))]
    return [[path] for path in files] + [["--generate", name] for name in
                                         ("train", "dataframe", "arrays", "serve", "overlap")]


def replayed(trace, order, touched, progress):
    arguments = [word for plugin in PLUGINS for word in ("--plugin", plugin)]
    arguments += ["--order", order] + (["--touch"] if touched else [])
    return answer("replay", *trace, *arguments,
                  EMM_SIM=f"progress={progress},memory=256GiB")["results"]


class Traces(unittest.TestCase):
    def test_every_trace_replays_on_every_plugin(self):
        found = traces()
        self.assertGreater(len(found), 4, f"no recordings in {FOLDER}")
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            runs = [(trace, way, pool.submit(replayed, trace, *way))
                    for trace, way in itertools.product(found, WAYS)]
            for trace, way, run in runs:
                with self.subTest(trace=str(trace[-1]), way=way):
                    self.check(run.result())

    def test_little_more_than_what_is_live_is_enough_for_pages(self):
        for path, share in ((FOLDER / name, share) for name, share in TIGHT.items()):
            with self.subTest(trace=path.name):
                def run(options):
                    return answer("replay", path, "--plugin", f"pool:growth=vmm{options}",
                                  EMM_SIM="memory=256GiB")["results"][0]
                most = int(run("")["peak_live_bytes"] * share)
                result = run(f",max={most}")
                self.check([result])
                self.assertLessEqual(result["peak_reserved_bytes"], most)

    def check(self, results):
        for result in results:
            self.assertEqual((result["failed"], result["leaked"], result["early_handovers"]),
                             (0, 0, 0), result)
            self.assertGreater(result["events"], 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
