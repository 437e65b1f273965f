"""Emblems and menus of zonedrive in Nautilus."""

import sys

from gi.repository import Nautilus

sys.path.append("/usr/share/zonedrive-desktop")

from zonedrive_desktop.file_manager import emblem_provider

Zonedrive = emblem_provider(Nautilus)
