"""Content that is fetched before a program asks for it."""
