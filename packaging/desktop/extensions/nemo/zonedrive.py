"""Emblems and menus of zonedrive in Nemo."""

import sys

from gi.repository import Nemo

sys.path.append("/usr/share/zonedrive-desktop")

from zonedrive_desktop.file_manager import emblem_provider

Zonedrive = emblem_provider(Nemo)
