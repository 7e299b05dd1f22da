"""A result in plain words: rounded numbers, the verdict, and what speaks against it.

Everything here is ASCII, so that a terminal or log file of any encoding can show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headsieve.models.heads import NOUNS, kind_of
from headsieve.results import CapabilityResult, Claim, Interactions, Interval
from headsieve.scores import LOG_PROB

# What a knocked-out head gives, by the ablation.
REPLACEMENTS = {
    "zero": "zero",
    "mean": "its mean output over the task's search items",
    "resample": "its output at one scored place of one of the task's search items",
}
# A control that loses more than this is worth a warning, whatever limit the search kept to.
ACCURACY_TOLERANCE = 0.05
NATS_TOLERANCE = 0.1

# A p-value above this is no sign of an effect.
_CHANCE = 0.05
# 0.90 - 0.85 is a little more than 0.05 in floating point.
ROUNDING = 1e-9


def number(value: float) -> str:
    """A score, drop or effect with two decimals."""
    return f"{round(value, 2) + 0.0:.2f}"  # adding 0.0 turns -0.0 into 0.0


def interval(ci: Interval) -> str:
    """An interval, as in ``0.50 to 0.73``."""
    return f"{number(ci[0])} to {number(ci[1])}"


def p_value(p: float) -> str:
    """A p-value, as in ``p = 0.012`` or ``p < 0.0001``."""
    if p < 0.0001:
        return "p < 0.0001"
    return f"p = {p:.4f}" if p < 0.001 else f"p = {p:.3f}"


def duration(seconds: float) -> str:
    """A time span in the two units that matter."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def memory(size: int) -> str:
    """A number of bytes in MiB or GiB."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


def nouns(result: CapabilityResult) -> tuple[str, str]:
    """One and many of the units that were searched, as in ``head`` and ``heads``."""
    return NOUNS[kind_of(result.heads[0].head)]


def verdict(name: str, result: CapabilityResult) -> str:
    """One sentence: what the knockout does to the capability and to the controls.

    Parameters
    ----------
    name : str
        The capability's name.
    result : CapabilityResult
    """
    claim = result.verification.capability
    unit = _unit(claim)
    if not result.selected:
        return (
            f"No set of {nouns(result)[1]} was found for {name} (unmodified model: "
            f"{number(claim.baseline)}{unit} on {claim.items} held-out items)."
        )
    before, after = number(claim.baseline), number(claim.knocked_out)
    if before == after:
        change = f"stays at {before}{unit}"
    else:
        verb = "falls" if claim.drop > 0 else "rises"
        change = f"{verb} from {before} to {after}{unit}"
    count = len(result.selected)
    one, many = nouns(result)
    heads = f"this {one}" if count == 1 else f"these {count} {many}"
    sentence = f"Without {heads} {name} {change} on {claim.items} held-out items"
    return "; ".join([sentence, *_controls(result.verification.controls)]) + "."


def idle(heads: Sequence[str]) -> str:
    """One sentence on selected heads that add nothing on held-out items in their order."""
    verb = "adds" if len(heads) == 1 else "add"
    return (
        f"{', '.join(heads)} {verb} nothing on held-out items to what the heads before do there; "
        "in another order than the search's that may differ."
    )


def general_heads(name: str, result: CapabilityResult, heads: Sequence[str]) -> str:
    """One sentence on heads that the capability and its controls need."""
    return (
        f"General {nouns(result)[1]}, which {name} and at least half of its controls need: "
        f"{', '.join(heads)}."
    )


def interacting(found: Interactions) -> list[str]:
    """Sentences on the pairs of heads that clearly act together, or that there is none."""
    sentences = []
    average = "on average over the others, " if len(found.shapley) > 2 else ""
    for pair in found.pairs:
        heads = " and ".join(pair.heads)
        size = number(abs(pair.value))
        sure = f"(interaction {number(pair.value)}, 95 % interval {interval(pair.ci)})"
        together = f"{average}together they cost {size}"
        if pair.ci[0] > 0:
            sentences.append(f"{heads} back each other up: {together} more than one by one {sure}.")
        elif pair.ci[1] < 0:
            sentences.append(f"{heads} overlap: {together} less than one by one {sure}.")
    if found.pairs and not sentences:
        sentences.append("No two of them clearly back each other up or overlap.")
    return sentences


def other_items(tasks: Sequence[str]) -> str:
    """One sentence on tasks of which compared studies measured other items."""
    return (
        f"these studies measured other held-out items of {', '.join(tasks)}, so that part of what "
        "differs is the items."
    )


def warnings(name: str, result: CapabilityResult) -> list[str]:
    """What a reader must know before believing the verdict; empty for a clean result.

    Parameters
    ----------
    name : str
        The capability's name.
    result : CapabilityResult
    """
    if not result.selected:
        return [
            f"no measured set of {nouns(result)[1]} lowers {name} and spares the controls. With "
            "this model and budget the result claims nothing."
        ]
    checks = result.verification
    own, drop = checks.capability, checks.capability.drop
    if drop <= 0:
        return [
            f"what the search found on its own items does not hold on others: {name} loses "
            "nothing. With this model and budget the result claims nothing."
        ]
    found = []
    if own.ci[0] <= 0:
        found.append(
            f"the drop of {name} may be chance; its 95 % interval, {interval(own.ci)}, contains "
            "zero."
        )
    elif own.p_value > _CHANCE:
        found.append(f"the drop of {name} may be chance: {p_value(own.p_value)}.")
    if checks.form is not None and checks.form.explains:
        found.append(f"the drop is explained by the form of the answers: {checks.form.reason}.")
    highest = {head.head: head.ci[1] for head in result.heads}
    if weak := [head for head in result.selected if highest[head] >= 0]:
        found.append(
            f"no clear effect alone: {', '.join(weak)} (95 % interval up to zero or beyond); the "
            "claim is of the set as a whole."
        )
    losers = [
        f"{control} ({number(claim.drop)}{_unit(claim)}"
        f"{', perhaps by chance' if claim.ci[0] <= 0 else ''})"
        for control, claim in checks.controls.items()
        if claim.drop > tolerance(claim) + ROUNDING
    ]
    if losers:
        found.append(
            f"{_these(result)} not {name}'s alone; controls that lose too: {', '.join(losers)}."
        )
    if not checks.controls:
        found.append(
            f"no control was measured, so nothing says that these {nouns(result)[1]} serve {name} "
            "alone."
        )
    if checks.random_sets.count and checks.random_sets.max_drop >= drop - ROUNDING:
        found.append(
            f"a random set of as many {nouns(result)[1]} does as much: {name} loses "
            f"{number(checks.random_sets.max_drop)}{_unit(checks.capability)} by it, and "
            f"{number(drop)}{_unit(checks.capability)} by this one. The p-value tells of chance in "
            "the items, not in this choice."
        )
    return found


def tolerance(claim: Claim) -> float:
    """The largest drop of a control that needs no warning, in the unit of its metric."""
    return ACCURACY_TOLERANCE if claim.metric != LOG_PROB else NATS_TOLERANCE


def ranges(numbers: Iterable[int]) -> str:
    """Ascending whole numbers with runs drawn together, as in ``0-5, 7, 9-11``."""
    runs: list[list[int]] = []
    for value in numbers:
        if runs and value == runs[-1][-1] + 1:
            runs[-1][1:] = [value]
        else:
            runs.append([value])
    return ", ".join("-".join(map(str, run)) for run in runs)


def _these(result: CapabilityResult) -> str:
    one, many = nouns(result)
    return f"this {one} is" if len(result.selected) == 1 else f"these {many} are"


def _unit(claim: Claim) -> str:
    return "" if claim.metric != LOG_PROB else " nats a token"


def _controls(controls: Mapping[str, Claim]) -> list[str]:
    """Clauses on the controls; those in nats stand alone, because they cannot be averaged in."""
    drops = {name: claim.drop for name, claim in controls.items() if claim.metric != LOG_PROB}
    single = [(name, claim) for name, claim in controls.items() if name not in drops]
    clauses = []
    if len(drops) == 1:
        single = [(name, controls[name]) for name in drops] + single
    elif drops:
        worst = max(drops, key=drops.__getitem__)
        mean = round(sum(drops.values()) / len(drops), 2)
        if drops[worst] < 0.005:
            clauses.append("no control loses 0.01 or more")
        elif mean < 0:
            clauses.append(
                f"the controls gain {number(-mean)} on average, but {worst} loses "
                f"{number(drops[worst])}"
            )
        else:
            clauses.append(
                f"the controls lose {number(mean)} on average, at most {number(drops[worst])} "
                f"({worst})"
            )
    for name, claim in single:
        verb = "gains" if round(claim.drop, 2) < 0 else "loses"
        clauses.append(f"{name} {verb} {number(abs(claim.drop))}{_unit(claim)}")
    return clauses
