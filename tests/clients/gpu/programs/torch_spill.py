"""torch_spill.py GIB: an inference whose weights and kept activations come to so many GiB; the bits of what it gives.

Layers of 256 MiB, each with an output of 32 MiB that is kept to the end of a pass, as a model does that gives all of
its hidden states. Every seed is fixed. Needs no setting of PyTorch's allocator: with its cache, a block of this size is
one request to the driver, and the allocator behind it decides where its pieces lie.
"""
import hashlib
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # for the same results each time

import torch

WIDTH, ROWS, PASSES = 8192, 1024, 3
LAYER_MIB, OUTPUT_MIB = WIDTH * WIDTH * 4 >> 20, WIDTH * ROWS * 4 >> 20


def weights(count):
    random = torch.Generator("cuda").manual_seed(0)
    return [torch.empty(WIDTH, WIDTH, device="cuda").normal_(0, (2 / WIDTH) ** 0.5, generator=random) for _ in range(count)]


def infer(layers, inputs):
    """Every layer's output."""
    states = [inputs]
    for layer in layers:
        states.append(torch.nn.functional.layer_norm(torch.mm(states[-1], layer).relu_(), (WIDTH,)))
    return states


def digest(states):
    """A checksum of the bits of all states; their sums are exact."""
    sums = torch.stack([state.view(torch.int32).sum(dtype=torch.int64) for state in states])
    return hashlib.sha256(sums.cpu().numpy().tobytes() + states[-1].cpu().numpy().tobytes()).hexdigest()[:16]


def timed(name, function):
    begin = time.perf_counter()
    result = function()
    torch.cuda.synchronize()
    print(f"figure {name}-s {time.perf_counter() - begin:.3f}")
    return result


def main():
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    count = -(-int(sys.argv[1]) * 1024 // (LAYER_MIB + OUTPUT_MIB))
    with torch.inference_mode():
        layers = timed("load", lambda: weights(count))
        inputs = torch.randn(ROWS, WIDTH, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
        for number in range(PASSES):
            states = timed("first-pass" if number == 0 else f"pass-{number + 1}", lambda: infer(layers, inputs))
            print(f"pass {number + 1}: {count} layers, {digest(states)}")
            live = sum(each.nbytes for each in (*layers, *states))
            del states
    print(f"{live / (1 << 30):.2f} GiB live at the end of a pass")


if __name__ == "__main__":
    main()
