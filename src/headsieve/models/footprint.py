"""What a model's weights take, from its configuration: asked before any weight is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import torch
import transformers
from transformers.pytorch_utils import Conv1D

from headsieve.errors import HeadsieveError
from headsieve.models.architecture import decoder_layers

# Bytes of a quantised weight, scales included.
_QUANTIZED = {"4bit": 0.55, "8bit": 1.02}


def weight_bytes(
    folder: str | Path, dtype: torch.dtype | str, quantize: str | None = None, **options: Any
) -> int:
    """Bytes that a checkpoint's weights take once loaded.

    Parameters
    ----------
    folder : path or str
        A folder or a hub id.
    dtype : torch.dtype or "auto"
    quantize : {"4bit", "8bit"}, optional
    **options
        For transformers, as ``revision``.
    """
    config = transformers.AutoConfig.from_pretrained(folder, **options)
    if dtype == "auto":
        dtype = stored_dtype(config) or torch.float32
    with torch.device("meta"):
        hf = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    small = {
        id(module.weight)
        for module in decoder_layers(hf).modules()
        if isinstance(module, (torch.nn.Linear, Conv1D))
    }
    return int(
        sum(
            weight.numel()
            * (_QUANTIZED[quantize] if quantize and id(weight) in small else weight.itemsize)
            for weight in hf.parameters()
        )
    )


def stored_dtype(config: Any) -> torch.dtype | None:
    """The floating-point type that a checkpoint's configuration names."""
    found = config.get_text_config(decoder=True).dtype or config.dtype
    named: torch.dtype | None = getattr(torch, found) if isinstance(found, str) else found
    return named


def free_bytes(device: torch.device, *, spread: bool) -> tuple[int, str]:
    """Bytes that are free for weights, and where.

    Parameters
    ----------
    device : torch.device
    spread : bool
        Whether weights may lie on all GPUs and in main memory.
    """
    main = psutil.virtual_memory().available
    if spread:
        gpus = [torch.cuda.mem_get_info(number)[0] for number in range(torch.cuda.device_count())]
        return main + sum(gpus), f"this machine with its {len(gpus)} GPUs"
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0], str(device)
    return main, "this machine"


def require_room(name: str, needed: int, device: torch.device, *, spread: bool) -> None:
    """Refuse a model whose weights do not fit.

    Raises
    ------
    HeadsieveError
        If less is free than they need.
    """
    free, where = free_bytes(device, spread=spread)
    if needed > free:
        raise HeadsieveError(
            f"The weights of {name} need {needed / 1e9:.1f} GB, and {where} has "
            f"{free / 1e9:.1f} GB free; use a smaller --dtype, --quantize 4bit, --device-map auto "
            "where there are several GPUs, or a smaller model."
        )
