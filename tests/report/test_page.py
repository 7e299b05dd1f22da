"""The page: what it says, and what it does in a real browser."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headsieve.report.colours import GAIN, LOSS, SERIES
from headsieve.report.drawing import SCALE
from headsieve.report.heads_file import heads_json
from headsieve.report.page import render_page
from headsieve.report.page.charts import effect_map, head_rows, knockout_bars
from headsieve.report.page.side_by_side import layer_shares, matrix, radar
from headsieve.sensing.linearity import linearity
from tests.report import examples

ODD = "<b>rhyme & </script> \u2013 'it'"
SIZES = [(1280, 900), (400, 800)]
SIX_MEGABYTES = 6_000_000


def page(*, several: bool = True) -> str:
    capabilities = {"antonym": examples.capability()}
    curves = {"antonym": examples.curve()}
    linearities = {}
    if several:
        capabilities["plural"] = examples.capability(
            selected=["L1H2"], controls={"antonym": examples.claim(0.6, 0.5)}, ci=(-0.1, 0.2)
        )
        capabilities[ODD] = examples.capability(selected=[], controls={})
        rng = np.random.default_rng(0)
        scores = {
            tuple(np.flatnonzero(row).tolist()): -float(row[5])
            for row in rng.random((40, 11)) < 0.3
        }
        found = linearity(scores, 11, 0)
        assert found is not None
        linearities["antonym"] = found
    return render_page(
        examples.result(**capabilities),
        configuration='model = "tiny"\n',
        general={"antonym": examples.GENERAL},
        curves=curves,
        linearities=linearities,
        examples={"antonym": examples.said()},
    )


def specs(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', text, re.S)
    assert found is not None
    record: dict[str, Any] = json.loads(found[1])["specs"]
    return record


def test_the_page_needs_nothing_else_and_is_small() -> None:
    text = page()
    assert len(text.encode()) < SIX_MEGABYTES
    markup = re.sub(r"<script.*?</script>", "", text, flags=re.S)
    assert len(markup) < len(text) / 2
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', markup)
    assert "@import" not in markup
    assert "url(" not in markup


def test_names_are_shown_as_they_are() -> None:
    before_scripts = page().partition("<script")[0]
    assert ODD not in before_scripts
    assert "&lt;b&gt;rhyme &amp; &lt;/script&gt;" in before_scripts


def test_what_speaks_against_a_claim_stands_beside_it() -> None:
    text = page()
    assert "contains zero" in text
    assert "no measured set of heads lowers" in text
    assert text.index("Warning:") < text.index("Side by side</h2>")


def test_the_map_shows_every_head_in_its_place() -> None:
    result = examples.capability()
    spec = effect_map(result, examples.GENERAL, "#select")
    rows = spec["data"]["values"]
    assert {(row["layer"], row["index"]) for row in rows} == {
        (head.layer, head.index) for head in result.heads
    }
    assert [row["head"] for row in rows if row["selected"]] == ["L1H2", "L3H0"]
    (planted,) = [row for row in head_rows(result, []) if row["head"] == "L1H2"]
    assert (planted["layer"], planted["index"]) == (1, 2)
    assert planted["selectivity"] == pytest.approx(-1.234567 + 0.043, abs=1e-4)
    assert "selection probability 0.87" in planted["words"]


def test_bars_are_measurements() -> None:
    curve = examples.curve()
    rows = knockout_bars(curve, "accuracy", "#slider")["data"]["values"]
    assert {(row["task"], row["count"], row["value"]) for row in rows} == {
        (task, count, value)
        for task in ("antonym", "plural")
        for count, value in enumerate(curve.values[task])
    }
    assert {row["task"] for row in knockout_bars(curve, "log_prob", "#s")["data"]["values"]} == {
        "text"
    }


def test_bars_of_text_show_what_it_lost() -> None:
    spec = knockout_bars(examples.curve(), "log_prob", "#slider")
    losses = [row["value"] for row in spec["data"]["values"]]
    assert losses == pytest.approx([0, 0.01, 0.06])
    assert "longer is worse" in spec["layer"][0]["encoding"]["x"]["title"]
    assert spec["layer"][0]["encoding"]["x"]["scale"]["domain"] == [0, 0.5]


def test_a_fit_worse_than_the_mean_is_called_so() -> None:
    noise = np.random.default_rng(1)
    scores: dict[tuple[int, ...], float] = {
        (number,): float(noise.normal()) for number in range(30)
    }
    found = linearity(scores, 30, 0)
    assert found is not None
    assert found.r_squared < 0
    text = render_page(
        examples.result(antonym=examples.capability()),
        configuration="",
        general={},
        curves={},
        linearities={"antonym": found},
        examples={},
    )
    assert "worse than their mean" in text
    assert "less than half" not in text


def test_figures_and_page_have_the_same_colours() -> None:
    style = page(several=False)
    for number, colour in enumerate(SERIES, start=1):
        assert f"--series-{number}: {colour};" in style
    assert "rgba(208, 84, 0, 1)" in json.dumps(specs(style))
    assert SCALE(0.0)[:3] == pytest.approx([part / 255 for part in LOSS])
    assert SCALE(1.0)[:3] == pytest.approx([part / 255 for part in GAIN])


def test_several_capabilities_side_by_side() -> None:
    capabilities = {
        "antonym": examples.capability(controls={"plural": examples.claim(0.9, 0.85)}),
        "plural": examples.capability(controls={"antonym": examples.claim(0.66, 0.6)}),
    }
    cells = matrix(capabilities)["data"]["values"]
    assert {(cell["heads of"], cell["task"]): round(cell["drop"], 3) for cell in cells} == {
        ("antonym", "antonym"): 0.62,
        ("antonym", "plural"): 0.05,
        ("plural", "plural"): 0.62,
        ("plural", "antonym"): 0.06,
    }
    points = radar(capabilities)["layer"][2]["data"]["values"]
    for point in points:
        assert np.hypot(point["x"], point["y"]) == pytest.approx(point["accuracy"])
    assert {point["heads"] for point in points} == {
        *("unmodified", "without antonym", "without plural")
    }
    shares = layer_shares(capabilities)["data"]["values"]
    by_layer = [row["share"] for row in shares if row["capability"] == "antonym"]
    assert by_layer == pytest.approx([0, 1.234567 / 1.734567, 0, 0.5 / 1.734567])


def test_capabilities_without_accuracy_have_no_radar_chart() -> None:
    text = examples.capability(controls={}, metric="log_prob")
    drawn = render_page(
        examples.result(one=text, other=text),
        configuration="",
        general={},
        curves={},
        linearities={},
        examples={},
    )
    assert "Radar chart" not in drawn
    assert "Matrix of drops" in drawn


def test_heads_as_json() -> None:
    result = examples.result(antonym=examples.capability())
    record = json.loads(heads_json(result, {"antonym": examples.GENERAL}))
    found = record["capabilities"]["antonym"]
    assert (record["schema"], record["model"]["name"]) == (1, "tiny-model")
    assert (found["selected"], found["general"]) == (["L1H2", "L3H0"], ["L0H0"])
    assert [head["head"] for head in found["heads"][:2]] == ["L1H2", "L3H0"]


def test_what_the_model_says_before_and_after() -> None:
    text = page().partition("<script")[0]
    assert "hot &lt;-&gt;" in text
    assert re.search(r"<td class=\"said\">cold <span class=\"mark\">right<", text)
    assert re.search(r"<td class=\"said wrong\">\(nothing\) <span class=\"mark\">wrong<", text)
    # What stands before every prompt is there once, folded away.
    assert text.count("big &lt;-&gt; small") == 1
    assert text.index("<details>") < text.index("big &lt;-&gt; small")


# -- in a browser ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Start Chromium, if there is one."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no Chromium to try the page in: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Containers rarely let Chromium make a sandbox of its own; the page is ours.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write the page once."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page(), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def complaints() -> list[str]:
    """Collect what the browser complains of, and what it asks the network for."""
    return []


def opened(
    browser: Any, address: str, complaints: list[str], size: tuple[int, int] = SIZES[0], **more: Any
) -> Any:
    tab = browser.new_page(viewport={"width": size[0], "height": size[1]}, **more)
    requests: list[str] = []
    tab.set_default_timeout(300_000)  # a busy machine is no fault of the page
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("request", lambda request: requests.append(request.url))
    tab.goto(address)
    tab.wait_for_selector("html[data-drawn]")
    complaints += [f"asks for {url}" for url in requests if not url.startswith(("file:", "data:"))]
    return tab


def bar_widths(tab: Any, chart: str) -> list[float]:
    widths: list[float] = tab.eval_on_selector_all(
        f"{chart} .layer_0_marks path", "bars => bars.map(bar => bar.getBBox().width)"
    )
    return widths


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_without_complaint_and_fits(
    browser: Any, address: str, complaints: list[str], size: tuple[int, int], scheme: str
) -> None:
    tab = opened(browser, address, complaints, size, color_scheme=scheme)
    assert complaints == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= size[0]
    charts = tab.query_selector_all(".chart")
    assert len(charts) == len(specs(page()))
    for chart in charts:
        box = chart.query_selector("svg").bounding_box()
        assert box["width"] > 200
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= size[0]
    tab.close()


def test_the_slider_changes_the_bars(browser: Any, address: str, complaints: list[str]) -> None:
    tab = opened(browser, address, complaints)
    curve = examples.curve()
    slider = tab.locator("#c-0-count")
    assert slider.get_attribute("max") == "2"
    slider.focus()
    seen = {}
    for count in (2, 1, 0):
        tab.wait_for_function(
            "count => document.querySelector('#c-0-out').textContent.startsWith(count)",
            arg=str(count),
        )
        tab.wait_for_timeout(100)
        own, plural = bar_widths(tab, "#c-0-bars-accuracy")
        seen[count] = own / plural
        tab.keyboard.press("ArrowLeft")
    expected = {
        count: curve.values["antonym"][count] / curve.values["plural"][count] for count in seen
    }
    assert seen == pytest.approx(expected, rel=0.02)
    assert tab.locator("#c-0-out").text_content() == "0: none"
    assert complaints == []
    tab.close()


def test_the_map_is_walked_with_the_keyboard(
    browser: Any, address: str, complaints: list[str]
) -> None:
    tab = opened(browser, address, complaints)
    readout = tab.locator("#c-0-head")
    tab.locator("section#c-0 .map").focus()
    assert readout.text_content().startswith("L1H2: effect -1.23 nats")
    for key, head in (
        ("ArrowUp", "L1H2"),  # layer 2 has no third head
        ("ArrowLeft", "L1H1"),
        ("ArrowUp", "L2H1"),
        ("ArrowDown", "L1H1"),
        ("Home", "L0H0"),
        ("ArrowDown", "L0H0"),
        ("End", "L3H2"),
    ):
        tab.keyboard.press(key)
        assert readout.text_content().startswith(f"{head}:"), key
    tab.keyboard.press("Home")
    assert "general" in readout.text_content()
    # The cursor is drawn beside the two outlines of selected heads.
    tab.wait_for_timeout(100)
    assert tab.locator("#c-0-map [stroke='var(--focus)']").count() == 1
    assert complaints == []
    tab.close()


def test_the_map_says_what_the_mouse_is_on(
    browser: Any, address: str, complaints: list[str]
) -> None:
    tab = opened(browser, address, complaints)
    cell = tab.locator("#c-0-map .layer_0_marks path").nth(1)
    cell.hover()
    assert re.match(r"L\dH\d: effect", tab.locator("#c-0-head").text_content())
    tab.wait_for_selector("#vg-tooltip-element.visible")
    assert "selection probability" in tab.locator("#vg-tooltip-element").text_content()
    tab.close()


def test_the_map_shows_effect_control_or_selectivity(
    browser: Any, address: str, complaints: list[str]
) -> None:
    tab = opened(browser, address, complaints)

    def colours() -> list[str]:
        found: list[str] = tab.eval_on_selector_all(
            "#c-0-map .layer_0_marks path", "all => all.map(e => e.getAttribute('fill'))"
        )
        return found

    seen = []
    for measure in ("effect", "control", "selectivity"):
        tab.select_option("#c-0-measure", measure)
        tab.wait_for_timeout(100)
        seen.append(tuple(colours()))
    assert len(set(seen)) == 3
    assert complaints == []
    tab.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_axe_finds_no_serious_fault(
    browser: Any, address: str, complaints: list[str], size: tuple[int, int], scheme: str
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    tab = opened(browser, address, complaints, size, color_scheme=scheme)
    faults = [
        f"{fault['id']}: {fault['help']}: {fault['nodes'][0]['html'][:200]}"
        for fault in Axe().run(tab).response["violations"]
        if fault["impact"] in ("serious", "critical")
    ]
    assert faults == []
    tab.close()


def test_it_prints_on_white(browser: Any, address: str, complaints: list[str]) -> None:
    tab = opened(browser, address, complaints, color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    assert tab.evaluate(ground) != "rgb(255, 255, 255)"
    tab.emulate_media(media="print")
    assert tab.evaluate(ground) == "rgb(255, 255, 255)"
    assert not tab.locator("nav").is_visible()
    assert tab.locator("#c-0-map svg").is_visible()
    paper = tab.pdf(format="A4")
    assert paper.startswith(b"%PDF")
    tab.close()


def test_downloads_hold_the_heads(
    browser: Any, address: str, complaints: list[str], tmp_path: Path
) -> None:
    tab = opened(browser, address, complaints)
    for ending, beginning in ((".csv", "capability,head,layer"), ("heads.json", "{")):
        with tab.expect_download() as download:
            tab.locator(f".downloads a[download$='{ending}']").click()
        path = tmp_path / download.value.suggested_filename
        download.value.save_as(path)
        assert path.name.endswith(ending)
        assert path.read_text().startswith(beginning)
    tab.close()


def test_a_single_capability_has_no_comparison() -> None:
    text = page(several=False)
    assert set(specs(text)) == {*("layers", "c-0-map", "c-0-bars-accuracy", "c-0-bars-log_prob")}
    assert "Side by side" not in text
