"""Browser sign-on, from opening the address to receiving the answer."""
