"""pinned_options.py: pinned memory from a pool that has its options already."""
import emm
import emm.torch
import torch

MIB = 1 << 20
pool = emm.context_named(emm.context_for_device(0), "host", "host_max=64MiB")
emm.torch.use_pinned_memory("host")
kept = torch.empty(40 * MIB, dtype=torch.uint8, pin_memory=True)
assert emm.stats(pool).host_live_bytes == 40 * MIB
try:
    torch.empty(40 * MIB, dtype=torch.uint8, pin_memory=True)
    raise AssertionError("the limit was exceeded")
except RuntimeError as error:
    assert "host_max" in str(error), error
