"""How attention reads a cache on a device: in place, or from a gathered copy, and why.

What torch 2.13's `varlen_attn` asks for, read from its source and from FlashAttention's:

    FlashAttention 2 (torch's own)   compute capability 8.0, float16 or bfloat16, head size a
                                     multiple of 8 up to 256; blocks of a multiple of 256 slots
    FlashAttention 3 (activated)     capability 9; blocks of any size, and then no `cu_seq_k`
    FlashAttention 4 (activated)     capability 9 or 10; blocks on 10 only, of 128 slots

A contiguous region needs no blocks: its first slot is a cumulative start, and `seqused_k` says
how much of it is written.
"""

from __future__ import annotations

from typing import NamedTuple

IN_PLACE = "in place"
PACKED = "packed"
BY_SEQUENCE = "by sequence"

FLASH2, FLASH3, FLASH4 = "FA2", "FA3", "FA4"
_BLOCKS_OF = 256  # FlashAttention 2
_FLASH4_BLOCK = 128


class Kernel(NamedTuple):
    """device: cpu, cuda or rocm; capability: of the GPU, (0, 0) without; dtype: torch's name of it
    without `torch.`; block: slots in a block, 0 for contiguous regions; flash: FA2, FA3 or FA4."""

    device: str
    capability: tuple[int, int]
    dtype: str
    head_dim: int
    block: int
    flash: str = FLASH2


class Way(NamedTuple):
    """name: IN_PLACE; PACKED (all sequences gathered into one, then `varlen_attn`); BY_SEQUENCE
    (each gathered, then `scaled_dot_product_attention`). reason: why it is not in place."""

    name: str
    reason: str = ""

    @property
    def text(self) -> str:
        """For the page and the JSON."""
        if self.name == IN_PLACE:
            return "varlen_attn, in place"
        then = ", then varlen_attn" if self.name == PACKED else " sequence by sequence"
        return f"gathered{then}: {self.reason}"


def choose(kernel: Kernel) -> Way:
    """The best way that this kernel allows."""
    if reason := _no_kernel(kernel):
        return Way(BY_SEQUENCE, reason)
    if reason := _no_blocks(kernel):
        return Way(PACKED, reason)
    return Way(IN_PLACE)


def takes_starts(kernel: Kernel) -> bool:
    """Does the call want `cu_seq_k`? FlashAttention 2 always, the others not beside blocks."""
    return kernel.flash == FLASH2 or not kernel.block


def _no_kernel(kernel: Kernel) -> str:
    """Why `varlen_attn` can't run at all; empty when it can."""
    major, minor = kernel.capability
    if kernel.device != "cuda":
        return "varlen_attn runs on CUDA only"
    if major < 8:
        return f"compute capability {major}.{minor}, and FlashAttention needs 8.0"
    if kernel.flash == FLASH3 and major != 9:
        return f"compute capability {major}.{minor}, and FlashAttention 3 needs 9"
    if kernel.flash == FLASH4 and major not in (9, 10):
        return f"compute capability {major}.{minor}, and FlashAttention 4 needs 9 or 10"
    if kernel.dtype not in ("bfloat16", "float16"):
        return f"{kernel.dtype}, and FlashAttention takes bfloat16 and float16"
    if kernel.head_dim % 8 or kernel.head_dim > 256:
        return f"head size {kernel.head_dim} is no multiple of 8 up to 256"
    return ""


def _no_blocks(kernel: Kernel) -> str:
    """Why blocks can't be read in place; empty when they can, or when there are none."""
    block, major = kernel.block, kernel.capability[0]
    if not block or kernel.flash == FLASH3:
        return ""
    if kernel.flash == FLASH2:
        if block % _BLOCKS_OF:
            return f"block size {block} is no multiple of {_BLOCKS_OF} (FlashAttention 2)"
    elif major != 10:
        return f"FlashAttention 4 reads blocks on compute capability 10 only, this is {major}"
    elif block != _FLASH4_BLOCK:
        return f"block size {block} is not {_FLASH4_BLOCK} (FlashAttention 4)"
    return ""
