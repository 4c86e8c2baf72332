"""Trains a mixture of experts. How many tokens each expert gets changes with each layer of each step, and is known on
the CPU beforehand, so that nothing waits for the GPU. Options: busy.py."""
import torch
from torch import nn
from torch.nn import functional as F

import busy

EXPERTS, CHOSEN = 8, 2


class Mixture(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.gate = nn.Linear(width, EXPERTS)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
                                     for _ in range(EXPERTS))

    def forward(self, x, shares):
        """The tokens in random order, so many for each expert."""
        tokens = self.norm(x)
        gates = self.gate(tokens).softmax(dim=-1)
        added = torch.zeros_like(x)
        for expert, part in enumerate(torch.randperm(x.shape[0] * CHOSEN, device=x.device).split(shares)):
            chosen = part % x.shape[0]
            done = self.experts[expert](tokens[chosen]) * gates[chosen, expert].unsqueeze(1)
            added = added.index_add(0, chosen, done.to(added.dtype))
        return x + added


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, length):
        parts = self.qkv(self.norm(x)).view(-1, length, 3, x.shape[1] // 64, 64).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).reshape(x.shape))


def shares_of(sizes, tokens):
    """So many tokens for each expert, and no fewer than one."""
    weights = [sizes.lognormvariate(0, 0.7) for _ in range(EXPERTS)]
    shares = [1 + int((tokens - EXPERTS) * weight / sum(weights)) for weight in weights]
    shares[0] += tokens - sum(shares)
    return shares


def make(device, small):
    width, layers, tokens, length = (64, 2, 128, 32) if small else (1024, 6, 16384, 512)
    attention = nn.ModuleList(Attention(width) for _ in range(layers)).to(device)
    mixtures = nn.ModuleList(Mixture(width) for _ in range(layers)).to(device)

    def loss_of(sizes):
        x = torch.randn(tokens, width, device=device)
        for attend, mix in zip(attention, mixtures):
            x = mix(attend(x, length), shares_of(sizes, tokens * CHOSEN))
        return (x.float() ** 2).mean()

    return busy.trained([*attention.parameters(), *mixtures.parameters()], loss_of, device)


if __name__ == "__main__":
    busy.run(make, 24)
