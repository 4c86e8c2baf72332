"""transformers_training.py: trains a small GPT-2 of the transformers library, from its configuration alone."""
import hashlib
import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # for the same results each time

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def main():
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    config = GPT2Config(vocab_size=4096, n_positions=256, n_embd=256, n_layer=4, n_head=4, resid_pdrop=0.0,
                        embd_pdrop=0.0, attn_pdrop=0.0, attn_implementation="eager")
    model = GPT2LMHeadModel(config).to("cuda").train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    lengths, losses = torch.Generator().manual_seed(1), []
    for _ in range(40):
        length = int(torch.randint(16, 256, (1,), generator=lengths))
        tokens = torch.randint(4096, (8, length), generator=lengths).to("cuda")
        loss = model(tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    bits = torch.stack(losses).cpu().numpy().tobytes()
    print("losses", hashlib.sha256(bits).hexdigest()[:16], f"{losses[-1].item():.6f}")


if __name__ == "__main__":
    main()
