"""Browser sign-on, from opening the provider's address to receiving the provider's answer."""
