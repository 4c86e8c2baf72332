"""streams.py: tensors that are used on other streams; the driver reports what is reused too early."""
import emm
import emm.torch
import torch

MIB = 1 << 20

emm.torch.use()
producer, consumer = torch.cuda.Stream(), torch.cuda.Stream()
source = torch.arange(MIB, dtype=torch.uint8)
for turn in range(20):
    with torch.cuda.stream(producer):
        first = source.to("cuda")
    consumer.wait_stream(producer)
    with torch.cuda.stream(consumer):
        copy = first.clone()
    first.record_stream(consumer)
    first.record_stream(consumer)
    del first
    with torch.cuda.stream(producer):
        others = [torch.empty(MIB, dtype=torch.uint8, device="cuda").copy_(source) for _ in range(4)]
    torch.cuda.synchronize()
    assert torch.equal(copy.cpu(), source)
    del others, copy
torch.cuda.empty_cache()
assert emm.stats(emm.context_for_device(0)).live_bytes == 0
