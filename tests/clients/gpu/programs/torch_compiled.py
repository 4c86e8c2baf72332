"""torch_compiled.py: torch.compile(mode="reduce-overhead"), which captures graphs with memory of their own."""
import torch
from torch import nn


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest")
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)).to("cuda")
    compiled = torch.compile(model, mode="reduce-overhead")
    for size in (8, 64, 8, 64):
        inputs = torch.randn(size, 256, device="cuda")
        with torch.no_grad():
            for _ in range(5):
                result = compiled(inputs).double().sum().item()
        print("inference", size, result.hex())
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for _ in range(8):
        torch.compiler.cudagraph_mark_step_begin()
        loss = (compiled(torch.randn(64, 256, device="cuda")) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("training", loss.item().hex())


if __name__ == "__main__":
    main()
