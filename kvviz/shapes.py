"""The numbers of a decoder-only model that fix what its KV cache costs.

Integers only: a dry run needs `slot_bytes` and never loads a tensor.
"""

from __future__ import annotations

from dataclasses import dataclass

END_OF_TEXT = 256  # the byte-level vocabulary: 0..255, and this


@dataclass(frozen=True)
class RopeScaling:
    """Llama 3's stretched rotary angles; names as in `config.json`, rope_type `llama3`."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: float


@dataclass(frozen=True)
class ModelShape:
    """A Llama-family decoder. Field names follow Hugging Face's `config.json`.

    `qkv_bias` (Qwen2) and `qk_norm` (Qwen3) say which extra weights a layer has. `sliding_window`
    (Mistral): a token attends to that many last tokens, itself included; 0 is all of them.
    """

    vocab_size: int = 257
    hidden_size: int = 192
    intermediate_size: int = 512
    num_hidden_layers: int = 4
    num_attention_heads: int = 6
    num_key_value_heads: int = 2
    head_dim: int = 32
    rope_theta: float = 10_000.0
    rms_norm_eps: float = 1e-5
    max_position_embeddings: int = 4096
    tie_word_embeddings: bool = True
    qkv_bias: bool = False
    qk_norm: bool = False
    sliding_window: int = 0
    rope_scaling: RopeScaling | None = None

    @property
    def slot_elements(self) -> int:
        """Numbers stored for one token: K and V, every layer, every KV head."""
        return 2 * self.num_hidden_layers * self.num_key_value_heads * self.head_dim

    def slot_bytes(self, element_bytes: int) -> int:
        """b_tok = 2 * L * H_kv * d_h * s, in bytes."""
        return self.slot_elements * element_bytes
