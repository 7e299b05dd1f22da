"""Run the command line as ``python -m headsieve``."""

import sys

from headsieve.cli import main

sys.exit(main())
