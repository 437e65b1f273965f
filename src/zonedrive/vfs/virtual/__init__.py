"""What can be opened and is in no listing: former versions, and the trash folder of desktops."""
