"""A decoder of random weights, small enough that a long run is about memory."""

from __future__ import annotations

from kvviz.build import Backend, device_name
from kvviz.caches.budget import PoolBudget
from kvviz.shapes import ModelShape

SMALL = ModelShape(
    vocab_size=257,
    hidden_size=48,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=512,
)
_SHARP = 10.0  # attention is then sharp: a wrong key changes the answer


def random_backend(seed: int = 0) -> Backend:
    """Bytes are its tokens; what it says depends on every key and value that it reads."""
    import torch

    from kvviz.model.llama import Llama
    from kvviz.model.prompts import prompts_for
    from kvviz.model.serving import fuse, pick_device

    device = pick_device()
    if device.type == "cpu":
        torch.set_num_threads(1)
    weights = Llama(SMALL, torch.Generator().manual_seed(seed)).state_dict()
    sharp = {n: w if n.endswith("norm.weight") else w * _SHARP for n, w in weights.items()}
    model = fuse(SMALL, sharp, device)
    prompts = prompts_for(model.tokenizer)
    return Backend(model, prompts, PoolBudget.of_host(), device_name(device))
