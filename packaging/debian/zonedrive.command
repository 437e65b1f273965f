#!/usr/lib/zonedrive/bin/python
from zonedrive.__main__ import main

main()
