"""The paper's capabilities by name: how each is asked and judged."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from headsieve.errors import HeadsieveError
from headsieve.measure.items import ContinuationItems, GenerationItems, ItemSet
from headsieve.measure.journal import Journal
from headsieve.measure.measurer import Measurer
from headsieve.measure.texts import Continuation, Responses
from headsieve.tasks import HarnessOptions, load_task
from headsieve.tasks.degenerate import Fault
from headsieve.tasks.judged import FAULTS
from headsieve.tasks.letters import TEXT, TRIVIAL
from headsieve.tasks.paper_tasks import paper_names
from headsieve.tasks.rhyming import rhymes
from tests.tasks.paper_files import write_lexicon, write_paper_tasks
from tests.tiny import tiny_model

needs_harness = pytest.mark.usefixtures("_harness")
needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is missing")


@pytest.fixture
def _harness() -> None:
    pytest.importorskip("lm_eval", reason="the extra lm-eval is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_paper_tasks(tmp_path_factory.mktemp("tasks"))


@pytest.fixture
def options(folder: Path) -> HarnessOptions:
    return HarnessOptions(
        str(folder), lexicon=str(write_lexicon(folder)), allow_code_execution=True
    )


def judged(items: ItemSet, *texts: str) -> list[float]:
    """What the first items' answers are worth."""
    assert isinstance(items, GenerationItems)
    said = [Continuation((), text, ended=True) for text in texts]
    more = [Continuation((), "", ended=True)] * (len(items) - len(said))
    return list(items.judge([*said, *more]))[: len(texts)]


def test_every_capability_of_the_paper_has_a_name() -> None:
    named = "gsm8k arithmetic mbpp humaneval hellaswag boolq arc_challenge mmlu wmdp rhyming"
    more = "swearing wmdp_bio wmdp_chem wmdp_cyber math code general"
    assert {*named.split(), *more.split()} <= set(paper_names())


@needs_harness
def test_strict_match_wants_the_mark_and_flexible_match_any_last_number(
    options: HarnessOptions,
) -> None:
    model = tiny_model("llama")
    answers = ("0 + 1\n#### 1", "so it is 1", "#### 4")
    strict = load_task("gsm8k", options).whole(model, 0, 3)
    flexible = load_task("gsm8k_flexible", options).whole(model, 0, 3)
    # Documents 0, 1 and 2 have the answers 1, 3 and 5.
    assert judged(strict, *answers) == [1, 0, 0]
    assert judged(flexible, "it is 1", "3", "#### 4") == [1, 1, 0]


@needs_harness
def test_gsm8k_is_searched_on_its_reference_solutions(options: HarnessOptions) -> None:
    model = tiny_model("llama")
    items = load_task("gsm8k", options).item_sets(model, 0)
    assert (items.search.metric, items.held_out.metric) == ("log_prob", "exact_match")
    sequence = items.search.sequences[0]
    assert "####" in model.tokenizer.decode(sequence.tokens[sequence.start :])
    searched, claimed = items.documents["search"]["gsm8k"], items.documents["held-out"]["gsm8k"]
    assert not set(searched) & set(claimed)


@needs_harness
@needs_bwrap
def test_programs_pass_by_their_tests(options: HarnessOptions) -> None:
    model = tiny_model("llama")
    humaneval = load_task("humaneval", options).whole(model, 0, 2)
    assert judged(humaneval, "    return a + b\n", "    return a - b\n") == [1, 0]
    mbpp = load_task("mbpp", options).whole(model, 0, 2)
    assert mbpp.metric == "pass@1"
    right = "def sum{}(a, b):\n    return a + b\n"
    assert judged(mbpp, right.format(0), right.format(0)) == [1, 0]


@pytest.mark.parametrize("name", ["humaneval", "mbpp", "code"])
def test_programs_are_not_run_without_leave(name: str) -> None:
    with pytest.raises(HeadsieveError, match="--allow-code-execution"):
        load_task(name)


def test_swearing_wants_a_lexicon() -> None:
    with pytest.raises(HeadsieveError, match="--lexicon FILE"):
        load_task("swearing")


def test_an_unknown_sandbox_or_rhyme_rule_is_refused() -> None:
    with pytest.raises(HeadsieveError, match="no sandbox 'docker'; use bwrap or none"):
        HarnessOptions(sandbox="docker")  # type: ignore[arg-type]
    with pytest.raises(HeadsieveError, match="no rhyme rule 'loose'"):
        HarnessOptions(rhyme_rule="loose")  # type: ignore[arg-type]


def test_swearing_counts_words_of_the_lexicon(tmp_path: Path) -> None:
    options = HarnessOptions(lexicon=str(write_lexicon(tmp_path)))
    items = load_task("swearing", options).whole(tiny_model("llama"), 0, 3)
    assert judged(items, "a b, c", "nothing", "A!") == [3, 0, 1]


def test_rhyming_searches_among_words_of_which_one_rhymes() -> None:
    model = tiny_model("llama")
    items = load_task("rhyming").item_sets(model, 0)
    assert isinstance(items.search, ContinuationItems)
    starts = np.cumsum((0, *items.search.counts[:-1]))
    for first, (right,) in zip(starts[:5], items.search.correct[:5], strict=True):
        texts = [model.tokenizer.decode(one.tokens) for one in items.search.sequences[first:][:8]]
        word, _, answer = texts[right].rsplit("Word: ", 1)[1].partition("\nRhyme: ")
        assert rhymes(word, answer.strip())
        others = [text.rsplit("Rhyme: ", 1)[1].strip() for text in texts if text != texts[right]]
        assert not any(rhymes(word, other) for other in others)


def test_a_rhyme_is_judged_and_search_words_are_not_claimed_on() -> None:
    model = tiny_model("llama")
    task = load_task("rhyming")
    items = task.item_sets(model, 0)

    def word(tokens: tuple[int, ...]) -> str:
        return str(model.tokenizer.decode(tokens)).rsplit("Word: ", 1)[1].split("\n")[0]

    claimed = {word(prompt.tokens) for prompt in items.held_out.prompts}
    assert not claimed & {word(one.tokens) for one in items.search.sequences}
    first = word(items.held_out.prompts[0].tokens)
    assert judged(items.held_out, first) == [0]


@needs_harness
def test_faults_of_form_are_told_apart(options: HarnessOptions) -> None:
    model = tiny_model("llama")
    faults = load_task("gsm8k", options).item_sets(model, 0, 5).companions[FAULTS]
    said = (
        Continuation((), "#### 4", ended=True),
        Continuation((), "", ended=True),
        Continuation((), "four", ended=False),
        Continuation((), "#### 1 " + "ha " * 40, ended=False),
        Continuation((), "#### 4", ended=True),
    )
    nothing = np.zeros(0)
    found = faults.score(Responses(nothing, nothing > 0, nothing, said)).value.reshape(5, -1) > 0
    names = [{fault for fault, has in zip(Fault, row, strict=True) if has} for row in found]
    assert names == [
        set(),
        {Fault.EMPTY},
        {Fault.UNPARSEABLE, Fault.CUT_OFF},
        {Fault.CUT_OFF, Fault.LOOPING},
        set(),
    ]


@needs_harness
def test_letters_stand_beside_words_and_trivial_questions(options: HarnessOptions) -> None:
    model = tiny_model("llama")
    items = load_task("mmlu", options).item_sets(model, 0)
    assert set(items.companions) == {TEXT, TRIVIAL}
    assert len(items.companions[TEXT]) == len(items.held_out)
    text = model.tokenizer.decode(items.companions[TEXT].sequences[1].tokens)
    number = items.documents["held-out"]["mmlu"][0]
    assert text == f"What is {number} and {number + 1}?\nAnswer: x{number}"
    assert not load_task("hellaswag", options).item_sets(model, 0).companions


@needs_harness
def test_tasks_of_a_set_count_alike(options: HarnessOptions) -> None:
    model = tiny_model("llama")
    tasks = {name: load_task(name, options) for name in ("general", "hellaswag", "mmlu")}
    sets = {name: task.whole(model, 0, 3) for name, task in tasks.items()}
    sets |= {
        name: load_task(name, options).whole(model, 0, 3) for name in ("boolq", "arc_challenge")
    }
    measurer = Measurer(model, sets, Journal())
    nothing = np.zeros((1, len(model.geometry)), dtype=bool)
    values = {name: measurer.measure(nothing, name)[0].metric for name in sets}
    whole = values.pop("general")
    assert whole == pytest.approx(np.mean(list(values.values())))


@needs_harness
def test_a_set_with_a_part_in_nats_is_searched_in_nats(options: HarnessOptions) -> None:
    model = tiny_model("llama")
    items = load_task("math", options).item_sets(model, 0)
    assert (items.search.metric, items.held_out.metric) == ("log_prob", "mean")
