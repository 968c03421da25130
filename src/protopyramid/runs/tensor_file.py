"""Tensors as the bytes of a safetensors file: the same content gives the same bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

LENGTH = struct.Struct("<Q")  # of the header, in bytes, before it
METADATA = "__metadata__"
ALIGNMENT = 8


def tensor_bytes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """A safetensors file of these tensors, with metadata in the order of its keys.

    The library writes metadata in an order that is drawn at random by each process.
    """
    from safetensors.torch import save

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    content = save(plain, dict(metadata or {}))
    return content if len(metadata or {}) < 2 else _in_order(content)


def _in_order(content: bytes) -> bytes:
    start = LENGTH.size + LENGTH.unpack_from(content)[0]
    header = json.loads(content[LENGTH.size : start])
    header[METADATA] = dict(sorted(header[METADATA].items()))
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return LENGTH.pack(len(text)) + text + content[start:]
