"""Delivery of changes to the service, called by the outbox."""
