"""``python -m ffrfs`` runs the program, even if its directory is not in ``PATH``."""

import os
import sys

from ._program import program

try:
    path = program()
except FileNotFoundError as error:
    sys.exit(f"ffrfs: {error}")
try:
    os.execvp(path, [path, *sys.argv[1:]])
except OSError as error:
    sys.exit(f"ffrfs: {path}: {error.strerror}")
