"""A small GPT: token and position embedding, causal self-attention, MLP, a head tied to the embedding."""
import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, cache=None):
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (t.view(shape).transpose(1, 2) for t in self.qkv(x).split(width, dim=2))
        if cache is not None:
            k, v = cache.append(k, v)
        # One new token may look at all tokens before it; a whole prompt looks only backwards.
        y = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, cache=None):
        x = x + self.attention(self.norm1(x), cache)
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary=4096, context=1024, width=512, heads=8, layers=6):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.apply(self._start_values)
        self.head.weight = self.tokens.weight

    @staticmethod
    def _start_values(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens, caches=None, start=0):
        length = tokens.shape[1]
        positions = torch.arange(start, start + length, device=tokens.device)
        x = self.tokens(tokens) + self.positions(positions)
        for index, block in enumerate(self.blocks):
            x = block(x, caches[index] if caches else None)
        return self.head(self.norm(x))


class Cache:
    """The keys and values of one layer. Each token makes a new, longer pair and drops the old one."""

    def __init__(self):
        self.keys = self.values = None

    def append(self, keys, values):
        if self.keys is not None:
            keys = torch.cat((self.keys, keys), dim=2)
            values = torch.cat((self.values, values), dim=2)
        self.keys, self.values = keys, values
        return keys, values
