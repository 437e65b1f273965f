#!/usr/lib/zonedrive/bin/python
from zonedrive.cli.main import main

main()
