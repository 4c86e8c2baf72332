"""torch_features.py [FEATURE...]: what PyTorch does with memory beside tensors; without a name all of it."""
import sys
import threading

import torch


def streams():
    total, side = torch.zeros((), device="cuda", dtype=torch.float64), torch.cuda.Stream()
    for i in range(100):
        data = torch.full((1 << 18,), float(i), device="cuda", dtype=torch.float64)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            total += data.sum()
        data.record_stream(side)
        del data
    torch.cuda.synchronize()
    print("streams", total.item())


def graph():
    static, side = torch.zeros(1000, device="cuda"), torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            static * 2 + 1
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        result = static * 2 + 1
    for value in range(5):
        static.fill_(value)
        captured.replay()
        print("graph", result.sum().item())
    captured.reset()


def pinned():
    host = torch.arange(1 << 20, dtype=torch.float32).pin_memory()
    print("pinned", host.is_pinned(), host.to("cuda", non_blocking=True).double().sum().item())


def threads():
    sums = [0.0] * 4

    def work(number):
        for _ in range(50):
            sums[number] = torch.full((1 << 16,), float(number), device="cuda").sum().item()

    running = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    print("threads", sums)


def too_much():
    try:
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
        print("too much: given")
    except torch.OutOfMemoryError:
        print("too much: torch.OutOfMemoryError")
    print("afterwards", torch.ones(1000, device="cuda").sum().item())


def main():
    torch.manual_seed(0)
    product = torch.randn(512, 512, device="cuda", dtype=torch.float64)
    print("matrix product", (product @ product).sum().item().hex())
    features = {each.__name__: each for each in (streams, graph, pinned, threads, too_much)}
    for name in sys.argv[1:] or features:
        features[name]()
    torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
