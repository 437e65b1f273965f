"""What real programs do with a folder when they save: recorder, player and the recordings."""
