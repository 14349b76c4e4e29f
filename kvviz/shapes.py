"""The numbers of a decoder-only model that fix what its KV cache costs.

Integers only: a dry run needs `slot_bytes` and never loads a tensor.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from kvviz.errors import CheckpointError

END_OF_TEXT = 256  # the byte-level vocabulary: 0..255, and this


@dataclass(frozen=True)
class ModelShape:
    """A Llama-family decoder. Field names follow Hugging Face's `config.json`."""

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

    @property
    def slot_elements(self) -> int:
        """Numbers stored for one token: K and V, every layer, every KV head."""
        return 2 * self.num_hidden_layers * self.num_key_value_heads * self.head_dim

    def slot_bytes(self, element_bytes: int) -> int:
        """b_tok = 2 * L * H_kv * d_h * s, in bytes."""
        return self.slot_elements * element_bytes

    @classmethod
    def from_folder(cls, folder: Path) -> ModelShape:
        """Read `config.json`. Raises CheckpointError when it is missing or lacks a field."""
        path = folder / "config.json"
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            return cls(**{name: raw[name] for name in cls.__dataclass_fields__})
        except (OSError, ValueError, KeyError) as error:
            raise CheckpointError(
                f"{path} can't be read as a Llama config ({type(error).__name__}: {error}). "
                "Point `model` at a folder that holds config.json and model.safetensors."
            ) from error
