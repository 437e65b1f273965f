"""Endpoints, one module for each section of the API."""
