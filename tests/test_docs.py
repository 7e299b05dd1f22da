"""The code in the documents runs and does what they say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch

from headsieve.models.loading import Model
from headsieve.report.heads_file import heads_json
from tests.report import examples

DOCS = Path(__file__).parents[1] / "docs"


def test_plain_hooks_do_what_a_knockout_does(llama: Model, tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "handing-over.md").read_text(), re.S)
    names: dict[str, Any] = {}
    exec(code, names)
    path = tmp_path / "heads.json"
    found = examples.capability(selected=["L1H2", "L2H1", "L1H0"])
    path.write_text(heads_json(examples.result(antonym=found), {}))
    heads = names["selected_heads"](path, "antonym")
    assert set(heads) == {(1, 2), (2, 1), (1, 0)}

    tokens = torch.arange(30, 70)[None]
    with torch.inference_mode():
        with llama.knockout(found.selected):
            expected = llama.hf(input_ids=tokens).logits
        handles = names["knock_out"](llama.hf, heads)
        try:
            found_logits = llama.hf(input_ids=tokens).logits
        finally:
            for handle in handles:
                handle.remove()
    assert torch.equal(found_logits, expected)


def test_the_form_of_heads_json_is_the_documented_one() -> None:

    (text,) = re.findall(r"```json\n(.*?)```", (DOCS / "handing-over.md").read_text(), re.S)
    documented = json.loads(text)
    real = json.loads(heads_json(examples.result(antonym=examples.capability()), {}))

    def form(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: form(one) for name, one in value.items()}
        return [form(value[0])] if isinstance(value, list) and value else type(value).__name__

    documented["capabilities"]["antonym"]["general"] = []
    assert form(documented) == form(real)
