"""Generates text with a decoder: batches of prompts of changing lengths are served two at a time, their keys and
values grow token by token, and another batch takes the place of one that has ended. A step is a token of each batch.
Options: busy.py."""
import pathlib
import sys

import torch

import busy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[4] / "traces"))
import gpt  # noqa: E402

VOCABULARY, SERVED = 4096, 2


class Batch:
    def __init__(self, model, layers, prompts, most):
        self.model, self.caches = model, [gpt.Cache() for _ in range(layers)]
        self.length, self.most = prompts.shape[1], most
        self.tokens = self.chosen(model(prompts, self.caches))

    @staticmethod
    def chosen(logits):
        """Drawn at random. multinomial would wait for the GPU."""
        last = logits[:, -1].float()
        return (last - torch.empty_like(last).exponential_().log()).argmax(dim=-1, keepdim=True)

    def is_over(self):
        return self.length >= self.most

    def go_on(self):
        self.tokens = self.chosen(self.model(self.tokens, self.caches, self.length))
        self.length += 1


def make(device, small):
    width, layers, batch, context = (64, 2, 2, 64) if small else (1024, 12, 96, 1024)
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    model = gpt.GPT(VOCABULARY, context, width, width // 64, layers).to(device, kind)
    served, of_round = [], [None]

    def begin(sizes):
        prompt = sizes.randrange(context // 16, context // 2)
        prompts = torch.randint(VOCABULARY, (sizes.randrange(batch // 2, batch + 1), prompt), device=device)
        return Batch(model, layers, prompts, min(context, prompt + sizes.randrange(context // 16, context // 2)))

    @torch.no_grad()
    def step(sizes):
        served[:] = [each for each in served if sizes is of_round[0] and not each.is_over()]
        of_round[0] = sizes
        while len(served) < SERVED:
            served.append(begin(sizes))
        for each in served:
            each.go_on()
        return served[0].tokens.float().mean()

    return step


if __name__ == "__main__":
    busy.run(make, 384)
