"""Entry point of the menu actions and of the sidebar process.

python3 FOLDER/__main__.py ACTION PATH...
python3 FOLDER/__main__.py side-bar
"""

import importlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
# The package has one name in the sources and another one where it is installed.
module = "side_bar" if sys.argv[1:] == ["side-bar"] else "actions"
sys.exit(importlib.import_module(f"{HERE.name}.{module}").main(sys.argv[1:]))
