"""The weights as serving wants them: fused, on one device, shared by all lanes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from kvviz.model.device import told
from kvviz.model.known import SHIPPED
from kvviz.model.rope import rope_tables
from kvviz.model.tokens import ByteTokenizer, Tokenizer, load_tokenizer
from kvviz.model.weights import load
from kvviz.shapes import ModelShape

MOST_POSITIONS = 1 << 17  # no run has a longer context
PACK_FROM = 8192  # rows of the output matrix; below that, packing gains nothing


@dataclass(frozen=True)
class ServingLayer:
    """Matrices are [in, out], ready for `x @ w`. What the family has not is None: the bias of q,
    k and v [out], the norms of each query and key head [d_h]."""

    norm_attention: torch.Tensor
    qkv: torch.Tensor
    out: torch.Tensor
    norm_mlp: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    qkv_bias: torch.Tensor | None = None
    norm_q: torch.Tensor | None = None
    norm_k: torch.Tensor | None = None


@dataclass(frozen=True)
class ServingModel:
    """cos, sin [positions, d_h / 2] float32; embed [vocab, hidden], unembed its transpose.

    `unembed_packed` is the same matrix as oneDNN wants it, for `product`; None where it would
    not pay. It halves the time of what is two fifths of a small batch's step at 49,152 tokens.
    """

    shape: ModelShape
    device: torch.device
    embed: torch.Tensor
    unembed: torch.Tensor
    norm: torch.Tensor
    layers: tuple[ServingLayer, ...]
    cos: torch.Tensor
    sin: torch.Tensor
    tokenizer: Tokenizer
    unembed_packed: torch.Tensor | None = None


def pick_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def load_serving(folder: Path | None = None, device: torch.device | None = None) -> ServingModel:
    """Read a checkpoint folder (the shipped one when None). Raises CheckpointError, and
    CapacityError when the device has no room for it."""
    device = device or pick_device()
    if device.type == "cpu":
        # Two threads gave 0.8 to 1.5 times one thread's speed at this size, and long stalls while
        # a browser drew. The engine takes one core and leaves the others to the page.
        torch.set_num_threads(1)
    folder = folder or SHIPPED
    shape, weights = load(folder)
    tokenizer = load_tokenizer(folder, shape.vocab_size)
    with told(device, f"the model in {folder}", "Choose a smaller model, or free the device."):
        return fuse(shape, weights, device, tokenizer)


def fuse(
    shape: ModelShape,
    weights: dict[str, torch.Tensor],
    device: torch.device,
    tokenizer: Tokenizer | None = None,
) -> ServingModel:
    """Fewer, larger products: q, k, v in one, gate and up in one. Tokens are bytes by default."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32

    def put(*names: str) -> torch.Tensor:
        found = [weights[name] for name in names]
        stacked = torch.cat(found) if len(found) > 1 else found[0]
        return stacked.to(device, dtype).contiguous()

    layers = []
    for index in range(shape.num_hidden_layers):
        at = f"model.layers.{index}."
        qkv = [f"{at}self_attn.{n}_proj.weight" for n in "qkv"]
        gate_up = [f"{at}mlp.{n}_proj.weight" for n in ("gate", "up")]
        layers.append(
            ServingLayer(
                put(f"{at}input_layernorm.weight"),
                put(*qkv).t(),
                put(f"{at}self_attn.o_proj.weight").t(),
                put(f"{at}post_attention_layernorm.weight"),
                put(*gate_up).t(),
                put(f"{at}mlp.down_proj.weight").t(),
                put(*[f"{at}self_attn.{n}_proj.bias" for n in "qkv"]) if shape.qkv_bias else None,
                put(f"{at}self_attn.q_norm.weight") if shape.qk_norm else None,
                put(f"{at}self_attn.k_norm.weight") if shape.qk_norm else None,
            )
        )
    embed = put("model.embed_tokens.weight")
    head = embed if shape.tie_word_embeddings else put("lm_head.weight")
    cos, sin = rope_tables(shape, min(shape.max_position_embeddings, MOST_POSITIONS))
    return ServingModel(
        shape,
        device,
        embed,
        head.t(),
        put("model.norm.weight"),
        tuple(layers),
        cos.to(device),
        sin.to(device),
        tokenizer or ByteTokenizer(),
        pack(head) if device.type == "cpu" and len(head) >= PACK_FROM else None,
    )


def pack(matrix: torch.Tensor) -> torch.Tensor | None:
    """[out, in] in oneDNN's own order; None where torch was built without it."""
    if not torch.backends.mkldnn.is_available():
        return None
    return torch.ops.mkldnn._reorder_linear_weight(matrix, None)


def product(x: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
    """x [n, in] times a packed matrix: [n, out]. A row's bits do not depend on n."""
    return torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")
