#!/usr/bin/env python3
"""RMM on its own resources and on emm. Needs a GPU.

    rmm_clients.py FOLDER

First the tests that the simulated driver passes too; then programs, each resource in a process of its own:
buffers come and go on several streams while their bytes are copied, and what comes back must be the same.
With CuPy installed it computes on memory of RMM, whose results must be equal to the bit. At last RMM's own tests, on
its resource and on emm (rmm_suite.py), if EMM_TEST_RMM names a checkout of RMM.
"""
import hashlib
import importlib.util
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TESTS = HERE.parent / "python/rmm_test.py"
RESOURCES = ["rmm cuda", "rmm async", "passthrough", "async", "pool", "pool:growth=segment"]


def choose(resource):
    """Makes it RMM's resource of the current device."""
    import rmm
    if resource == "rmm async":
        rmm.mr.set_current_device_resource(rmm.mr.CudaAsyncMemoryResource())
    elif resource != "rmm cuda":
        os.environ["EMM_PLUGIN"] = resource
        import emm.rmm
        emm.rmm.use()


def copied(rounds):
    """Buffers on three streams: the digest of all bytes that come back."""
    import rmm
    from rmm.pylibrmm.stream import Stream
    streams = [Stream() for _ in range(3)]
    digest, kept = hashlib.sha256(), []
    for turn in range(rounds):
        data = bytes([turn % 251]) * (1 + turn * 7919 % 200_000)
        kept.append(rmm.DeviceBuffer.to_device(data, stream=streams[turn % 3]))
        if len(kept) > 20:
            digest.update(kept.pop(turn % 20).tobytes())
    for buffer in kept:
        digest.update(buffer.tobytes())
    return digest.hexdigest()[:16]


def computed(rounds):
    """CuPy's arrays in memory of RMM: the digest of their sums."""
    import cupy
    from rmm.allocators.cupy import rmm_cupy_allocator
    cupy.cuda.set_allocator(rmm_cupy_allocator)
    sums = []
    for turn in range(rounds):
        x = cupy.arange(1000 + turn * 7919 % 200_000, dtype=cupy.float32)
        sums.append(float((cupy.sqrt(x * 2 + 1) - x / 3).sum()).hex())
    return hashlib.sha256("".join(sums).encode()).hexdigest()[:16]


def program(resource):
    choose(resource)
    print(copied(2000), computed(500) if importlib.util.find_spec("cupy") else "no CuPy")
    if not resource.startswith("rmm"):
        import emm
        found = emm.stats(emm.context_for_device(0))
        print(f"emm: {found.allocations} allocations, {found.live_bytes} bytes live")


def said_by(*command, **variables):
    done = subprocess.run([sys.executable, "-B", *command], env={**os.environ, **variables}, text=True,
                          capture_output=True, timeout=600, check=False)
    return done.returncode, (done.stdout + done.stderr).strip()


def suite_failed(folder):
    """Whether RMM's own tests found something; without a checkout they are skipped by name."""
    checkout = os.environ.get("EMM_TEST_RMM")
    if not checkout:
        print("skipped: RMM's own tests: EMM_TEST_RMM names no checkout")
        return False
    done = subprocess.run([sys.executable, "-B", HERE / "rmm_suite.py", folder, checkout], check=False)
    return done.returncode not in (0, 77)


def main():
    if importlib.util.find_spec("rmm") is None:
        print("skipped: rmm is not installed")
        return 77
    status, said = said_by(str(TESTS), EMM_PLUGIN="pool")
    print(said.splitlines()[-1])
    results, failed = set(), status != 0
    for resource in RESOURCES:
        status, said = said_by(__file__, "--program", resource)
        print(f"{resource}: {said}")
        failed = failed or status != 0
        results.add(said.partition("\n")[0])
    print("all results are equal" if len(results) == 1 else f"results differ: {results}")
    failed = suite_failed(sys.argv[1]) or failed
    return 1 if failed or len(results) != 1 else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--program"]:
        program(sys.argv[2])
    else:
        sys.exit(main())
