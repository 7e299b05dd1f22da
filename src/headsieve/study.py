"""A finished study: what was found, and its files in a run folder."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import ValidationError

from headsieve.config import STUDY_FILE, Config
from headsieve.errors import HeadsieveError, first_line
from headsieve.examples import Examples, examples_json, read_examples
from headsieve.report.curve import Curve
from headsieve.report.drawing import file_names
from headsieve.report.figures import save_figures
from headsieve.report.heads_file import heads_json
from headsieve.report.page import study_page
from headsieve.report.tables import heads_csv, read_general
from headsieve.results import SCHEMA, CapabilityResult, Result
from headsieve.runs import RESULT_FILE, read_text, run_folder, write_atomically

_FIGURES = "figures"
_HEADS_FILE = "heads.csv"
_HEADS_JSON_FILE = "heads.json"
_EXAMPLES_FILE = "examples.json"
_PAGE_FILE = "report.html"


@dataclass(frozen=True, repr=False)
class Study:
    """A finished study.

    Attributes
    ----------
    config : Config
    result : Result
        What ``result.json`` holds.
    general : dict
        For each capability, the heads that it needs but most controls need as well.
    curves : dict
        For each capability, all tasks' held-out metrics with 0 to K of its heads knocked out.
    examples : dict
        For each capability with selected heads, what the model says to a few held-out items.
    folder : Path or None
        Where it is kept.
    """

    config: Config
    result: Result
    general: dict[str, list[str]]
    curves: dict[str, Curve]
    examples: dict[str, Examples]
    folder: Path | None = None

    def __getitem__(self, capability: str) -> CapabilityResult:
        """The result of one capability."""
        try:
            return self.result.capabilities[capability]
        except KeyError:
            names = ", ".join(self.result.capabilities)
            raise KeyError(f"{capability!r} is not in this study, which has {names}") from None

    def __repr__(self) -> str:
        """Model, capabilities with their heads, and folder."""
        found = "; ".join(
            f"{name}: {', '.join(one.selected) or 'none'}"
            for name, one in self.result.capabilities.items()
        )
        place = "" if self.folder is None else f" in {self.folder}"
        return f"<Study of {self.result.model.name}: {found}{place}>"

    def save(self, folder: Path) -> None:
        """Write figures, tables, the page and, last, ``result.json`` into a run folder.

        Raises
        ------
        HeadsieveError
            If the folder cannot be written.
        """
        figures = folder / _FIGURES
        try:
            save_figures(self.result.capabilities, self.curves, figures)
        except OSError as error:
            raise HeadsieveError(f"Cannot write figures in {figures}: {error.strerror}.") from None
        for name, stem in file_names(self.curves).items():
            write_atomically(figures / f"{stem}-curve.csv", self.curves[name].to_csv())
        write_atomically(folder / _EXAMPLES_FILE, examples_json(self.examples))
        write_atomically(folder / _HEADS_FILE, heads_csv(self.result.capabilities, self.general))
        write_atomically(folder / _HEADS_JSON_FILE, heads_json(self.result, self.general))
        self.write_page(folder)
        write_atomically(folder / RESULT_FILE, self.result.to_json())

    def write_page(self, folder: Path) -> Path:
        """Write ``report.html`` into the run folder; returns its path.

        Raises
        ------
        HeadsieveError
            If the folder cannot be written.
        """
        write_atomically(folder / _PAGE_FILE, study_page(self, folder))
        return folder / _PAGE_FILE

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """Read a finished study from its run folder.

        Raises
        ------
        HeadsieveError
            If the folder holds no finished study.
        """
        folder = run_folder(folder)
        try:
            config = Config.from_toml(read_text(folder / STUDY_FILE))
            result = Result.from_json(read_text(folder / RESULT_FILE))
            curves = {
                name: Curve.from_csv(read_text(folder / _FIGURES / f"{stem}-curve.csv"))
                for name, stem in file_names(result.capabilities).items()
            }
            general = read_general(read_text(folder / _HEADS_FILE), result.capabilities)
            shown = folder / _EXAMPLES_FILE  # older studies have none
            examples = read_examples(read_text(shown)) if shown.is_file() else {}
        except OSError as error:
            raise HeadsieveError(
                f"{folder} holds no finished study ({error.filename} cannot be read)."
            ) from None
        except ValidationError as error:
            what = (
                f"{RESULT_FILE} is not a result of schema {SCHEMA}"
                if error.title == Result.__name__
                else f"{_EXAMPLES_FILE} holds no examples"
            )
            raise HeadsieveError(f"{folder}: {what}: {error.errors()[0]['msg']}.") from None
        except HeadsieveError as error:
            raise HeadsieveError(f"{folder}: {error}") from None
        # A table may be damaged in more ways than can be told apart.
        except (LookupError, TypeError, ValueError, AttributeError, csv.Error) as error:
            raise HeadsieveError(f"{folder} is damaged: {first_line(error)}.") from error
        for name, curve in curves.items():
            if curve.capability != name or list(curve.heads) != result.capabilities[name].selected:
                raise HeadsieveError(
                    f"{folder} is damaged: the curve of {name} is that of another capability or of "
                    "other heads."
                )
        return cls(config, result, general, curves, examples, folder)
