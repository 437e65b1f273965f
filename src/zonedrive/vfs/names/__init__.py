"""Names: looked up, made, renamed, removed, and who takes over a history with them."""
