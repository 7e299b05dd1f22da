"""Small tasks of lm-evaluation-harness, written into a folder: one of each kind of request."""

from __future__ import annotations

from pathlib import Path

WORDS = (
    *("cat", "dog", "sun", "sky", "red", "box", "run", "big"),
    *("map", "ink", "owl", "elm", "ant", "bee", "fox"),
)
DOCUMENTS = len(WORDS)

_DATA = f"""
import datasets

WORDS = {WORDS!r}


def documents(words=WORDS, **_options):
    rows = [
        {{
            "number": number,
            "word": word,
            "choices": [word[::-1], word + " " + word, word[:2]],
            "gold": number % 3,
            "text": f"The {{word}} and the {{word[::-1]}}. " * (1 + number % 4),
        }}
        for number, word in enumerate(words)
    ]
    return {{"test": datasets.Dataset.from_list(rows), "train": datasets.Dataset.from_list(rows)}}


def fewer(**_options):
    return documents(WORDS[:8])


def context(row):
    return row["gold"] % 2


def contexts(row):
    return [row["word"] + " is", row["word"] + " was "]
"""
_HEAD = """
custom_dataset: !function data.documents
test_split: test
fewshot_split: train
"""
_TASKS = {
    "choice": """
output_type: multiple_choice
doc_to_text: "{{word}} ->"
doc_to_choice: choices
doc_to_target: gold
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - {metric: acc_norm, aggregation: mean, higher_is_better: true}
""",
    "contexts": """
output_type: multiple_choice
doc_to_text: !function data.context
doc_to_choice: !function data.contexts
doc_to_target: text
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
""",
    "several_right": """
output_type: multiple_choice
doc_to_text: ""
doc_to_choice: choices
doc_to_target: "{{[gold, 0]}}"
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
""",
    "mutual": """
output_type: multiple_choice
doc_to_text: "{{word}} "
doc_to_choice: choices
doc_to_target: gold
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - {metric: acc_mutual_info, aggregation: mean, higher_is_better: true}
""",
    "last_letter": """
output_type: loglikelihood
doc_to_text: "{{word[:-1]}}"
doc_to_target: "{{word[-1]}}"
num_fewshot: 2
metric_list:
  - {metric: perplexity, aggregation: perplexity, higher_is_better: false}
  - {metric: acc, aggregation: mean, higher_is_better: true}
""",
    "passages": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: text
metric_list:
  - {metric: word_perplexity}
  - {metric: bits_per_byte}
""",
    "written": """
output_type: generate_until
doc_to_text: "{{word}} ->"
doc_to_target: "{{word[::-1]}}"
description: "Backwards.\\n"
generation_kwargs: {until: ["e", "\\n"], max_gen_toks: 4, do_sample: false}
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true}
filter_list:
  - name: first
    filter:
      - {function: regex, regex_pattern: "([a-z ]+)"}
      - {function: take_first}
  - name: whole
    filter:
      - {function: take_first}
""",
    "fewer": """
custom_dataset: !function data.fewer
output_type: multiple_choice
doc_to_text: "{{word}} ->"
doc_to_choice: choices
doc_to_target: gold
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
""",
    "unsafe": """
output_type: generate_until
unsafe_code: true
doc_to_text: word
doc_to_target: word
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true}
""",
    "sampled": """
output_type: generate_until
doc_to_text: word
doc_to_target: word
generation_kwargs: {until: ["e"], do_sample: true, temperature: 0.7}
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true}
""",
    "no_mean": """
output_type: multiple_choice
doc_to_text: word
doc_to_choice: choices
doc_to_target: gold
metric_list:
  - {metric: mcc, aggregation: matthews_corrcoef, higher_is_better: true}
""",
    "no_data": """
custom_dataset: null
dataset_path: /nowhere/at/all
output_type: multiple_choice
doc_to_text: word
doc_to_choice: choices
doc_to_target: gold
""",
}
_GROUPS = {
    "by_size": "{metric: acc, weight_by_size: true}",
    "alike": "{metric: acc, weight_by_size: false}",
}


def write_harness_tasks(folder: Path) -> Path:
    """Write all tasks, two groups of `choice` and `fewer`, and a group that runs code."""
    (folder / "data.py").write_text(_DATA, encoding="utf-8")
    for name, text in _TASKS.items():
        head = "".join(line for line in _HEAD.splitlines(True) if line.split(":")[0] not in text)
        (folder / f"{name}.yaml").write_text(f"task: tiny_{name}\n{head}{text}", encoding="utf-8")
    for name, metric in _GROUPS.items():
        text = f"group: tiny_{name}\ntask: [tiny_choice, tiny_fewer]\n"
        (folder / f"{name}.yaml").write_text(f"{text}aggregate_metric_list: [{metric}]\n")
    (folder / "both.yaml").write_text("group: tiny_both\ntask: [tiny_choice, tiny_unsafe]\n")
    return folder
