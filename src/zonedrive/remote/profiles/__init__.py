"""What a deployment has beyond the published interface, as checked data."""
