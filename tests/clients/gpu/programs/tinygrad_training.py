"""tinygrad_training.py: tinygrad on its CUDA device, which uses the driver API by ctypes."""
import os

os.environ.setdefault("CUDA", "1")
os.environ.setdefault("DEV", "CUDA")

from tinygrad import Context, Tensor, nn


def main():
    Tensor.manual_seed(0)
    weights = [Tensor.randn(128, 128) * 0.1 for _ in range(3)]
    for weight in weights:
        weight.requires_grad = True
    optimizer = nn.optim.SGD(weights, 0.01)
    inputs = Tensor.randn(64, 128)
    with Context(TRAINING=1):
        for _ in range(20):
            result = inputs
            for weight in weights:
                result = (result @ weight).tanh()
            loss = (result ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(loss.item().hex())


if __name__ == "__main__":
    main()
