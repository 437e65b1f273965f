"""Emblems and menus of zonedrive in Caja."""

import sys

from gi.repository import Caja

sys.path.append("/usr/share/zonedrive-desktop")

from zonedrive_desktop.file_manager import emblem_provider

Zonedrive = emblem_provider(Caja)
