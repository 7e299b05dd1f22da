"""Tiny task files under the names of the paper's data sets, written into a folder."""

from __future__ import annotations

from pathlib import Path

_ROWS = 16
_DATA = f"""
import datasets


def rows(**_options):
    made = [
        {{
            "question": f"What is {{number}} and {{number + 1}}?",
            "answer": f"{{number}} + {{number + 1}}\\n#### {{2 * number + 1}}",
            "context": f"{{number}} and {{number + 1}} make",
            "completion": f" {{2 * number + 1}}",
            "choices": [f"w{{number}}", f"x{{number}}", f"y{{number}}", f"z{{number}}"],
            "gold": number % 4,
            "prompt": f"def add{{number}}(a, b):\\n",
            "canonical_solution": "    return a + b\\n",
            "entry_point": f"add{{number}}",
            "test": f"def check(candidate):\\n    assert candidate(1, 2) == 3\\n",
            "text": f"Add numbers, problem {{number}}.",
            "code": f"def sum{{number}}(a, b):\\n    return a + b",
            "test_list": [f"assert sum{{number}}(1, 2) == 3"],
            "test_setup_code": "",
        }}
        for number in range({_ROWS})
    ]
    return {{"test": datasets.Dataset.from_list(made)}}
"""
_WRITTEN = """
output_type: generate_until
generation_kwargs: {until: ["\\n\\n"], max_gen_toks: 6, do_sample: false}
target_delimiter: ""
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true}
"""
_CHOICE = """
output_type: multiple_choice
doc_to_text: "{{question}}\\nAnswer:"
doc_to_choice: choices
doc_to_target: gold
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
"""
_LETTERS = """
output_type: multiple_choice
doc_to_text: "{{question}}\\nA. {{choices[0]}}\\nB. {{choices[1]}}\\n\
C. {{choices[2]}}\\nD. {{choices[3]}}\\nAnswer:"
doc_to_choice: ["A", "B", "C", "D"]
doc_to_target: gold
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
"""
_TASKS = {
    "gsm8k": _WRITTEN + 'doc_to_text: "Question: {{question}}\\nAnswer: "\ndoc_to_target: answer\n',
    "humaneval": _WRITTEN + "doc_to_text: prompt\ndoc_to_target: canonical_solution\n",
    "mbpp": _WRITTEN + "doc_to_text: text\ndoc_to_target: code\n",
    "arithmetic": """
output_type: loglikelihood
doc_to_text: context
doc_to_target: completion
target_delimiter: ""
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
""",
    **dict.fromkeys(("hellaswag", "boolq", "arc_challenge"), _CHOICE),
    **dict.fromkeys(("mmlu", "wmdp_bio", "wmdp_cyber"), _LETTERS),
    # As where there is no hub.
    "wmdp_chem": "dataset_path: /nowhere/at/all\n" + _LETTERS,
}


def write_paper_tasks(folder: Path) -> Path:
    """Write a task for each data set; that of `wmdp_chem` is missing."""
    (folder / "paper_rows.py").write_text(_DATA, encoding="utf-8")
    for name, text in _TASKS.items():
        data = "" if "dataset_path" in text else "custom_dataset: !function paper_rows.rows\n"
        (folder / f"{name}.yaml").write_text(
            f"task: {name}\n{data}test_split: test\nnum_fewshot: 0\n{text}", encoding="utf-8"
        )
    return folder


def write_lexicon(folder: Path) -> Path:
    """Write a lexicon of single letters, which even a random model uses."""
    path = folder / "lexicon.txt"
    path.write_text("\n".join("abcdefghijklmnopqrstuvwxyz"), encoding="utf-8")
    return path
