"""Recovery after the end of a daemon and after damage to a database."""
