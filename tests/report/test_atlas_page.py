"""The page, figure and table of an atlas."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.console import Console

from headsieve.report.atlas_figures import (
    atlas_drops,
    atlas_heads,
    drop_matrix,
    save_atlas_figures,
)
from headsieve.report.atlas_table import atlas_summary
from headsieve.report.atlas_words import (
    capability_sentence,
    general_sentence,
    groups,
    modularity_sentence,
    shown_heads,
)
from headsieve.report.page import atlas_page
from headsieve.report.page.atlas_charts import drops, effects, needs
from tests.report.atlas_example import GENERAL, atlas
from tests.report.test_page import SIX_MEGABYTES, SIZES, browser, complaints, opened

__all__ = ["browser", "complaints"]  # fixtures


def test_the_words() -> None:
    result = atlas()
    assert f"{GENERAL} (6 of 6 capabilities)" in general_sentence(result)
    assert capability_sentence("skill-0", result.capabilities["skill-0"]) == (
        "skill-0 (confirmed, selective): without L1H0 0.66 to 0.04; of the others skill-1 loses "
        "most, 0.10."
    )
    assert re.search(
        r"0\.\d\d, by chance 0\.\d\d \(0\.\d\d to 0\.\d\d\)", modularity_sentence(result)
    )
    # Skills 0 and 1 share a head beyond the general one, and so do the following pairs.
    assert sorted(map(sorted, groups(result))) == [
        ["skill-0", "skill-1"], ["skill-2", "skill-3"], ["skill-4", "skill-5"],
    ]  # fmt: skip
    assert len(result.confirmed) == 5


def test_heads_that_nothing_needs_are_not_shown() -> None:
    assert {head.head for head in shown_heads(atlas())} == {
        GENERAL, *(f"L1H{number}" for number in range(6)),
    }  # fmt: skip


def test_the_charts_show_what_the_result_says() -> None:
    result = atlas()
    cells = {row["head"]: row for row in effects(result)["data"]["values"]}
    head = next(head for head in result.heads if head.head == "L1H3")
    assert cells["L1H3 skill-3"]["shown"] == head.effects["skill-3"]
    assert cells["L1H3 skill-3"]["selected"]
    assert not cells["L1H3 skill-2"]["selected"]
    by_name = {row["head"]: row for row in drops(result)["data"]["values"]}
    assert by_name["skill-0 skill-1"]["shown"] == pytest.approx(0.1)
    assert by_name["skill-0 skill-0"]["shown"] == pytest.approx(0.62)
    places = {row["head"]: row for row in needs(result)["data"]["values"]}
    assert (places[GENERAL]["shown"], places["L1H0"]["shown"], places["L9H0"]["shown"]) == (
        6, 2, None,
    )  # fmt: skip


def test_the_figure_has_heads_and_capabilities_in_their_places(tmp_path: Path) -> None:
    result = atlas()
    axes = Figure().subplots(1, 2)
    assert atlas_heads(result, ax=axes[0]) is axes[0]
    assert atlas_drops(result, ax=axes[1]) is axes[1]
    names = [label.get_text() for label in axes[0].get_xticklabels()]
    shown = np.asarray(axes[0].collections[0].get_array()).reshape(6, -1)
    row, column = result.order.index("skill-2"), names.index("L1H2")
    assert shown[row, column] == next(
        head.effects["skill-2"] for head in result.heads if head.head == "L1H2"
    )
    assert np.diag(drop_matrix(result)) == pytest.approx(0.62)
    files = save_atlas_figures(result, tmp_path / "figures")
    assert [path.name for path in files] == ["atlas.png", "atlas.svg", "atlas.pdf"]
    assert all(path.stat().st_size > 1000 for path in files)


def test_the_table() -> None:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(atlas_summary(atlas(), folder=Path("runs/atlas")))
    text = capture.get()
    assert re.search(
        r"skill-0 +L1H0 +0.66 +0.04 +0.62 +0.50 to 0.73 +skill-1 +0.10 +confirmed", text
    )
    assert text.count("not confirmed") == 1
    assert "Left out: <b>hard" in text


# -- in a browser ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write the page once."""
    text = atlas_page(atlas(), configuration="seed = 0\n")
    assert len(text.encode()) < SIX_MEGABYTES
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', text.partition("<script")[0])
    path = tmp_path_factory.mktemp("page") / "atlas.html"
    path.write_text(text, encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_has_no_serious_fault(
    browser: Any, address: str, complaints: list[str], size: tuple[int, int], scheme: str
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    tab = opened(browser, address, complaints, size, color_scheme=scheme)
    assert complaints == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= size[0]
    found = Axe().run(tab).response["violations"]
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
    tab.close()


def test_the_grids_are_walked_with_the_keyboard(
    browser: Any, address: str, complaints: list[str]
) -> None:
    result = atlas()
    tab = opened(browser, address, complaints)
    readout = tab.locator("#drops-cell")
    tab.locator(".map[aria-describedby=drops-cell]").focus()
    tab.keyboard.press("End")  # the top row is the highest
    first, last = result.order[0], result.order[-1]
    assert readout.text_content().startswith(f"Without the heads of {first}: {last} ")
    tab.keyboard.press("ArrowDown")
    assert readout.text_content().startswith(f"Without the heads of {result.order[1]}: {last} ")
    tab.keyboard.press("Home")
    assert readout.text_content().startswith(f"Without the heads of {last}: {first} ")
    tab.locator(".map[aria-describedby=needs-cell]").focus()
    tab.keyboard.press("Home")
    tab.keyboard.press("ArrowRight")
    assert json.dumps(tab.locator("#needs-cell").text_content()).startswith('"L0H1: needed by ')
    assert complaints == []
    tab.close()
