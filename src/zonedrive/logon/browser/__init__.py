"""Browser sign-on, from the opened address to the returned answer."""
