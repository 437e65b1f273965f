"""Open files, from open(2) to the last close."""
