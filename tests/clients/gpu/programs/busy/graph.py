"""Trains a graph network: each step has another graph, of other numbers of nodes and edges. Options: busy.py."""
import torch
from torch import nn

import busy


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))
        self.update = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, x, source, target):
        messages = self.message(torch.cat((x[source], x[target]), dim=1))
        received = torch.zeros_like(x).index_add(0, target, messages.to(x.dtype))
        return x + self.update(torch.cat((x, received), dim=1))


def make(device, small):
    width, layers, fewest, most = (16, 2, 50, 200) if small else (256, 6, 10_000, 60_000)
    encode = nn.Linear(16, width).to(device)
    model = nn.ModuleList(Layer(width) for _ in range(layers)).to(device)

    def loss_of(sizes):
        nodes = int(fewest * (most / fewest) ** sizes.random())
        edges = int(nodes * sizes.uniform(4, 16))
        source, target = torch.randint(nodes, (2, edges), device=device)
        x = encode(torch.randn(nodes, 16, device=device))
        for layer in model:
            x = layer(x, source, target)
        return (x.float() ** 2).mean()

    return busy.trained([*encode.parameters(), *model.parameters()], loss_of, device)


if __name__ == "__main__":
    busy.run(make, 64)
