"""Deterministic simulation: several clients, a faulty network and disk, and a checker."""
