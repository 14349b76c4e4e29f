"""A plain Llama decoder: the reference that every cached path is compared with.

Parameter names are those of Hugging Face's `LlamaForCausalLM`, so one file of weights serves both;
Mistral's, Qwen2's and Qwen3's layers are the same with a window, biases or norms more.
There is no KV cache here. Shapes use B sequences, T tokens, D hidden size, H query heads,
G key/value heads and d head dimension.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kvviz.model.rope import rope_tables
from kvviz.shapes import ModelShape

INIT_STD = 0.02


class RMSNorm(nn.Module):
    """Root-mean-square normalisation over the last axis, with a learned gain and no bias."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """[..., size] -> [..., size]."""
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


def rotate_half(x: Tensor) -> Tensor:
    """(a, b) -> (-b, a) on the two halves of the last axis."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate [B, heads, T, d] by the [T, d] tables; keeps the dtype of `x`."""
    return x * cos.to(x.dtype) + rotate_half(x) * sin.to(x.dtype)


def _head_norm(shape: ModelShape) -> nn.Module:
    """Over each head's queries or keys, where the family has such a norm."""
    return RMSNorm(shape.head_dim, shape.rms_norm_eps) if shape.qk_norm else nn.Identity()


class Attention(nn.Module):
    """Causal grouped-query attention: H query heads share G key/value heads."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.head_dim = shape.head_dim
        self.window = shape.sliding_window
        self.group = shape.num_attention_heads // shape.num_key_value_heads
        hidden, bias = shape.hidden_size, shape.qkv_bias
        query = shape.num_attention_heads * shape.head_dim
        shared = shape.num_key_value_heads * shape.head_dim
        self.q_proj = nn.Linear(hidden, query, bias=bias)
        self.k_proj = nn.Linear(hidden, shared, bias=bias)
        self.v_proj = nn.Linear(hidden, shared, bias=bias)
        self.o_proj = nn.Linear(query, hidden, bias=False)
        self.q_norm, self.k_norm = _head_norm(shape), _head_norm(shape)

    def _heads(self, x: Tensor) -> Tensor:
        """[B, T, heads * d] -> [B, T, heads, d]."""
        return x.unflatten(-1, (-1, self.head_dim))

    def _mask(self, length: int, device: torch.device) -> Tensor | None:
        """bool [T, T]: which tokens a token sees; None where causality says it all."""
        if not 0 < self.window < length:
            return None
        seen = torch.ones(length, length, dtype=torch.bool, device=device).tril()
        return seen.triu(1 - self.window)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """[B, T, D] with [T, d] tables -> [B, T, D]."""
        q = apply_rope(self.q_norm(self._heads(self.q_proj(x))).transpose(1, 2), cos, sin)
        k = apply_rope(self.k_norm(self._heads(self.k_proj(x))).transpose(1, 2), cos, sin)
        v = self._heads(self.v_proj(x)).transpose(1, 2)
        # Heads are repeated here because the CPU's fused kernel wants equal head counts.
        k = k.repeat_interleave(self.group, dim=1)
        v = v.repeat_interleave(self.group, dim=1)
        mask = self._mask(x.shape[1], x.device)
        # Float32 even under autocast: the CPU's bfloat16 backward pass is slower than this one.
        with torch.autocast(x.device.type, enabled=False):
            mixed = F.scaled_dot_product_attention(
                q.float(), k.float(), v.float(), attn_mask=mask, is_causal=mask is None
            )
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x))."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        hidden, inner = shape.hidden_size, shape.intermediate_size
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    """Pre-norm attention and MLP, each added to the residual stream."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.mlp = MLP(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Embedding, layers and final norm: what Hugging Face keeps under `model.`."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(shape) for _ in range(shape.num_hidden_layers))
        self.norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, T] int64 -> [B, T, D] after the final norm."""
        x = self.embed_tokens(tokens)
        # Both halves of a head turn by the same d/2 angles: the "rotate half" convention.
        cos, sin = (t.repeat(1, 2) for t in rope_tables(self.shape, tokens.shape[1]))
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)


def parameter_shapes(shape: ModelShape) -> dict[str, tuple[int, ...]]:
    """Name and size of every weight of a `Llama` of this shape, by arithmetic: building one on
    the meta device to ask it imports seconds' worth of torch."""
    hidden, inner, d = shape.hidden_size, shape.intermediate_size, shape.head_dim
    query, shared = shape.num_attention_heads * d, shape.num_key_value_heads * d
    layer: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj.weight": (query, hidden),
        "self_attn.k_proj.weight": (shared, hidden),
        "self_attn.v_proj.weight": (shared, hidden),
        "self_attn.o_proj.weight": (hidden, query),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }
    if shape.qkv_bias:
        layer |= {f"self_attn.{n}_proj.bias": (query if n == "q" else shared,) for n in "qkv"}
    if shape.qk_norm:
        layer |= {f"self_attn.{n}_norm.weight": (d,) for n in "qk"}
    layers = range(shape.num_hidden_layers)
    found = {
        "model.embed_tokens.weight": (shape.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    found |= {f"model.layers.{i}.{name}": size for i in layers for name, size in layer.items()}
    if not shape.tie_word_embeddings:
        found["lm_head.weight"] = (shape.vocab_size, hidden)
    return found


class Llama(nn.Module):
    """The language model; a tied output head is the embedding matrix, stored once."""

    def __init__(self, shape: ModelShape, generator: torch.Generator | None = None) -> None:
        """Random weights drawn from `generator` alone, so a seed fixes them."""
        super().__init__()
        self.shape = shape
        with torch.device("meta"):  # default initialisers would draw from the global generator
            self.model = Decoder(shape)
            if not shape.tie_word_embeddings:
                self.lm_head = nn.Linear(shape.hidden_size, shape.vocab_size, bias=False)
        self.to_empty(device="cpu")
        self._initialise(generator or torch.Generator().manual_seed(0))

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, T] int64 -> logits [B, T, vocab]; position t sees tokens 0..t."""
        tied = self.shape.tie_word_embeddings
        head = self.model.embed_tokens if tied else self.lm_head
        return F.linear(self.model(tokens), head.weight)

    @torch.no_grad()
    def _initialise(self, generator: torch.Generator) -> None:
        """Normal(0, INIT_STD); the two projections that write the residual stream are scaled."""
        residual = INIT_STD / (2 * self.shape.num_hidden_layers) ** 0.5
        for name, parameter in self.named_parameters():
            if name.endswith("norm.weight"):
                parameter.fill_(1.0)
            elif name.endswith(".bias"):
                parameter.zero_()
            else:
                writes_residual = name.endswith(("o_proj.weight", "down_proj.weight"))
                std = residual if writes_residual else INIT_STD
                parameter.normal_(0.0, std, generator=generator)
