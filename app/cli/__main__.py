"""`python -m app.cli`: the program."""

import sys

from app.cli.main import main

sys.exit(main())
