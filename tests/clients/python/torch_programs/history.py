"""history.py: torch.cuda.memory._record_memory_history and _snapshot."""
import pickle
import tempfile

import emm.torch
import torch

emm.torch.use()


def make_tensor(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


unrecorded = make_tensor(100)
torch.cuda.memory._record_memory_history(max_entries=6)
assert torch._C._cuda_isHistoryEnabled()
kept, gone = make_tensor(5000), make_tensor(7000)
del gone
snapshot = torch.cuda.memory._snapshot()
actions = [(entry["action"], entry["size"]) for entry in snapshot["device_traces"][0]]
assert actions == [("alloc", 5000), ("alloc", 7000), ("free_requested", 7000),
                   ("free_completed", 7000)], actions  # a snapshot lists those before it, not itself
names = {frame["name"] for frame in snapshot["device_traces"][0][0]["frames"]}
assert "make_tensor" in names, names
segments = snapshot["segments"]
assert sum(segment["total_size"] for segment in segments) == torch.cuda.memory_reserved()
assert sum(segment["allocated_size"] for segment in segments) == torch.cuda.memory_allocated() == 512 + 5120
blocks = {block["requested_size"]: block for segment in segments for block in segment["blocks"]
          if block["state"] == "active_allocated"}
assert set(blocks) == {100, 5000}, blocks
assert "snapshot" in [entry["action"] for entry in torch.cuda.memory._snapshot()["device_traces"][0]]
block = blocks[5000]
assert block["size"] == 5120 and block["requested_size"] == 5000
assert block["state"] == "active_allocated" and block["address"] == kept.data_ptr()
assert any(frame["name"] == "make_tensor" for frame in block["frames"])

for _ in range(10):  # the oldest entries go
    make_tensor(1)
assert len(torch.cuda.memory._snapshot()["device_traces"][0]) <= 6
try:
    make_tensor(1 << 40)
except torch.OutOfMemoryError:
    pass
entries = torch.cuda.memory._snapshot()["device_traces"][0]
assert "oom" in [entry["action"] for entry in entries]
with tempfile.NamedTemporaryFile() as file:
    torch.cuda.memory._dump_snapshot(file.name)
    assert len(pickle.load(file)["segments"]) == len(segments)

torch.cuda.memory._record_memory_history(enabled=None)
assert not torch._C._cuda_isHistoryEnabled()
assert torch.cuda.memory._snapshot()["device_traces"][0] == []
