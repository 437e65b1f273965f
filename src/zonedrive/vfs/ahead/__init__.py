"""Content that is fetched in advance: small sibling files and pinned entries."""
