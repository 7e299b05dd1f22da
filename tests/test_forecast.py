"""The forecast: counted as the study counts, without measuring it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headsieve.forecast import forecast
from headsieve.models.loading import Model
from headsieve.study import locate
from tests.taskfiles import *  # noqa: F403  # replaced below
