"""File operations of real programs when they save: recorder, player and the recordings."""
