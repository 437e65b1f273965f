"""What an answer means: the service's JSON, read tolerantly, and its errors."""
