"""What a folder holds: listings, fetched once for all who wait, and which inode an entry is."""
