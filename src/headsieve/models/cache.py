"""Converted models: GGUF files as safetensors, which load a hundred times faster."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import platformdirs
from safetensors import SafetensorError

from headsieve.errors import HeadsieveError, first_line

# Digests of a converted model's files, written before the folder gets its name.
_MANIFEST = "headsieve-manifest.json"
_UNFINISHED = ".converting-"


@dataclass(frozen=True)
class ConvertedModel:
    """A converted model in the cache.

    Attributes
    ----------
    folder : Path
    bytes : int
        What its files take.
    """

    folder: Path
    bytes: int


def cache_folder() -> Path:
    """Where converted models are kept: ``HEADSIEVE_CACHE`` or the user's cache folder."""
    given = os.environ.get("HEADSIEVE_CACHE")
    return Path(given) if given else Path(platformdirs.user_cache_dir("headsieve"))


def converted_models() -> list[ConvertedModel]:
    """The converted models in the cache, by name.

    Raises
    ------
    HeadsieveError
        If the cache is no folder.
    """
    folder = cache_folder()
    if folder.exists() and not folder.is_dir():
        raise HeadsieveError(f"The cache {folder} is no folder; set HEADSIEVE_CACHE to one.")
    return [
        ConvertedModel(
            manifest.parent, sum(file.lstat().st_size for file in manifest.parent.iterdir())
        )
        for manifest in sorted(folder.glob(f"*/{_MANIFEST}"))
    ]


def clear_cache() -> list[ConvertedModel]:
    """Delete the converted models; returns what was deleted.

    Raises
    ------
    HeadsieveError
        If the cache cannot be written.
    """
    models = converted_models()
    # What a killed conversion left behind goes too.
    for folder in [*(model.folder for model in models), *cache_folder().glob(_UNFINISHED + "*")]:
        try:
            shutil.rmtree(folder)
        except OSError as error:
            raise HeadsieveError(f"Cannot delete {folder}: {first_line(error)}.") from error
    return models


def converted(gguf: Path) -> Path:
    """Folder with a GGUF file's weights in float32 safetensors, made on first use.

    The folder is named after the file's content and appears under its name only when it is whole;
    whenever it is used its files are checked, and it is made anew where they are damaged.

    Raises
    ------
    HeadsieveError
        If the file cannot be read, or the folder not be written.
    """
    if not gguf.is_file():
        raise HeadsieveError(f"No model at {gguf}.")
    with gguf.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise HeadsieveError(f"{gguf} is not a GGUF file; download it again.")
    folder = cache_folder() / f"{gguf.stem}-{_digest(gguf)[:16]}"
    if not _is_whole(folder):
        logging.getLogger(__name__).info("Converting %s (once) ...", gguf.name)
        try:
            _convert(gguf, folder)
        except (OSError, SafetensorError) as error:
            raise HeadsieveError(
                f"Cannot keep the converted model in {folder.parent} ({first_line(error)}); set "
                "HEADSIEVE_CACHE to a folder with room."
            ) from error
    return folder


def _convert(gguf: Path, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=_UNFINISHED) as unfinished:
        whole = Path(unfinished) / "model"
        _read_gguf(gguf, whole)
        digests = {file.name: _digest(file) for file in whole.iterdir()}
        (whole / _MANIFEST).write_text(json.dumps(digests, indent=2), encoding="utf-8")
        if folder.exists() and not _is_whole(folder):
            shutil.rmtree(folder)
        # Another process may have been faster; its folder is as good.
        with contextlib.suppress(OSError):
            whole.rename(folder)


def _read_gguf(gguf: Path, folder: Path) -> None:
    import torch
    import transformers

    try:
        hf = transformers.AutoModelForCausalLM.from_pretrained(
            gguf.parent,
            gguf_file=gguf.name,
            dtype=torch.float32,
            quantization_config=transformers.GgufConfig(gguf_file=gguf.name, dequantize=True),
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    except Exception as error:  # the readers raise whatever a damaged file makes them raise
        raise HeadsieveError(f"Cannot read the GGUF file {gguf}: {first_line(error)}") from error
    hf.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _is_whole(folder: Path) -> bool:
    """Whether all files are what they were when the folder was made."""
    try:
        digests = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        return all(_digest(folder / name) == digest for name, digest in digests.items())
    except (OSError, ValueError, AttributeError):
        return False


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
