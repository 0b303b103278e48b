"""``python -m tpk``: the ``tpk`` command, such as for ``tpk launch -n 2 -m tpk``."""

import sys

from tpk.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
