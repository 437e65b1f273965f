"""Virtual entries, which no listing shows: former versions, and the trash folder of desktops."""
