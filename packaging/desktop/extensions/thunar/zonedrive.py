"""Menus of zonedrive in Thunar."""

import sys

from gi.repository import Thunarx

sys.path.append("/usr/share/zonedrive-desktop")

from zonedrive_desktop.file_manager import menu_provider

Zonedrive = menu_provider(Thunarx)
