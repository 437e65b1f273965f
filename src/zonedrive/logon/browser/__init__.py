"""Browser sign-on, from opening the provider's URL to receiving the provider's answer."""
