"""A finished atlas and its run folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import ValidationError

from headsieve.atlas_result import ATLAS_SCHEMA, AtlasResult
from headsieve.config import STUDY_FILE, Config
from headsieve.errors import HeadsieveError
from headsieve.names import join_names
from headsieve.report.atlas_figures import save_atlas_figures
from headsieve.report.page import atlas_page
from headsieve.runs import read_text, run_folder, write_atomically

ATLAS_FILE = "atlas.json"
_PAGE_FILE = "atlas.html"


class AtlasConfig(Config):
    """The configuration of an atlas: that of a study of all its capabilities."""

    @property
    def _asked(self) -> list[str]:
        words = ["atlas", "--tasks", join_names(self.capabilities)]
        return [*words, "--budget", str(self.budget), "--prior", self.prior]

    @property
    def _last(self) -> list[str]:
        return []


@dataclass(frozen=True)
class Atlas:
    """A finished atlas.

    Attributes
    ----------
    config : Config
    result : AtlasResult
        What ``atlas.json`` holds.
    folder : Path or None
        Where it is kept.
    """

    config: Config
    result: AtlasResult
    folder: Path | None = None

    def save(self, folder: Path) -> None:
        """Write figures, the page and, last, ``atlas.json`` into a run folder.

        Raises
        ------
        HeadsieveError
            If the folder cannot be written.
        """
        figures = folder / "figures"
        try:
            save_atlas_figures(self.result, figures)
        except OSError as error:
            raise HeadsieveError(f"Cannot write figures in {figures}: {error.strerror}.") from None
        self.write_page(folder)
        write_atomically(folder / ATLAS_FILE, self.result.to_json())

    def write_page(self, folder: Path) -> Path:
        """Write ``atlas.html`` into the run folder; returns its path.

        Raises
        ------
        HeadsieveError
            If the folder cannot be written.
        """
        page = atlas_page(self.result, configuration=self.config.to_toml())
        write_atomically(folder / _PAGE_FILE, page)
        return folder / _PAGE_FILE

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """Read a finished atlas from its run folder.

        Raises
        ------
        HeadsieveError
            If the folder holds no finished atlas.
        """
        folder = run_folder(folder)
        try:
            config = AtlasConfig.from_toml(read_text(folder / STUDY_FILE))
            result = AtlasResult.from_json(read_text(folder / ATLAS_FILE))
        except OSError as error:
            raise HeadsieveError(
                f"{folder} holds no finished atlas ({error.filename} cannot be read)."
            ) from None
        except ValidationError as error:
            raise HeadsieveError(
                f"{folder / ATLAS_FILE} is not an atlas of schema {ATLAS_SCHEMA}: "
                f"{error.errors()[0]['msg']}."
            ) from None
        return cls(config, result, folder)
