"""`python -m protopyramid` is the command line."""

import sys

from protopyramid.cli.main import main

sys.exit(main())
