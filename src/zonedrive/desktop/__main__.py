"""Command of a menu: `python3 FOLDER/__main__.py ACTION PATH...`."""

import importlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
# The package has one name in the sources and another one where it is installed.
sys.exit(importlib.import_module(f"{HERE.name}.actions").main(sys.argv[1:]))
