"""The way of a change to the service, as the outbox has it carried out."""
