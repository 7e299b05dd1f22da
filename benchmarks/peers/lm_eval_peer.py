"""lm-eval with hooks on the model: loaded once, and as the paper's released code uses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import datasets
import lm_eval
import numpy as np
import transformers
from lm_eval.api.task import ConfigurableTask
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from numpy.typing import NDArray

from peers import MaskByMask
from peers.batches import BATCH_SIZE
from peers.plain import zeroed
from works import Work

if TYPE_CHECKING:
    from headsieve.models.heads import Head
    from headsieve.models.loading import Model

_TASK = "headsieve_work"


class LMEval(MaskByMask):
    """Model, task and list of tasks are made once."""

    packages = ("lm-eval",)

    def __init__(self, model: Model, work: Work) -> None:
        super().__init__(model, work)
        self.task = _task(work)
        self.manager = TaskManager()
        self.lm = _wrapped(model.hf, model, BATCH_SIZE)

    def sums(self, heads: Sequence[Head]) -> NDArray[np.float64]:
        with zeroed(self.model.hf, self.model.geometry, heads):
            return _evaluate(self.lm, self.task, self.manager)


class Paper(MaskByMask):
    """For every mask the model is loaded and the list of tasks is made again; items go alone."""

    packages = ("lm-eval",)

    def __init__(self, model: Model, work: Work) -> None:
        super().__init__(model, work)
        self.task = _task(work)

    def sums(self, heads: Sequence[Head]) -> NDArray[np.float64]:
        hf: Any = transformers.AutoModelForCausalLM.from_pretrained(
            self.model.hf.name_or_path, dtype=self.model.hf.dtype
        )
        hf.to(self.model.device)
        with zeroed(hf, self.model.geometry, heads):
            return _evaluate(_wrapped(hf, self.model, 1), self.task, None)


def _task(work: Work) -> Any:
    """The work's items as a task of lm-eval."""
    rows = [
        {
            "prompt": work.prefix + item.prompt,
            "choices": list(item.continuations),
            "correct": item.correct,
        }
        for item in work.items
    ]
    choice = work.kind == "choice"
    config: dict[str, Any] = {
        "task": _TASK,
        "custom_dataset": lambda **_options: {"test": datasets.Dataset.from_list(rows)},
        "test_split": "test",
        "output_type": "multiple_choice" if choice else "loglikelihood",
        "doc_to_text": lambda row: row["prompt"],
        "doc_to_target": lambda row: row["correct"] if choice else row["choices"][0],
        "target_delimiter": "",
        # Perplexity, which is there by default, comes with a slow bootstrap.
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    }
    if choice:
        config["doc_to_choice"] = lambda row: row["choices"]
    return ConfigurableTask(config=config)


def _wrapped(hf: Any, model: Model, batch_size: int) -> Any:
    return HFLM(
        pretrained=hf, tokenizer=model.tokenizer, batch_size=batch_size, device=str(model.device)
    )


def _evaluate(lm: Any, task: Any, manager: TaskManager | None) -> NDArray[np.float64]:
    results = lm_eval.simple_evaluate(
        model=lm, tasks=[task], task_manager=manager, bootstrap_iters=0, verbosity="ERROR"
    )
    samples = sorted(results["samples"][_TASK], key=lambda sample: int(sample["doc_id"]))
    return np.array([float(one[0]) for sample in samples for one in sample["filtered_resps"]])
