"""What the KV cache of a decoder costs, layer kind by layer kind.

Two numbers answer most questions: `grow_bytes` for each token, and `constant_bytes` for each
request, which windows and recurrent states take however long it gets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvviz.errors import ConfigError

KV_DTYPES = {"bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "fp32": 4}  # bytes an element
FULL, WINDOW, LATENT, STATE = "full", "window", "latent", "state"


@dataclass(frozen=True)
class LayerGroup:
    """Layers that keep the same thing, on one GPU.

    parts: elements for a token and KV head, (d_k, d_v), or (latent, rope) with heads = 1.
    window: tokens kept (WINDOW only). state_bytes: of one layer and request (STATE only);
    state: how they come about.
    """

    kind: str
    layers: int
    heads: int = 1
    parts: tuple[int, int] = (0, 0)
    window: int = 0
    state_bytes: int = 0
    state: str = ""

    def slot_bytes(self, element_bytes: int) -> int:
        """One token in all these layers; 0 for states, which keep no tokens."""
        return self.layers * self.heads * sum(self.parts) * element_bytes

    def constant_bytes(self, element_bytes: int) -> int:
        """What a request takes however long it gets: full windows, states."""
        return self.window * self.slot_bytes(element_bytes) + self.layers * self.state_bytes

    def formula(self, element_bytes: int, *, window: bool = True) -> str:
        """With the numbers filled in and without the result; of one token without its window."""
        if self.kind == STATE:
            return f"{self.layers} layers × {self.state}"
        first, second = self.parts
        if self.kind == LATENT:
            return f"{self.layers} layers × ({first} + {second}) × {element_bytes} B"
        width = f"2 × {first}" if first == second else f"({first} + {second})"
        text = f"{self.layers} layers × {self.heads} KV heads × {width} × {element_bytes} B"
        return f"{text} × {self.window:,} tokens" if self.kind == WINDOW and window else text


@dataclass(frozen=True)
class KVShape:
    """The cache of one model on one GPU.

    max_context: tokens the model was made for, None when the config does not say.
    warnings: what is unusual about the config, as sentences.
    """

    groups: tuple[LayerGroup, ...]
    kv_dtype: str = "bf16"
    max_context: int | None = None
    warnings: tuple[str, ...] = ()

    @property
    def element_bytes(self) -> int:
        return KV_DTYPES[self.kv_dtype]

    @property
    def layers(self) -> int:
        return sum(group.layers for group in self.groups)

    @property
    def slot_bytes(self) -> int:
        """One token in every layer that keeps tokens, windows included."""
        return sum(group.slot_bytes(self.element_bytes) for group in self.groups)

    @property
    def grow_bytes(self) -> int:
        """One token more, once all windows are full."""
        return sum(
            group.slot_bytes(self.element_bytes)
            for group in self.groups
            if group.kind in (FULL, LATENT)
        )

    @property
    def constant_bytes(self) -> int:
        """A request's full windows and its states."""
        return sum(group.constant_bytes(self.element_bytes) for group in self.groups)

    @property
    def state_bytes(self) -> int:
        return sum(group.layers * group.state_bytes for group in self.groups)

    @property
    def slot_formula(self) -> str:
        return self._formula((FULL, LATENT, WINDOW), self.slot_bytes, window=False)

    @property
    def grow_formula(self) -> str:
        return self._formula((FULL, LATENT), self.grow_bytes)

    @property
    def constant_formula(self) -> str:
        return self._formula((WINDOW, STATE), self.constant_bytes)

    def request_bytes(self, tokens: int) -> int:
        """One request of this many tokens: a window is paid for as far as it is filled."""
        total = self.grow_bytes * tokens + self.state_bytes
        for group in self.groups:
            if group.kind == WINDOW:
                total += min(tokens, group.window) * group.slot_bytes(self.element_bytes)
        return total

    def longest_request(self, memory_bytes: int, *, most: int) -> int:
        """Tokens of the longest single request that this memory holds, up to `most`."""
        low, high = 0, max(most, 0)
        while low < high:
            middle = (low + high + 1) // 2
            if self.request_bytes(middle) <= memory_bytes:
                low = middle
            else:
                high = middle - 1
        return low

    def on_rank(self, ranks: int) -> KVShape:
        """The share of one GPU under tensor parallelism. KV heads are split, and replicated where
        there are fewer than ranks; a latent is kept whole by every rank. Raises ConfigError when
        heads and ranks do not divide."""
        return replace(self, groups=tuple(_on_rank(group, ranks) for group in self.groups))

    def _formula(self, kinds: tuple[str, ...], total: int, *, window: bool = True) -> str:
        texts = [
            group.formula(self.element_bytes, window=window)
            for group in self.groups
            if group.kind in kinds
        ]
        return f"{' + '.join(texts)} = {total:,} B" if texts else "nothing"


def window_cells(context: int, window: int, batch: int, sequences: int = 1, pad: int = 256) -> int:
    """Cells that llama.cpp keeps for a window layer: the windows and one batch, padded, and never
    more than the context."""
    wanted = min(context, window * sequences + batch)
    return -(-wanted // pad) * pad


def _on_rank(group: LayerGroup, ranks: int) -> LayerGroup:
    if ranks == 1 or group.kind == LATENT:
        return group
    if group.kind == STATE:
        share = -(-group.state_bytes // ranks)
        return replace(group, state_bytes=share, state=f"({group.state}) / {ranks} ranks")
    if group.heads % ranks and ranks % group.heads:
        raise ConfigError(
            f"{group.heads} KV heads can't be split over {ranks} GPUs. Choose a tensor parallelism "
            f"that divides {group.heads}, or a multiple of it."
        )
    return replace(group, heads=max(1, group.heads // ranks))
