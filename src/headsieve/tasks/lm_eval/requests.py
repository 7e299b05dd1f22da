"""What the harness asks of a model, as tokens: the harness's own tokenisation, noted down."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from headsieve.errors import HeadsieveError
from headsieve.measure.packing import TokenSequence
from headsieve.measure.texts import Prompt
from headsieve.tasks.lm_eval.options import PREFIX

if TYPE_CHECKING:
    from headsieve.models.loading import Model

# Settings of generation under which greedy decoding says the same.
_GREEDY = {"do_sample": (None, False), "temperature": (None, 0.0), "top_p": None, "top_k": None}


class RequestNotes(HFLM):  # type: ignore[misc]  # lm-eval bears no types
    """The harness's wrapper of a transformers model, which notes what it would have computed.

    Its tokenisation (begin-of-text token, trailing spaces, windows, truncation) is thereby that of
    the harness, whatever its version.

    Parameters
    ----------
    model : Model
    """

    def __init__(self, model: Model) -> None:
        # It may give the tokenizer a token for padding.
        tokenizer = copy.deepcopy(model.tokenizer)
        super().__init__(pretrained=model.hf, tokenizer=tokenizer, enable_thinking=False)
        self._pairs: list[tuple[list[int], list[int]]] = []
        self._prompts: list[Prompt] = []

    def sequences(self, request: Instance) -> list[TokenSequence]:
        """Texts to be scored for a request for log-probabilities.

        Parameters
        ----------
        request : lm_eval.api.instance.Instance
            ``loglikelihood`` or ``loglikelihood_rolling``.

        Raises
        ------
        HeadsieveError
            If there is nothing to be scored, or more than the model takes.
        """
        self._pairs = []
        getattr(self, request.request_type)([request], disable_tqdm=True)
        found = []
        for context, continuation in self._pairs:
            if not 0 < len(continuation) <= self.max_length:
                raise HeadsieveError(
                    f"{PREFIX}{request.task_name}: what is to be scored of document "
                    f"{request.doc_id} has {len(continuation)} tokens; it needs 1 to "
                    f"{self.max_length}."
                )
            tokens = (*context, *continuation)[-(self.max_length + 1) :]
            found.append(TokenSequence(tokens, len(tokens) - len(continuation)))
        return found

    def prompt(self, request: Instance) -> Prompt:
        """What is to be continued for a request for text.

        Parameters
        ----------
        request : lm_eval.api.instance.Instance
            ``generate_until``.

        Raises
        ------
        HeadsieveError
            If anything but greedy decoding is asked for.
        """
        self._prompts = []
        self._task = request.task_name
        self.generate_until([request], disable_tqdm=True)
        (prompt,) = self._prompts
        return prompt

    def _loglikelihood_tokens(
        self,
        requests: Sequence[tuple[Any, list[int], list[int]]],
        **_options: Any,
    ) -> list[tuple[float, bool]]:
        self._pairs += [(context, continuation) for _, context, continuation in requests]
        return [(0.0, False)] * len(requests)

    def _model_generate(
        self, context: torch.Tensor, max_length: int, stop: list[str], **options: Any
    ) -> torch.Tensor:
        options.pop("attention_mask", None)
        for option, value in options.items():
            harmless = _GREEDY.get(option, ())
            if harmless is not None and value not in harmless:
                raise HeadsieveError(
                    f"{PREFIX}{self._task} generates with {option} = {value!r}; only greedy "
                    "decoding is measured."
                )
        (tokens,) = context.tolist()
        ends = tuple(one for one in stop if one)
        self._prompts.append(Prompt(tuple(tokens), max_length - len(tokens), ends))
        # Nothing is said.
        return context
