"""Trains a detector of two stages: batches of images of changing sizes, each image with another number of proposals,
which are cut out of the features and classified. The proposals are drawn at random. Options: busy.py."""
import torch
from torch import nn
from torch.nn import functional as F

import busy

CLASSES, ANCHORS, CUT = 80, 9, 7


def stage(inside, outside, blocks):
    """Halves the size, as those of ResNet do."""
    layers = [nn.Conv2d(inside, outside, 3, stride=2, padding=1), nn.GroupNorm(8, outside), nn.ReLU()]
    for _ in range(blocks):
        layers += [nn.Conv2d(outside, outside, 3, padding=1), nn.GroupNorm(8, outside), nn.ReLU()]
    return nn.Sequential(*layers)


class Detector(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.stages = nn.ModuleList(stage(3 if level == 0 else base << level - 1, base << level, 2) for level in range(4))
        self.sideways = nn.ModuleList(nn.Conv2d(base << level, 4 * base, 1) for level in range(1, 4))
        self.anchors = nn.Conv2d(4 * base, ANCHORS * 5, 3, padding=1)
        self.head = nn.Sequential(nn.Linear(4 * base * CUT * CUT, 16 * base), nn.ReLU(), nn.Linear(16 * base, CLASSES + 4))

    def forward(self, images, proposals):
        features, x = [], images
        for level in self.stages:
            x = level(x)
            features.append(x)
        pyramid = [self.sideways[-1](features[-1])]
        for lateral, finer in zip(reversed(self.sideways[:-1]), reversed(features[1:-1])):
            pyramid.append(lateral(finer) + F.interpolate(pyramid[-1], size=finer.shape[2:]))
        found = [self.head(cut_out(pyramid[-1][each], count).flatten(1)) for each, count in enumerate(proposals)]
        return [self.anchors(level) for level in pyramid], torch.cat(found)


def cut_out(features, count):
    """So many boxes of it, CUT by CUT."""
    corners, extents = torch.rand(count, 1, 1, 2, device=features.device) * 1.5 - 1, 0.5
    line = torch.linspace(0, extents, CUT, device=features.device)
    inner = torch.stack(torch.meshgrid(line, line, indexing="ij"), dim=-1)
    grid = (corners + inner).to(features.dtype)
    rows = F.grid_sample(features.unsqueeze(0), grid.view(1, count, CUT * CUT, 2), align_corners=False)
    return rows.squeeze(0).transpose(0, 1)


def make(device, small):
    base, batch, smallest, largest, most = (8, 2, 64, 128, 16) if small else (64, 8, 320, 896, 1000)
    model = Detector(base).to(device)

    def loss_of(sizes):
        height, width = (sizes.randrange(smallest, largest + 1, 32) for _ in range(2))
        proposals = [sizes.randrange(most // 16, most + 1) for _ in range(batch)]
        anchors, found = model(torch.randn(batch, 3, height, width, device=device), proposals)
        labels = torch.randint(CLASSES, (found.shape[0],), device=device)
        boxes = sum((level.float() ** 2).mean() for level in anchors)
        return F.cross_entropy(found[:, :CLASSES].float(), labels) + (found[:, CLASSES:].float() ** 2).mean() + boxes

    return busy.trained(model.parameters(), loss_of, device)


if __name__ == "__main__":
    busy.run(make, 24)
