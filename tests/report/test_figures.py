from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from headsieve.report.drawing import file_names
from headsieve.report.figures import effect_map, head_count_curve, save_figures
from headsieve.results import CapabilityResult, HeadResult
from tests.report.examples import EFFECTS, capability, curve


def axes() -> Axes:
    return Figure(figsize=(3.4, 2.4)).add_subplot()


def drawn(ax: Axes) -> Any:
    """The one collection: the map's cells, or the curve's band."""
    (collection,) = ax.collections
    return collection


def lines_of(ax: Axes) -> dict[str, list[tuple[float, float]]]:
    """Points of every line, by its label."""
    lines: list[Any] = list(ax.get_lines())
    return {line.get_label(): [tuple(point) for point in line.get_xydata()] for line in lines}


def legend_of(ax: Axes) -> list[str]:
    legend = ax.get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def outlines(ax: Axes) -> list[tuple[float, float]]:
    """Centres of the marks, as (head, layer)."""
    return [
        tuple(np.round(patch.get_center(), 6))
        for patch in ax.patches
        if isinstance(patch, Rectangle)
    ]


def texts(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def with_effect(result: CapabilityResult, name: str, effect: float) -> CapabilityResult:
    heads = [
        head.model_copy(update={"effect": effect}) if head.head == name else head
        for head in result.heads
    ]
    return result.model_copy(update={"heads": heads})


def test_effects_are_in_their_cells() -> None:
    ax = effect_map(capability(), ax=axes())
    mesh = drawn(ax)
    cells = np.ma.filled(mesh.get_array(), np.nan)
    assert cells.shape == (4, 3)
    assert cells[1, 2] == EFFECTS["L1H2"]
    assert cells[3, 0] == EFFECTS["L3H0"]
    # Layer 0 at the bottom, whole numbers at the middle of cells.
    assert ax.get_ylim() == (-0.5, 3.5)
    assert mesh.get_coordinates()[1, 2].tolist() == [1.5, 0.5]


def test_colours_are_centred_and_needed_heads_red() -> None:
    mesh = drawn(effect_map(capability(), ax=axes()))
    assert mesh.norm.vmin == -mesh.norm.vmax
    red, _, blue, _ = mesh.to_rgba(-1.0)
    assert red > blue


def test_selected_heads_are_outlined() -> None:
    assert sorted(outlines(effect_map(capability(), ax=axes()))) == [(0, 3), (2, 1)]
    assert outlines(effect_map(capability(selected=[]), ax=axes())) == []


def test_missing_head_is_blank_and_said_so() -> None:
    ax = effect_map(capability(), ax=axes())
    blank = np.ma.getmaskarray(drawn(ax).get_array())
    assert np.argwhere(blank).tolist() == [[2, 2]]
    assert legend_of(ax) == ["selected: L1H2, L3H0", "no head"]


def test_map_labels() -> None:
    ax = effect_map(capability(), ax=axes())
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("head", "layer")
    assert ax.child_axes[0].get_ylabel() == "effect (nats)"


def test_one_general_head_does_not_bleach_the_rest() -> None:
    result = capability(selected=["L3H0"])
    many = [
        HeadResult(
            **(result.heads[-1].model_dump() | {"head": f"L{layer}H0", "layer": layer, "index": 0})
        )
        for layer in range(4, 200)
    ]
    result = result.model_copy(update={"heads": [*result.heads, *many]})
    result = with_effect(result, "L0H0", -30.0)
    ax = effect_map(result, ax=axes())
    mesh = drawn(ax)
    assert mesh.norm.vmax == 0.5
    assert mesh.colorbar.extend == "min"


@pytest.mark.parametrize(("layers", "width"), [(2, 2), (80, 64)])
def test_any_size_draws_with_its_mark_around_the_cell(layers: int, width: int) -> None:
    template = capability().heads[0].model_dump()
    heads = [
        HeadResult(**(template | {"head": f"L{la}H{i}", "layer": la, "index": i, "effect": 0.0}))
        for la in range(layers)
        for i in range(width)
    ]
    last = f"L{layers - 1}H{width - 1}"
    result = capability().model_copy(update={"heads": heads, "selected": [last]})
    ax = effect_map(result, ax=axes())
    ax.figure.canvas.draw()
    assert outlines(ax) == [(width - 1, layers - 1)]


def test_curve_values_are_at_their_counts() -> None:
    ax = head_count_curve(curve(), ax=axes())
    values = curve().values
    assert lines_of(ax) == {task: list(enumerate(values[task])) for task in ("antonym", "plural")}


def test_band_is_the_capabilitys_interval() -> None:
    ax = head_count_curve(curve(), ax=axes())
    band = drawn(ax)
    corners = {tuple(corner) for corner in band.get_paths()[0].vertices.tolist()}
    for count, (low, high) in enumerate(curve().ci):
        assert {(count, low), (count, high)} <= corners
    assert to_rgba(ax.get_lines()[0].get_color())[:3] == tuple(band.get_facecolor()[0][:3])


def test_curve_labels_and_note_on_text() -> None:
    ax = head_count_curve(curve(), ax=axes())
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("heads knocked out", "accuracy")
    assert texts(ax) == ["antonym", "plural", "not on this axis: text -2.50 to -2.56 nats"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "1\nL1H2", "2\nL3H0"]


def test_labels_of_close_lines_do_not_overlap() -> None:
    tasks = {f"control {number}": (0.9, 0.9, 0.9) for number in range(8)}
    crowd = replace(
        curve(),
        values={"antonym": curve().values["antonym"], **tasks},
        metric=dict.fromkeys(["antonym", *tasks], "accuracy"),
    )
    ax = head_count_curve(crowd, ax=axes())
    ax.figure.canvas.draw()
    assert len(ax.texts) == 9
    places = sorted(text.get_position()[1] for text in ax.texts)
    height = 1.2 * float(ax.texts[0].get_fontsize()) / 72 * ax.figure.dpi
    pixels = [ax.transData.transform((0, place))[1] for place in places]
    assert min(np.diff(pixels)) >= height - 0.01


def test_labels_are_in_the_order_of_the_lines_ends() -> None:
    ends = {"antonym": 0.1, "middle": 0.88, "top": 0.9, "low": 0.86}
    mixed = replace(
        curve(),
        values={task: (0.9, 0.9, end) for task, end in ends.items()},
        metric=dict.fromkeys(ends, "accuracy"),
    )
    ax = head_count_curve(mixed, ax=axes())
    places = {text.get_text(): text.get_position()[1] for text in ax.texts}
    assert sorted(places, key=lambda task: places[task]) == ["antonym", "low", "middle", "top"]
    assert places["antonym"] == pytest.approx(0.1)
    assert places["middle"] == pytest.approx(0.88, abs=0.02)


def test_a_crowd_of_controls_is_grey_and_counted() -> None:
    tasks = {f"control {number}": (0.9, 0.9, 0.9) for number in range(20)}
    crowd = replace(
        curve(),
        values={"antonym": curve().values["antonym"], **tasks},
        metric=dict.fromkeys(["antonym", *tasks], "accuracy"),
    )
    ax = head_count_curve(crowd, ax=axes())
    assert legend_of(ax) == ["antonym", "20 controls"]
    assert len(ax.get_lines()) == 21


def test_a_name_is_no_formula_and_a_crowd_in_nats_is_counted() -> None:
    name = "price_$1_to_$2"
    tasks = {f"control {number}": (0.9, 0.9, 0.9) for number in range(20)}
    texts_ = {f"text {number}": (-2.0, -2.1, -2.2) for number in range(9)}
    crowd = replace(
        curve(),
        capability=name,
        values={name: curve().values["antonym"], **tasks, **texts_},
        metric=dict.fromkeys([name, *tasks], "accuracy") | dict.fromkeys(texts_, "log_prob"),
    )
    figure = Figure(figsize=(3.4, 2.4))
    ax = head_count_curve(crowd, ax=figure.add_subplot())
    figure.canvas.draw()
    assert legend_of(ax) == [name, "20 controls"]
    assert texts(ax)[-1].replace("\n", " ").endswith("text 2 -2.00 to -2.20 nats, and 6 more")


def test_text_as_the_capability_has_the_axis() -> None:
    ax = head_count_curve(replace(curve(), capability="text"), ax=axes())
    assert list(lines_of(ax)) == ["text"]
    assert ax.get_ylabel() == "log-probability (nats a token)"
    assert "plural 0.90 to 0.85" in texts(ax)[-1]


def test_files_have_safe_names_and_text_in_svg(tmp_path: Path) -> None:
    name = "data/my tasks.json"
    written = save_figures({name: capability()}, {name: curve()}, tmp_path / "figures")
    assert [path.name for path in written] == [
        "data-my-tasks.json-effects.png",
        "data-my-tasks.json-effects.svg",
        "data-my-tasks.json-effects.pdf",
        "data-my-tasks.json-curve.png",
        "data-my-tasks.json-curve.svg",
        "data-my-tasks.json-curve.pdf",
    ]
    assert all(path.stat().st_size for path in written)
    assert re.search(r"<text[^>]*>effect \(nats\)</text>", written[1].read_text("utf-8"))
    width = int.from_bytes(written[0].read_bytes()[16:20], "big")
    assert width == 680


def test_same_result_same_files(tmp_path: Path) -> None:
    first = save_figures({"a": capability()}, {}, tmp_path / "1")
    second = save_figures({"a": capability()}, {}, tmp_path / "2")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_file_names_differ_without_regard_to_case() -> None:
    names = file_names(["a:b", "a/b", "A b", "..", "a-b-2"])
    assert len({name.casefold() for name in names.values()}) == 5
    assert names["a:b"] == "a-b"
    assert names[".."] == "capability"
