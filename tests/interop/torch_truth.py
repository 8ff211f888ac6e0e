"""What torch says is in an object: every tensor's dtype, shape and digest, computed by torch and hashlib alone."""

from __future__ import annotations

import hashlib

import torch

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.ops.listing import digest


def sha256_of(tensor: torch.Tensor) -> str:
    """SHA-256 of the values, row-major."""
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return hashlib.sha256(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"").hexdigest()


def expected_of(tensors: dict[str, torch.Tensor]) -> dict[str, tuple[str, list[int], str]]:
    """What :func:`listed` should give for tensors of these names."""
    return {name: (str(t.dtype).removeprefix("torch."), list(t.shape), sha256_of(t)) for name, t in tensors.items()}


def listed(checkpoint: Checkpoint) -> dict[str, tuple[str, list[int], str]]:
    """Every tensor of a checkpoint by its name."""
    return {n: (t.info.dtype.name, list(t.info.shape), digest(t)) for n, t in checkpoint.tensors.items()}
