"""What a daemon that ended left behind, and what a damaged database did."""
