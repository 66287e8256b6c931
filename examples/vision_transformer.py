"""A small Vision Transformer in plain torch (Dosovitskiy et al. 2021, arXiv 2010.11929); nothing in it knows of raysm.

It is a sequence of blocks, which is all that a pipeline needs to be cut.
"""

from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional as F


class Patches(nn.Module):
    """Images [N, C, S, S] to tokens [N, 1 + (S / patch)², width]; the first of them will name the class."""

    def __init__(self, channels, size, patch, width):
        super().__init__()
        self.cut = nn.Conv2d(channels, width, patch, stride=patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.place = nn.Parameter(0.02 * torch.randn(1, 1 + (size // patch) ** 2, width))

    def forward(self, images):
        tokens = self.cut(images).flatten(2).transpose(1, 2)
        return torch.cat([self.first.expand(len(images), -1, -1), tokens], dim=1) + self.place


class Block(nn.Module):
    """Attention and a perceptron, each normalised before and added to what came in."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        parts = self.query_key_value(self.before(x)).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        x = x + self.out(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))
        return x + self.perceptron(self.after(x))


class Head(nn.Module):
    """The first token to the classes' scores [N, classes]."""

    def __init__(self, width, classes):
        super().__init__()
        self.norm, self.score = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        return self.score(self.norm(x[:, 0]))


def vision_transformer(*, channels=1, size=8, patch=2, width=64, depth=6, heads=4, classes=10):
    blocks = [(f"block{number}", Block(width, heads)) for number in range(depth)]
    return nn.Sequential(
        OrderedDict([("patches", Patches(channels, size, patch, width)), *blocks, ("head", Head(width, classes))])
    )
