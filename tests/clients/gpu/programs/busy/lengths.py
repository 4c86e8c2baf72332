"""Trains a transformer on batches whose lengths change from step to step, as sentences do. Options: busy.py."""
import torch
from torch import nn

import busy


def make(device, small):
    width, layers, tokens, longest = (64, 2, 256, 128) if small else (1024, 12, 24576, 2048)
    layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, batch_first=True, dropout=0.0)
    model = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).to(device)

    def loss_of(sizes):
        length = sizes.randrange(longest // 32, longest + 1)
        inputs = torch.randn(max(1, tokens // length), length, width, device=device)
        return (model(inputs).float() ** 2).mean()

    return busy.trained(model.parameters(), loss_of, device)


if __name__ == "__main__":
    busy.run(make, 24)
