"""The endpoints, a module for each section of the interface."""
