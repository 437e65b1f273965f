"""Content that is fetched before anybody asks for it: small siblings, and what is pinned."""
