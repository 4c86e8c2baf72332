"""Trains a UNet on images whose sizes change from step to step. Options: busy.py."""
import torch
from torch import nn
from torch.nn import functional as F

import busy


class Residual(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, inside), nn.Conv2d(inside, outside, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(8, outside), nn.Conv2d(outside, outside, 3, padding=1)
        self.straight = nn.Conv2d(inside, outside, 1)

    def forward(self, x):
        y = self.conv1(F.silu(self.norm1(x)))
        return self.straight(x) + self.conv2(F.silu(self.norm2(y)))


class UNet(nn.Module):
    def __init__(self, base, levels):
        super().__init__()
        widths = [base << level for level in range(levels)]
        self.first, self.last = nn.Conv2d(3, base, 3, padding=1), nn.Conv2d(base, 3, 3, padding=1)
        self.down = nn.ModuleList(Residual(max(base, width // 2), width) for width in widths)
        self.up = nn.ModuleList(Residual(width + width * 2, width) for width in widths[:-1])

    def forward(self, x):
        x, kept = self.first(x), []
        for level, block in enumerate(self.down):
            x = block(F.avg_pool2d(x, 2) if level else x)
            kept.append(x)
        for block, skip in zip(reversed(self.up), reversed(kept[:-1])):
            x = block(torch.cat((F.interpolate(x, scale_factor=2.0), skip), dim=1))
        return self.last(x)


def make(device, small):
    base, levels, batch, smallest, largest = (8, 3, 1, 32, 64) if small else (64, 4, 8, 128, 448)
    model = UNet(base, levels).to(device)

    def loss_of(sizes):
        height, width = (sizes.randrange(smallest, largest + 1, 16) for _ in range(2))
        images = torch.randn(batch, 3, height, width, device=device)
        return F.mse_loss(model(images).float(), images)

    return busy.trained(model.parameters(), loss_of, device)


if __name__ == "__main__":
    busy.run(make, 24)
